"""Newton's method over a sequence: it is the loop, in few sweeps, with the loop's gradient."""

from functools import partial

import pytest
import torch
from torch import Tensor

from ultralif.functional import ultralif, ultralif_step
from ultralif.functional.newton import affine_scan, newton

OPTIONS = {"leak": 0.9, "threshold": 0.5}


def membrane(v: Tensor, current: Tensor, **options: object) -> Tensor:
    return ultralif_step(current, v, **options)[1]


def loop(current: Tensor, v0: Tensor, **options: object) -> Tensor:
    found, v = [], v0
    for x in current:
        v = membrane(v, x, **options)
        found.append(v)
    return torch.stack(found)


@pytest.mark.parametrize("time", [1, 2, 3, 10, 33])
def test_the_scan_is_the_loop(time: int) -> None:
    slope, offset = torch.randn(2, time, 3, dtype=torch.float64)
    y, found = torch.ones(3, dtype=torch.float64), []
    for a, b in zip(slope, offset, strict=True):
        y = a * y + b
        found.append(y)
    torch.testing.assert_close(affine_scan(slope, offset, torch.ones(3)), torch.stack(found))


@pytest.mark.parametrize(("reset", "most"), [("zero", 12), ("subtract", 30), ("none", 12), ("saturate", 12)])
@pytest.mark.parametrize("eps", [0.1, 1.0])
def test_soft_spikes_take_few_sweeps(reset: str, most: int, eps: float) -> None:
    current = 0.5 * torch.randn(300, 2, 8, dtype=torch.float64)
    v0 = torch.zeros(2, 8, dtype=torch.float64)
    options = {"eps": eps, "reset": reset, **OPTIONS}
    found, sweeps = newton(partial(membrane, **options), current, v0, tolerance=1e-10)
    torch.testing.assert_close(found, loop(current, v0, **options), rtol=0, atol=1e-9)
    assert sweeps <= most


def test_binary_spikes_are_solved_too() -> None:
    current = torch.randn(60, 4, dtype=torch.float64)
    options = {"eps": 0.2, "mode": "hard", **OPTIONS}
    found, sweeps = newton(partial(membrane, **options), current, torch.zeros(4).double(), tolerance=1e-10)
    torch.testing.assert_close(found, loop(current, torch.zeros(4).double(), **options), rtol=0, atol=1e-9)
    assert sweeps <= 61  # a sweep settles at least one more step


def test_its_gradient_is_that_of_the_loop() -> None:
    current = (0.5 * torch.randn(40, 3, dtype=torch.float64)).requires_grad_()
    v0 = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    eps = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(40, 3, dtype=torch.float64)
    leaves = (current, v0, eps)
    found, _ = newton(partial(membrane, eps=eps, **OPTIONS), current, v0, tolerance=1e-12)
    expected = loop(current, v0, eps=eps, **OPTIONS)
    for got, want in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
    spikes, _ = ultralif(current, eps=eps, **OPTIONS)
    before = torch.cat((v0[None], found[:-1]))
    torch.testing.assert_close(ultralif_step(current, before, eps=eps, **OPTIONS)[0], spikes)
