"""Every neuron with every choice that a kernel knows, as one list of cases."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ultralif import functional, ops

DIFFERENTIABLE = ("eps", "leak", "threshold", "surrogate_slope", "sharpness")


@dataclass
class Case:
    """A neuron's function with its learned constants and its fixed choices."""

    name: str
    learned: dict[str, float]
    fixed: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        choices = [f"{k}={v}" if v is not True else k for k, v in self.fixed.items()]
        return "-".join([self.name, *choices])


CASES = [
    *(
        Case("ultralif", {"eps": 0.5, "leak": 0.9, "threshold": 0.5}, {"mode": m})
        for m in ("soft", "hard", "tropical")
    ),
    Case("ultralif", {"eps": 0.5, "leak": 0.9, "threshold": 0.5}, {"v_reset": -0.2}),
    *(Case("ultradlif", {"eps": 0.5, "threshold": 0.5}, {"mode": m}) for m in ("soft", "hard", "tropical")),
    Case("ultradlif", {"eps": 0.5, "threshold": 0.5}, {"centered": True, "v_reset": 0.1}),
    Case("ultradlif", {"eps": 0.5, "leak": 0.8, "threshold": 0.5}),
    Case("ultradlif", {"eps": 0.5, "leak": 0.8, "threshold": 0.5}, {"leak_form": "shift", "mode": "hard"}),
    Case("lif", {"leak": 0.9, "threshold": 0.5, "surrogate_slope": 5.0}),
    Case(
        "lif",
        {"leak": 0.9, "threshold": 0.5, "surrogate_slope": 5.0},
        {"scaled_surrogate": True, "v_reset": 0.1},
    ),
    Case("adalif", {"leak": 0.9, "threshold": 0.5, "surrogate_slope": 5.0}),
    Case(
        "adalif",
        {"leak": 0.9, "threshold": 0.5, "surrogate_slope": 5.0},
        {"adapt_late": True, "scaled_surrogate": True},
    ),
    *(
        Case("dspike", {"leak": 0.9, "threshold": 0.5, "sharpness": 4.0}, {"mode": m})
        for m in ("soft", "hard")
    ),
    *(Case("softlif", {"eps": 0.5, "leak": 0.9, "threshold": 0.5}, {"mode": m}) for m in ("soft", "hard")),
]


def values(case: Case, shape: tuple[int, ...], dtype: torch.dtype, **overrides: float) -> dict[str, Tensor]:
    """Draw learnable constants of a shape around the case's values."""
    numbers = {k: overrides.get(k, v) for k, v in case.learned.items()}
    return {
        k: (v * (1 + 0.05 * torch.rand(shape, dtype=torch.float64))).to(dtype).requires_grad_()
        for k, v in numbers.items()
    }


def run_and_differentiate(
    case: Case,
    current: Tensor,
    start: object,
    constants: dict[str, Tensor],
    *,
    reference: bool,
    rate: bool = False,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Return outputs and all gradients, for random gradients of every output."""
    function = getattr(functional if reference else ops, case.name)
    leaves = {"current": current.detach().requires_grad_(), **constants}
    if start is not None:
        parts = [start] if isinstance(start, Tensor) else list(start)
        parts = [p.detach().requires_grad_() for p in parts]
        leaves |= {f"state{i}": p for i, p in enumerate(parts)}
        start = parts[0] if isinstance(start, Tensor) else functional.AdaptiveState(*parts)
    extra = {} if reference else {"rate": rate}
    out, last = function(leaves["current"], start, **extra, **constants, **case.fixed)
    if reference and rate:
        out = out.mean(0)
    lasts = [last] if isinstance(last, Tensor) else list(last)
    generator = torch.Generator().manual_seed(seed)
    loss = sum(
        (o.double() * torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.device)).sum()
        for o in (out, *lasts)
    )
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    found = {"out": out, **{f"last{i}": p for i, p in enumerate(lasts)}}
    found |= {f"grad {k}": g for k, g in zip(leaves, grads, strict=True) if g is not None}
    return {k: v.detach() for k, v in found.items()}
