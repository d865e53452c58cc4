"""The fused optimizers are torch's, bit for bit."""

import pytest
import torch

from ultralif.training.optimizer import SGD, Adam, Group

SHAPES = ((3, 50, 7), (9,), ())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", [Adam, SGD])
def test_twenty_steps_are_those_of_torch(kind: type, decay: float, dtype: torch.dtype) -> None:
    """Two groups, one of them ten times as fast and without decay; the rate changes at every step."""
    ours = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in SHAPES]
    theirs = [p.detach().clone().requires_grad_() for p in ours]
    optimizer = kind([Group(ours[:2], 1.0, decay), Group(ours[2:], 10.0, 0.0)])
    groups = [{"params": theirs[:2], "weight_decay": decay}, {"params": theirs[2:], "weight_decay": 0.0}]
    if kind is Adam:
        reference = torch.optim.AdamW(groups, fused=True)
    else:
        reference = torch.optim.SGD(groups, lr=1.0, momentum=0.9, nesterov=True, fused=True)
    for step in range(20):
        rate = 0.01 / (1 + step)
        optimizer.set_rate(rate)
        for group, speed in zip(reference.param_groups, (1.0, 10.0), strict=True):
            group["lr"] = rate * speed
        optimizer.begin()
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        optimizer.step()
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_a_parameter_without_a_gradient_stays() -> None:
    moved, still = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = Adam([Group([moved, still])])
    optimizer.set_rate(0.1)
    optimizer.begin()
    moved.grad = torch.ones(2)
    optimizer.step()
    assert moved[0] != 1 and torch.equal(still, torch.ones(2))
    optimizer.begin()
    assert moved.grad is None
