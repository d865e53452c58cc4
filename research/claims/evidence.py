"""Evidence about one statement: the number of tests, the counterexamples and the closest case."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["Draw", "Evidence"]

Number = float | Tensor
Shown = tuple[str, Tensor, Tensor]


class Draw:
    """Seeded random inputs in float64."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, sd: float = 1.0) -> Tensor:
        """Return normally distributed numbers with mean 0."""
        return sd * torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Return uniformly distributed numbers between low and high."""
        return low + (high - low) * torch.rand(shape, generator=self.generator, dtype=torch.float64)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Return random integers from low to high (inclusive) as float64."""
        return torch.randint(low, high + 1, shape, generator=self.generator).double()


@dataclass
class Evidence:
    """Collect checks of a statement; the first violation is the counterexample, and NaN is a violation.

    Every check accepts numbers or broadcastable tensors, a name, and the corresponding inputs as further
    keyword arguments. The finding names the inputs of the worst entry.
    """

    cases: int = 0
    violations: int = 0
    first: str = ""
    """The first violation. Simple inputs are checked before random ones, so it is a simple example."""
    closest: str = ""
    """The case closest to the limit, or the one that exceeds it most."""
    score: float = field(default=-1.0, repr=False)

    def equal(
        self,
        got: Number,
        want: Number,
        what: str,
        *,
        rel: float = 1e-12,
        scale: Number | None = None,
        **at: Any,
    ) -> None:
        """Check ``|got - want| <= rel * scale``; the scale defaults to ``1 + |want|``."""
        got, want = _pair(got, want)
        error = torch.where(got == want, 0.0, (got - want).abs())  # -inf equals -inf
        allowed = (rel * (1 + want.abs() if scale is None else _double(scale))).expand(error.shape)
        ratio = torch.where(error == 0, 0.0, error / allowed.clamp_min(1e-300))
        self._record(ratio, what, ("{} != {}", got, want), ("off by {}, {} allowed", error, allowed), at)

    def at_most(
        self,
        got: Number,
        bound: Number,
        what: str,
        *,
        slack: float = 1e-9,
        rounding: Number = 0.0,
        **at: Any,
    ) -> None:
        """Check ``got <= bound`` with a tolerance relative to both sides, plus ``got``'s rounding error."""
        got, bound = _pair(got, bound)
        size = got.abs() + bound.abs()
        excess = torch.where(got == bound, 0.0, got - bound)
        ratio = torch.where(
            size == 0, 1.0, 1 + (excess - slack * size - _double(rounding)) / size.clamp_min(1e-300)
        )
        self._record(ratio, what, ("{} > {}", got, bound), ("{} <= {}", got, bound), at)

    def true(self, condition: bool | Tensor, what: str, **at: Any) -> None:
        """Check a condition."""
        got = _double(condition)
        self._record(2 * (1 - got), what, ("not so", got, got), ("so", got, got), at)

    def _record(self, ratio: Tensor, what: str, broken: Shown, kept: Shown, at: dict[str, Any]) -> None:
        """Record one check; a ratio above 1 is a violation."""
        if ratio.numel() == 0:
            raise ValueError(f"the check {what!r} has nothing to check")
        ratio = torch.nan_to_num(ratio, nan=torch.inf, posinf=torch.inf)
        bad = int((ratio > 1).sum())
        self.cases += ratio.numel()
        self.violations += bad
        ratios = ratio.flatten().round(decimals=9)  # if several differ only by rounding, use the first
        if bad and not self.first:
            self.first = _finding(what, broken, at, ratio.shape, int((ratios > 1).int().argmax()))
        worst = int(ratios.argmax())
        if float(ratios[worst]) > self.score:
            self.score = float(ratios[worst])
            self.closest = _finding(what, broken if bad else kept, at, ratio.shape, worst)


def _double(value: bool | Number) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64).detach()


def _pair(a: Number, b: Number) -> tuple[Tensor, Tensor]:
    x, y = _double(a), _double(b)
    shape = (x == y).shape
    return x.expand(shape), y.expand(shape)


def _finding(what: str, shown: Shown, at: dict[str, Any], shape: torch.Size, index: int) -> str:
    """Describe one case: what was compared, both sides and the inputs."""
    form, *sides = shown
    text = f"{what}: " + form.format(*(_show(side, shape, index) for side in sides))
    inputs = ", ".join(f"{name}={_show(value, shape, index)}" for name, value in at.items())
    return f"{text} at {inputs}" if inputs else text


def _show(value: Any, shape: torch.Size, index: int) -> str:
    """Format a value's entry for one case, or the whole vector if every case has one."""
    if isinstance(value, Tensor):
        if value.dim() > len(shape):
            vector = value.flatten(0, len(shape) - 1)[index] if shape else value
            return str([round(v, 6) for v in vector.flatten().tolist()])
        value = float(value.detach().double().expand(shape).flatten()[index])
    return f"{value:.5g}" if isinstance(value, float) else str(value)
