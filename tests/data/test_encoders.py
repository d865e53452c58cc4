"""Encoders: exact probabilities, explicit randomness, and the same prefix whatever T."""

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ultralif.data import encoders
from ultralif.data.table import DATASETS
from ultralif.errors import InputError


def generator(seed: int = 0, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_spikes_come_with_the_stated_probability(device):
    """Try every byte of a pixel, and pixels between the bytes."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    pixels = torch.cat([torch.arange(256) / 255, torch.rand(44, generator=generator())])
    draws = 40_000
    spikes = encoders.rate(pixels.expand(draws // 8, -1).contiguous().to(device), 8, generator(1, device))
    assert set(spikes.unique().tolist()) == {0.0, 1.0}
    p = 0.5 * pixels.double()
    seen = spikes.double().mean((0, 1)).cpu()
    z = (seen - p) / (p * (1 - p) / draws).sqrt().clamp(min=1e-12)
    assert z.abs().max() < 5
    assert seen[0] == 0


@pytest.mark.parametrize("p", [0.0, 1.0, 1 / 256, 3.5 / 256, 255 / 256, 255.5 / 256, 1e-4])
def test_the_corners_of_the_byte_method(p):
    spikes = encoders.rate(torch.full((200, 1001), p), 5, generator(2), gain=1.0)
    n = spikes.numel()
    deviation = (p * (1 - p) / n) ** 0.5
    assert abs(spikes.double().mean().item() - p) <= 5 * deviation


def test_steps_and_neighbours_are_independent():
    spikes = encoders.rate(torch.full((300, 1000), 0.6), 6, generator(3)) - 0.3
    bound = 5 * 0.3 * 0.7 / spikes.numel() ** 0.5
    for a, b in [
        (spikes[1:], spikes[:-1]),
        (spikes[..., 1:], spikes[..., :-1]),
        (spikes[..., 8:], spikes[..., :-8]),
        (spikes[:, 1:], spikes[:, :-1]),
    ]:
        assert abs((a * b).mean().item()) < bound


@given(
    st.integers(1, 6),
    st.integers(0, 6),
    st.lists(st.integers(1, 7), min_size=1, max_size=3),
    st.integers(0, 99),
)
def test_a_longer_draw_begins_with_the_shorter(steps, more, shape, seed):
    x = torch.rand(shape, generator=generator(seed))
    short = encoders.rate(x, steps, generator(seed))
    long = encoders.rate(x, steps + more, generator(seed))
    assert short.shape == (steps, *shape)
    assert torch.equal(long[:steps], short)


@pytest.mark.gpu
def test_a_longer_draw_begins_with_the_shorter_on_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    x = torch.rand(128, 784, device="cuda")
    long = encoders.rate(x, 30, generator(1, "cuda"))
    assert torch.equal(long[:10], encoders.rate(x, 10, generator(1, "cuda")))


def test_seeds_decide():
    x = torch.rand(20, 50, generator=generator())
    first = encoders.rate(x, 3, generator(1))
    assert torch.equal(first, encoders.rate(x, 3, generator(1)))
    assert not torch.equal(first, encoders.rate(x, 3, generator(2)))


def encode(x, name, normalization):
    return encoders.encode(x, 4, generator(1), encoding=name, normalization=normalization)


def test_the_other_reading_uses_the_normalised_pixel():
    normalization = DATASETS["cifar10"].normalization
    x = torch.rand(3, 4, 4, generator=generator())
    spikes = encode(x.expand(3000, 3, 4, 4), "rate-normalized", normalization)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in normalization)
    p = (0.5 * (x - mean) / std).clamp(0, 1)
    assert (spikes.mean((0, 1)) - p).abs().max() < 5 * 0.5 / 12_000**0.5
    assert (p == 0).any() and p.max() > 0.9


def test_the_released_code_clips_the_normalised_pixel_before_the_gain():
    normalization = DATASETS["cifar10"].normalization
    x = torch.rand(3, 4, 4, generator=generator())
    spikes = encode(x.expand(3000, 3, 4, 4), "rate-clipped", normalization)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in normalization)
    p = 0.5 * ((x - mean) / std).clamp(0, 1)
    assert (spikes.mean((0, 1)) - p).abs().max() < 5 * 0.5 / 12_000**0.5
    assert (p == 0).any() and (p == 0.5).any()


def test_a_normalised_constant_has_mean_0_and_deviation_1_where_the_pixels_have_the_stated_ones():
    x = torch.rand(500, 1, 4, 4, generator=generator())
    current = encode(x, "constant-normalized", ((float(x.mean()),), (float(x.std()),)))
    assert current.shape == (4, 500, 1, 4, 4)
    assert abs(float(current.mean())) < 1e-5 and abs(float(current.std()) - 1) < 1e-3


def test_a_constant_is_the_pixel_at_every_step_and_takes_no_memory():
    x = torch.rand(2, 3)
    current = encoders.constant(x, 5)
    assert current.shape == (5, 2, 3)
    assert all(torch.equal(step, x) for step in current)
    assert current.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", get_args(encoders.Encoding))
def test_encodings_have_names(name):
    x = torch.rand(2, 1, 3, 3)
    out = encoders.encode(x, 4, generator(), encoding=name, normalization=((0.1,), (0.3,)))
    assert out.shape == (4, 2, 1, 3, 3)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: encoders.rate(x, 0, generator()), "timesteps must be at least 1, got 0"),
        (lambda x: encoders.rate(x, 1, generator(), gain=1.5), r"gain must be in \[0, 1\], got 1.5"),
        (lambda x: encoders.rate(x.byte(), 1, generator()), "torch.uint8; divide bytes by 255"),
        (lambda x: encoders.encode(x, 1, generator(), encoding="poisson"), "got 'poisson'"),
        (lambda x: encoders.encode(x, 1, generator(), encoding="rate-normalized"), "needs the dataset's"),
    ],
)
def test_bad_arguments_are_refused(call, says):
    with pytest.raises(InputError, match=says):
        call(torch.rand(2, 3))
