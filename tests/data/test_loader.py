"""Splits, augmentation and the loader: pure functions of the seed, the epoch and the step."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ultralif.data.dataset import load
from ultralif.data.loader import Loader, cut_out, shift_and_flip
from ultralif.data.split import Events, Images, Split
from ultralif.errors import InputError


def images(count: int = 50, shape: tuple[int, ...] = (1, 6, 6)) -> Split:
    pixels = torch.randint(
        256, (count, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return Split(Images(pixels), torch.arange(count), torch.arange(count))


RECORDINGS = st.lists(st.dictionaries(st.integers(0, 23), st.integers(1, 9)), min_size=1, max_size=6)


@given(RECORDINGS, st.data())
def test_event_batches_are_the_dense_counts(recordings, data):
    offsets = torch.tensor([0] + [len(r) for r in recordings]).cumsum(0)
    keys = torch.tensor([key for r in recordings for key in sorted(r)], dtype=torch.int32)
    counts = torch.tensor([r[key] for r in recordings for key in sorted(r)], dtype=torch.uint8)
    store = Events(offsets, keys, counts, timesteps=4, shape=(2, 3))
    rows = data.draw(st.lists(st.integers(0, len(recordings) - 1), min_size=1, max_size=5))
    frames = store.gather(torch.tensor(rows))
    expected = np.zeros((len(rows), 24), np.float32)
    for sample, row in enumerate(rows):
        for key, count in recordings[row].items():
            expected[sample, key] = count
    assert frames.dtype == torch.float32
    assert np.array_equal(frames.numpy(), expected.reshape(-1, 4, 2, 3).swapaxes(0, 1))


def test_a_subset_is_a_view_of_its_samples():
    split = images()
    part = split.subset(torch.tensor([7, 3, 9])).subset([2, 0])
    assert part.labels.tolist() == [9, 7]
    assert torch.equal(part.batch([0, 1]), split.batch([9, 7]))
    assert part.store is split.store
    assert not part.is_events


def test_crops_and_flips_are_windows_of_the_padded_image():
    batch = images(400, (3, 6, 6)).batch(list(range(400)))
    out = shift_and_flip(batch, torch.Generator().manual_seed(1), 2).numpy()
    seen = set()
    for image, result in zip(batch.numpy(), out, strict=True):
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2)))
        matches = [
            (dy, dx, mirrored)
            for dy in range(5)
            for dx in range(5)
            for mirrored in (False, True)
            if np.array_equal(result, padded[:, dy : dy + 6, dx : dx + 6][:, :, :: -1 if mirrored else 1])
        ]
        assert len(matches) == 1
        seen.update(matches)
    assert len(seen) == 50, "every shift, mirrored and not"
    assert out.dtype == np.uint8


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("encoding", ["rate", "rate-normalized", "constant"])
def test_an_epoch_can_be_taken_up_at_any_step(augment, encoding):
    loader = Loader(
        images(), 8, timesteps=3, encoding=encoding, normalization=((0.5,), (0.5,)), augment=augment
    )
    whole = list(loader.epoch(4))
    assert len(whole) == loader.steps == 7
    assert whole[-1][0].shape == (3, 2, 1, 6, 6)
    for start in range(8):
        rest = list(loader.epoch(4, start))
        assert len(rest) == 7 - start
        for (x, labels), (y, others) in zip(whole[start:], rest, strict=True):
            assert torch.equal(x, y)
            assert torch.equal(labels, others)


def test_every_sample_comes_once_an_epoch_in_a_new_order():
    loader = Loader(images(), 8, timesteps=1)
    orders = [torch.cat([labels for _, labels in loader.epoch(e)]).tolist() for e in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len(set(map(tuple, orders))) == 3


def test_without_shuffling_the_order_is_that_of_the_split():
    part = images().subset([5, 4, 3])
    (batch,) = Loader(part, 8, timesteps=1, shuffle=False).epoch(2)
    assert batch[1].tolist() == [5, 4, 3]


def test_spikes_change_with_the_seed_the_epoch_and_the_step():
    split = images().subset([1] * 16)
    draws = [
        x
        for seed in (0, 1)
        for epoch in (0, 1)
        for x, _ in Loader(split, 8, timesteps=4, seed=seed).epoch(epoch)
    ]
    assert len({tuple(x.flatten().tolist()) for x in draws}) == 8


def test_more_steps_begin_with_fewer():
    short, long = (next(Loader(images(), 8, timesteps=t, augment=True).epoch(1))[0] for t in (3, 9))
    assert torch.equal(long[:3], short)


def test_event_frames_pass_as_they_are():
    split = load("randman", timesteps=5).train.subset(list(range(10)))
    loader = Loader(split, 4, shuffle=False)
    batches = [x for x, _ in loader.epoch(0)]
    assert torch.equal(torch.cat(batches, dim=1), split.batch(list(range(10))))
    assert loader.timesteps == 5


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Loader(images(), 0, timesteps=1), "batch_size must be at least 1"),
        (lambda: Loader(images()), "timesteps must be given for images"),
        (lambda: Loader(images(), timesteps=1, seed=-1), "seed must not be negative"),
        (lambda: Loader(load("randman").train, timesteps=10), "counted in 30 bins; choose timesteps=30"),
        (lambda: Loader(load("randman").train, augment=True), "augment is for images"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_iterating_takes_one_epoch_after_another():
    loader = Loader(load("digits").train, batch_size=500, timesteps=1)
    assert len(loader) == loader.steps == 3
    for epoch in range(2):
        for (x, labels), (again, same) in zip(loader, loader.epoch(epoch), strict=True):
            assert torch.equal(x, again) and torch.equal(labels, same)


def test_a_square_is_cut_around_its_middle() -> None:
    """Both edges lose their pixels equally often: 2 of 9 middles of a 3 x 3 square reach each."""
    images = cut_out(torch.ones(5000, 1, 9, 9), torch.Generator().manual_seed(0), 3)
    top, bottom = ((images[:, 0, row] == 0).any(1).float().mean().item() for row in (0, -1))
    assert top == pytest.approx(2 / 9, abs=0.03) and bottom == pytest.approx(2 / 9, abs=0.03)
