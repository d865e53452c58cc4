"""The table of neurons as kernels see it, and the comparison of a kernel with its definition."""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import cases
from ultralif import functional, ops
from ultralif.functional import AdaptiveState, compute_dtype
from ultralif.ops.constants import Form, Learned

LEARNED = {"eps": 0.5, "leak": 0.9, "threshold": 0.5, "v_sat": 0.7, "surrogate_slope": 5.0, "sharpness": 4.0}
"""The constants that kernels differentiate by. Their values here differ from the table's."""
WITHOUT_KERNEL = {"coupled_axis"}


@dataclass(frozen=True)
class Case:
    """A case of the table as a kernel sees it: a function, its learned constants and its fixed choices."""

    title: str
    name: str
    learned: dict[str, float]
    fixed: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.title

    @property
    def soft(self) -> bool:
        """Whether its spikes are continuous: a rounding error cannot flip one."""
        return self.fixed.get("mode") == "soft"


def kernel_case(title: str, **changes: Any) -> Case:
    """Return a case of the table, with other options."""
    case = cases.CASES[title]
    given = {**case.arguments, "v_reset": -0.125, **changes}  # sums of sixteenths are exact, see `draw`
    learned = {name: changes.get(name, LEARNED[name]) for name in given if name in LEARNED}
    fixed = {name: value for name, value in given.items() if name not in LEARNED}
    return Case("-".join([title, *(f"{k}={v}" for k, v in changes.items())]), case.formula, learned, fixed)


def _has_kernel(row: cases.Case) -> bool:
    delayed = bool(row.arguments.get("delayed_reset"))
    alone = row.formula not in ("ultradlif", "adalif") and row.arguments.get("reset") != "saturate"
    return not WITHOUT_KERNEL & row.arguments.keys() and (alone or not delayed)


def _table(rows: dict[str, cases.Case]) -> list[Case]:
    """Return the cases that have a kernel, without those that repeat one: PLIF is LIF here."""
    made = [kernel_case(title) for title, row in rows.items() if _has_kernel(row)]
    found: dict[str, Case] = {}
    for case in made:
        found.setdefault(f"{case.name} {case.learned} {case.fixed}", case)
    return list(found.values())


CASES = _table(cases.PLAIN)

KINDS = [*{case.name: case for case in reversed(CASES)}.values()]
"""The first case of each formula, for what is slow."""

OPTIONS = [
    *_table(cases.OPTIONS),
    # What the table has in another mode, and what only gradients show.
    *(kernel_case(f"UltraLIF-{mode}", reset="subtract") for mode in ("hard", "tropical")),
    kernel_case("UltraLIF-none", detach_reset=True),
    kernel_case("UltraLIF-soft", threshold=-0.5, v_reset=-1.0, detach_reset=True),
    kernel_case("UltraLIF-hard", detach_reset=False, v_reset=0.3),
    kernel_case("UltraDLIF-soft", reset="subtract", detach_reset=True),
    kernel_case("UltraDLIF-soft", reset="none", centered=True),
    kernel_case("LIF", detach_reset=False),
    *(
        kernel_case(title, surrogate=surrogate, detach_reset=False)
        for title in ("LIF", "LIF-soft")
        for surrogate in ("atan", "triangle")
    ),
    kernel_case("LIF-atan", reset="subtract"),
    kernel_case("LIF", surrogate="superspike", surrogate_slope=25.0),
    kernel_case("LIF", surrogate="superspike", delayed_reset=True),
    kernel_case("AdaLIF", surrogate="superspike"),
    kernel_case("AdaLIF-soft", detach_reset=True),
    kernel_case("AdaLIF-soft", surrogate="triangle", reset="subtract"),
    kernel_case("AdaLIF-soft", surrogate="atan"),
    kernel_case("AdaLIF", surrogate="atan", reset="subtract", detach_reset=False),
    kernel_case("SoftLIF", reset="subtract"),
    *(
        kernel_case(title, delayed_reset=True, reset=reset)
        for title in ("UltraLIF-soft", "UltraLIF-hard", "UltraLIF-tropical", "LIF", "LIF-soft", "SoftLIF")
        for reset in ("zero", "subtract", "none")
    ),
    kernel_case("LIF", delayed_reset=True, surrogate="atan", detach_reset=False),
    kernel_case("LIF-soft", delayed_reset=True, surrogate="triangle", reset="subtract", detach_reset=True),
    kernel_case("UltraLIF-hard", delayed_reset=True, detach_reset=False, reset="subtract"),
    *(kernel_case(title, delayed_reset=True) for title in ("DSpike-hard", "DSpike-soft")),
    kernel_case("SoftLIF-saturate", mode="hard"),
]
"""Options of a neuron that the cases above leave alone."""


@dataclass(frozen=True)
class Setting:
    """A layer's size, the shape of its constants, and how it is called."""

    time: int
    batch: int
    features: tuple[int, ...]
    constants: tuple[int, ...] = ()
    eps: float | None = None
    start: bool = False
    rate: bool = False
    batch_first: bool = False
    part: bool = False
    """Current and gradient are parts of wider tensors, as in a stack of several kinds."""

    def applies(self, case: Case) -> bool:
        return self.eps is None or "eps" in case.learned


SETTINGS = {
    "T=1": Setting(1, 3, (33,)),
    "T=2 from a state": Setting(2, 3, (33,), start=True),
    "T=31 rate": Setting(31, 2, (7,), rate=True),
    "T=100 B=1": Setting(100, 1, (5,), start=True),
    "long": Setting(1000, 1, (3,)),
    "two neurons": Setting(5, 3, (2,), rate=True, start=True),
    "wide": Setting(3, 2, (301,), (301,), start=True),
    "stack": Setting(9, 4, (3, 5), (3, 1), start=True),
    "one per neuron": Setting(9, 4, (3, 5), (5,), rate=True),
    "one for each": Setting(9, 4, (3, 5), (3, 5), start=True),
    "cold": Setting(40, 2, (11,), (11,), eps=0.1),
    "hot": Setting(40, 2, (11,), eps=20.0, start=True),
    "part of a stack": Setting(9, 4, (3, 5), (3, 1), rate=True, part=True),
    "batch first": Setting(9, 4, (3, 5), (5,), batch_first=True, start=True),
}


CHUNKED = [
    *(kernel_case("UltraLIF-none", mode=mode) for mode in ("soft", "hard", "tropical")),
    *(kernel_case(f"UltraLIF-saturate-{mode}") for mode in ("soft", "hard", "tropical")),
]
"""Neurons whose time may be cut into chunks,"""
CHUNKED_SETTINGS = [Setting(24, 3, (5,), (5,), start=True), Setting(16, 2, (3, 4), rate=True)]
"""and layers that four chunks divide."""


def pairs(*settings: str) -> list[Any]:
    """Return every case in these settings, and one of each formula in all settings that it knows."""
    return [
        pytest.param(case, setting, id=f"{case}-{name}")
        for case in CASES
        for name, setting in SETTINGS.items()
        if setting.applies(case) and (case in KINDS or name in settings)
    ]


def draw(
    case: Case, setting: Setting, dtype: torch.dtype, device: str = "cpu", seed: int = 1
) -> dict[str, Tensor]:
    """Draw a current, constants, a state and gradients for the outputs, all of which a dtype can hold."""
    generator = torch.Generator().manual_seed(seed)
    shape = (setting.time, setting.batch, *setting.features)
    wide = compute_dtype(dtype)

    def normal(*size: int, kind: torch.dtype = wide) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(kind).to(device)

    current = normal(*shape, kind=dtype)
    if case.name == "ultradlif" and case.fixed.get("mode") == "tropical":
        # Sums of sixteenths are exact: neighbours tie in every precision or in none, and share evenly.
        current = (current * 16).round() / 16
    if setting.batch_first:
        current = normal(setting.batch, setting.time, *setting.features, kind=dtype).transpose(0, 1)
    drawn = {"current": current}
    for name, value in case.learned.items():
        value = setting.eps if name == "eps" and setting.eps else value
        spread = torch.rand(setting.constants, generator=generator, dtype=torch.float64)
        drawn[name] = (value * (1 + 0.05 * spread)).to(wide).to(device)
    states = 3 if case.name == "adalif" else 1
    if setting.start:
        drawn |= {f"state{i}": normal(*shape[1:]).abs() * 0.3 for i in range(states)}
    drawn["grad out"] = normal(*(shape[1:] if setting.rate else shape), kind=dtype)
    if setting.part:
        for name in ("current", "grad out"):
            drawn[name] = torch.cat((drawn[name], drawn[name]), -2)[..., setting.features[0] :, :]
    return drawn | {f"grad last{i}": normal(*shape[1:]) for i in range(states)}


def run(case: Case, setting: Setting, drawn: dict[str, Tensor], *, reference: bool) -> dict[str, Tensor]:
    """Return outputs and all gradients."""
    leaves = {k: v.detach().requires_grad_() for k, v in drawn.items() if not k.startswith("grad ")}
    constants = {name: leaves[name] for name in case.learned}
    parts = [v for k, v in leaves.items() if k.startswith("state")]
    start = None if not parts else parts[0] if len(parts) == 1 else AdaptiveState(*parts)
    function = getattr(functional if reference else ops, case.name)
    extra = {} if reference else {"rate": setting.rate}
    out, last = function(leaves["current"], start, **extra, **constants, **case.fixed)
    if reference and setting.rate:
        out = out.mean(0)
    outputs = [out, *([last] if isinstance(last, Tensor) else last)]
    weights = [v for k, v in drawn.items() if k.startswith("grad ")]
    live = [i for i, o in enumerate(outputs[: len(weights)]) if o.requires_grad]
    grads = torch.autograd.grad(
        [outputs[i] for i in live], list(leaves.values()), [weights[i] for i in live], allow_unused=True
    )
    found = {"out": out, **{f"last{i}": part for i, part in enumerate(outputs[1:])}}
    found |= {f"d {k}": g for k, g in zip(leaves, grads, strict=True) if g is not None}
    return {k: v.detach() for k, v in found.items()}


def check(case: Case, setting: Setting, dtype: torch.dtype, device: str = "cpu", cut: bool = False) -> None:
    """Compare outputs and all gradients of the operator with the definition in float64.

    float64: 1e-10 of every number. float32: 1e-5 of the largest number of a tensor; a constant's gradient is
    a sum, held against the sum of the magnitudes. Half precision: the same, and its rounding where that is
    what the operator returns, which is twice as large if it is ``cut`` off.
    """
    compare(case, setting, draw(case, setting, dtype, device), dtype, cut)


def compare(
    case: Case,
    setting: Setting,
    drawn: dict[str, Tensor],
    dtype: torch.dtype,
    cut: bool = False,
    near: float = 1e-5,
    least: float = 0.0,
) -> None:
    """Compare as `check` does, in float32 within ``near`` of a tensor's largest number, or of ``least``."""
    got = run(case, setting, drawn, reference=False)
    want = run(case, setting, spread(case, setting, drawn), reference=True)
    assert set(got) == set(want)
    for name, expected in want.items():
        found = got[name]
        kind = dtype if name in ("out", "d current") else compute_dtype(dtype)
        scale = expected.abs().max().item()
        if expected.shape != found.shape:
            scale = expected.abs().sum_to_size(found.shape).max().item()
            expected = expected.sum_to_size(found.shape)
        assert found.shape == expected.shape and found.dtype == kind, name
        scale = max(scale, least)
        rtol, atol = (1e-10, 1e-12 * scale) if dtype == torch.float64 else (0.0, near * scale)
        if kind != compute_dtype(dtype):
            rtol, atol = torch.finfo(kind).eps / (1 if cut else 2), atol + torch.finfo(kind).smallest_normal
        torch.testing.assert_close(
            found.double(), expected, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


def spread(case: Case, setting: Setting, drawn: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give every neuron of every sample constants of its own, in float64."""
    full = (setting.batch, *setting.features)
    return {k: (v.expand(full) if k in case.learned else v).double() for k, v in drawn.items()}


def check_spikes_tell_all(device: str = "cpu") -> None:
    """Without a gradient of the last membrane, soft spikes alone are differentiated."""
    settings = ("T=1", "T=2 from a state", "T=100 B=1", "stack", "one for each", "cold", "hot")
    for setting in [SETTINGS[name] for name in settings] + [Setting(13, 4, (64,), (64,))]:
        check_from_spikes(CASES[0], setting, torch.float32, device)
    ring = next(case for case in CASES if case.name == "ultradlif" and case.soft)
    for setting in (SETTINGS["T=2 from a state"], SETTINGS["cold"], SETTINGS["hot"]):
        check_from_spikes(ring, setting, torch.float32, device)


def check_lost_spikes(case: Case, setting: Setting, device: str = "cpu") -> None:
    """A soft ring whose spikes are 0 in float32 for some steps is differentiated as if it had no spikes."""
    drawn = draw(case, setting, torch.float32, device)
    drawn["current"][1] -= 60  # below threshold - 88 eps,
    drawn["current"][-2] += 60  # and back
    found = []
    for forget in (False, True):
        leaves = [drawn[name].clone().requires_grad_() for name in ("current", *case.learned)]
        constants = dict(zip(case.learned, leaves[1:], strict=True))
        out, _ = getattr(ops, case.name)(leaves[0], **constants, **case.fixed)
        assert out[1:3].max() < 1e-38 and out[-2:].mean() > 0.01
        if forget:
            out.detach().zero_()
        found.append(torch.autograd.grad(out, leaves, drawn["grad out"]))
    for got, expected in zip(*found, strict=True):
        atol = 1e-5 * expected.abs().max().item()
        assert atol > 0
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=atol)


def check_from_spikes(
    case: Case, setting: Setting, dtype: torch.dtype, device: str = "cpu", scale: float = 1.0
) -> None:
    """Compare all but the gradients of the last membrane; the current may be scaled."""
    drawn = {k: v for k, v in draw(case, setting, dtype, device).items() if "last" not in k}
    drawn["current"] = drawn["current"] * scale
    compare(case, setting, drawn, dtype)


def check_learned(device: str = "cpu") -> None:
    """Raw parameters are decoded, clamped and differentiated as their values are."""
    generator = torch.Generator().manual_seed(3)
    current = torch.randn(6, 3, 4, 32, generator=generator).to(device)
    for i, form in enumerate((*Form, *Form)):
        low, high = ((-torch.inf, torch.inf), (0.6, 20.0), (0.1, 0.4))[i % 3]
        inverse, shape = ((False, ()), (True, (4, 1)), (True, (32,)))[i // 2 % 3]
        raw = (0.5 + 0.2 * torch.rand(shape, generator=generator)).to(device).requires_grad_()
        logit = torch.full((4, 1), 2.0, device=device, requires_grad=True)
        eps, leak = Learned(raw, form, low, high, inverse), Learned(logit, Form.LOGISTIC)
        found = []
        for e, decay in ((eps, leak), (eps.value(), leak.value())):
            out = ops.ultralif(current, eps=e, leak=decay, threshold=0.5)[0]
            found.append((out, *torch.autograd.grad(out.square().sum(), [raw, logit])))
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


def check_decoder(dtype: torch.dtype, device: str = "cpu") -> None:
    """A kernel's value and slope are those of `Learned.value` in every form, within and beyond the bounds.

    A membrane of 1 that leaks once is the constant itself. Below -4, Triton's softplus, log(1 + exp(x)) in
    float32, loses digits.
    """
    whole = torch.linspace(-20, 20, 160, dtype=dtype, device=device)
    current = torch.zeros(2, 1, len(whole), dtype=dtype, device=device)
    current[0] = 1
    every = product(Form, ((-torch.inf, torch.inf), (0.25, 0.75), (0.25, torch.inf)), (False, True), (1, -1))
    for form, bounds, inverse, sign in every:
        if inverse and form is Form.VALUE:
            continue  # it may be 0
        raw = whole.clamp(min=-4) if form is Form.SOFTPLUS and dtype == torch.float32 else whole
        leaf, wide = raw.clone().requires_grad_(), raw.double().requires_grad_()
        leak, expected = Learned(leaf, form, *bounds, inverse), Learned(wide, form, *bounds, inverse).value()
        _, last = ops.lif(current, leak=leak, threshold=0.5, reset="none", mode="soft")
        found = last[0], *torch.autograd.grad(sign * last.sum(), leaf)
        want = expected, *torch.autograd.grad(sign * expected.sum(), wide)
        close = 1e-14 if dtype == torch.float64 else 1e-6
        for ours, theirs in zip(found, want, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=close * 100, atol=close)


def check_minus_infinity(dtype: torch.dtype) -> None:
    """The zero of the algebra adds nothing to an UltraLIF neuron: no spike, no gradient, no NaN."""
    current = torch.randn(6, 2, 40, dtype=dtype)
    current[1:3, :, ::3] = -torch.inf
    found = []
    for module in (ops, functional):
        leaves = [current.clone().requires_grad_(), torch.tensor(0.5, dtype=dtype, requires_grad=True)]
        out, _ = module.ultralif(leaves[0], eps=leaves[1], leak=0.9, threshold=0.5)
        found.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
    assert found[1][2].isfinite()
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def check_nan(case: Case, time: int = 4) -> None:
    """A NaN comes out where the definition has one, in every mode: a broken network must not look well."""
    current = torch.randn(time, 2, 20)
    current[1, 0, 3] = torch.nan
    found, expected = (
        getattr(module, case.name)(current, **case.learned, **case.fixed)[0] for module in (ops, functional)
    )
    assert found[1:, 0, 3].isnan().all()
    assert torch.equal(found.isnan(), expected.isnan())
