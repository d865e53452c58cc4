"""Losses and readouts against torch and plain definitions; padding never changes a number."""

import math

import pytest
import torch
from torch.nn import functional

from ultralif.errors import InputError
from ultralif.training import losses

T, B, C = 5, 4, 3
LENGTHS = torch.tensor([1, 3, 5, 2])
MASK = losses.step_mask(LENGTHS)


@pytest.fixture
def steps() -> torch.Tensor:
    return torch.randn(T, B, C, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


LABELS = torch.tensor([0, 2, 1, 1])


def test_a_mask_marks_the_steps_of_each_sample() -> None:
    assert MASK.shape == (T, B) and MASK.sum(0).tolist() == LENGTHS.tolist()
    assert losses.step_mask(LENGTHS, 8).shape == (8, B)
    with pytest.raises(InputError, match="lengths must be positive"):
        losses.step_mask(torch.tensor([0, 2]))


@pytest.mark.parametrize("name", list(losses.READOUTS))
def test_a_readout_is_that_of_each_sample_alone(name: str, steps: torch.Tensor) -> None:
    read = losses.find_readout(name)
    padded = read(steps, MASK)
    assert padded.shape == (B, C)
    for i, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(padded[i], read(steps[:length, i : i + 1])[0])
    noise = torch.where(MASK[..., None], steps, torch.full_like(steps, 1e9))
    torch.testing.assert_close(read(noise, MASK), padded)


def test_readouts_are_what_their_names_say(steps: torch.Tensor) -> None:
    assert torch.equal(losses.mean(steps), steps.mean(0))
    assert torch.equal(losses.last(steps), steps[-1])
    assert torch.equal(losses.maximum(steps), steps.max(0).values)
    powers = torch.tensor([0.9 ** (T - 1 - t) for t in range(T)], dtype=torch.float64)
    torch.testing.assert_close(losses.leaky(steps), (powers[:, None, None] * steps).sum(0))


def test_losses_are_those_of_torch(steps: torch.Tensor) -> None:
    scores = steps.mean(0)
    ce = functional.cross_entropy
    torch.testing.assert_close(losses.cross_entropy(scores, LABELS), ce(scores, LABELS))
    torch.testing.assert_close(
        losses.cross_entropy(scores, LABELS, label_smoothing=0.1), ce(scores, LABELS, label_smoothing=0.1)
    )
    soft = torch.softmax(torch.randn(B, C, dtype=torch.float64), 1)
    torch.testing.assert_close(losses.cross_entropy(scores, soft), ce(scores, soft))
    torch.testing.assert_close(losses.mse(scores, soft), functional.mse_loss(scores, soft))
    two = (soft > 0.3).double()
    torch.testing.assert_close(
        losses.bce(scores, two), functional.binary_cross_entropy_with_logits(scores, two)
    )
    each = torch.stack([ce(step, LABELS) for step in steps]).mean()
    torch.testing.assert_close(losses.tet(steps, LABELS), each)
    assert not torch.isclose(each, ce(scores, LABELS))
    rates, one_hot = torch.rand(B, C), functional.one_hot(LABELS, C).float()
    torch.testing.assert_close(losses.rate_mse(rates, LABELS), functional.mse_loss(rates, one_hot))
    torch.testing.assert_close(
        losses.rate_mse(rates, LABELS, correct=0.8, other=0.2),
        functional.mse_loss(rates, 0.6 * one_hot + 0.2),
    )


def test_targets_over_time_and_masks(steps: torch.Tensor) -> None:
    classes = torch.randint(0, C, (T, B))
    values = torch.randn_like(steps)
    cases = {
        losses.cross_entropy: classes,
        losses.mse: values,
        losses.bce: (values > 0).double(),
        losses.rate_mse: classes,
    }
    for loss, targets in cases.items():
        alone = [loss(steps[:n, i : i + 1], targets[:n, i : i + 1]) for i, n in enumerate(LENGTHS.tolist())]
        torch.testing.assert_close(loss(steps, targets, MASK), torch.stack(alone).mean())
        torch.testing.assert_close(loss(steps, targets, torch.ones_like(MASK)), loss(steps, targets))
    alone = [losses.tet(steps[:n, i : i + 1], LABELS[i : i + 1]) for i, n in enumerate(LENGTHS.tolist())]
    torch.testing.assert_close(losses.tet(steps, LABELS, MASK), torch.stack(alone).mean())


def test_padding_gets_no_gradient(steps: torch.Tensor) -> None:
    x = steps.clone().requires_grad_()
    losses.tet(x, LABELS, MASK).backward()
    assert x.grad is not None
    assert bool((x.grad[~MASK] == 0).all()) and bool((x.grad[MASK] != 0).all())


def test_names_and_functions_are_found() -> None:
    assert losses.find_loss("bce") is losses.bce and losses.find_loss(math.hypot) is math.hypot  # type: ignore[arg-type,comparison-overlap]
    with pytest.raises(InputError, match="loss must be one of cross-entropy, mse, bce, tet, rate-mse"):
        losses.find_loss("hinge")
    with pytest.raises(InputError, match="readout must be one of mean, last, max, leaky"):
        losses.find_readout("median")


def test_shapes_that_do_not_fit_get_one_clear_error(steps: torch.Tensor) -> None:
    scores = steps.mean(0)
    for call, words in (
        (lambda: losses.cross_entropy(steps, LABELS), "choose a readout"),
        (lambda: losses.mse(scores, scores[:, :1]), "shape of the scores"),
        (lambda: losses.tet(scores, LABELS), "scores of every step"),
        (lambda: losses.rate_mse(scores, scores), "classes"),
        (lambda: losses.mean(steps, MASK[:2]), "mask must be"),
        (lambda: losses.mean(steps, torch.zeros(T, B, dtype=torch.bool)), "without any valid step"),
    ):
        with pytest.raises(InputError, match=words):
            call()
