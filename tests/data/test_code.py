"""A run is named by all that a user's functions and networks do; two that differ are never taken for one."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ultralif as ul
from ultralif.data.code import code_of

SETTINGS = SimpleNamespace(factor=1.0, unused=0.0)


def weighted(weight: Any) -> Any:
    def loss(scores: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(scores, targets, weight=torch.as_tensor(weight))

    return loss


class Scaled(nn.Module):
    def __init__(self, factor: float = 1.0, activation: Any = torch.relu, mask: float = 1.0) -> None:
        super().__init__()
        self.factor, self.activation, self.linear = factor, activation, nn.Linear(2, 2)
        self.register_buffer("mask", torch.full((2,), mask), persistent=False)

    def loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        return self.factor * functional.mse_loss(scores, targets)


class Cached:
    @functools.cached_property
    def size(self) -> int:
        return 1

    @functools.lru_cache  # noqa: B019
    def width(self) -> int:
        return 1


class CachedOtherwise(Cached):
    @functools.cached_property
    def size(self) -> int:
        return 2


def frozen(value: float) -> nn.Module:
    net = nn.Linear(2, 2)
    nn.init.constant_(net.weight, value).requires_grad_(False)
    return net


@pytest.mark.parametrize(
    "make",
    [
        lambda value: nn.CrossEntropyLoss(weight=torch.tensor([1.0, value])),
        lambda value: nn.CrossEntropyLoss(label_smoothing=value / 10),
        lambda value: functools.partial(functional.cross_entropy, weight=torch.tensor([value])),
        lambda value: weighted(torch.tensor([value])),
        lambda value: weighted(np.array([value])),
        lambda value: Scaled(value).loss,
        lambda value: Scaled(factor=value),
        lambda value: Scaled(mask=value),
        lambda value: Scaled(activation=torch.relu if value == 1 else torch.neg),
        lambda value: Scaled(activation=(lambda x: x) if value == 1 else (lambda x: -x)),
        lambda value: Scaled(activation=Scaled(value)),
        lambda value: ul.LIF(surrogate=weighted(torch.tensor([value]))),
        lambda value: Scaled(activation=functools.partial(functional.leaky_relu, negative_slope=value)),
        lambda value: Scaled(factor=np.float32(value)),
        lambda value: Scaled(factor=np.array([[value], [1, 2]], dtype=object)),
        lambda value: Scaled(factor=torch.full((2, 2), value).to_sparse()),
        lambda value: Scaled(factor=torch.full((2,), value + 1j).conj()),
        lambda value: Scaled(activation=Cached if value == 1 else CachedOtherwise),
        frozen,
    ],
)
def test_what_differs_has_other_code_and_what_does_not_has_the_same(make: Any) -> None:
    assert code_of(make(1.0)) == code_of(make(1.0))
    assert code_of(make(1.0)) != code_of(make(2.0))


def test_only_those_settings_count_that_a_function_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(scores: Tensor) -> Tensor:
        return SETTINGS.factor * scores.sum()

    before = code_of(loss)
    monkeypatch.setattr(SETTINGS, "unused", 3.0)
    assert code_of(loss) == before
    monkeypatch.setattr(SETTINGS, "factor", 3.0)
    assert code_of(loss) != before


def test_what_a_module_learns_is_left_out() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), Scaled())
    before = code_of(net)
    net[1](net[0](torch.rand(8, 2)))
    nn.init.zeros_(net[0].weight)
    assert code_of(net.eval()) == before


def test_what_is_used_again_is_told_from_what_is_used_elsewhere() -> None:
    a, b = Scaled(1.0), Scaled(2.0)
    assert code_of(nn.Sequential(a, b, a)) != code_of(nn.Sequential(a, b, b))
    shared, two = nn.Linear(2, 2), nn.Linear(2, 2)
    assert code_of(nn.Sequential(shared, two, shared)) != code_of(nn.Sequential(shared, two, two))


def test_the_code_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Python seeds the order of sets anew in each process."""
    (tmp_path / "settings.py").write_text(
        """
import argparse
from torch.nn import functional
from ultralif.data.code import code_of

class A: weight = 1
class B: weight = 2

args, a, b = argparse.Namespace(weight=1), A(), B()
allowed = {A, B, len}

def loss(scores, targets):
    return args.weight * a.weight * b.weight * functional.mse_loss(scores, targets) * (A in allowed)

print(code_of(loss), code_of(lambda name: name in {"one", "two", "three", "four"}))
"""
    )
    said = [
        subprocess.run(
            [sys.executable, str(tmp_path / "settings.py")],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert len(set(said)) == 1
