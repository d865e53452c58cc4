"""The recurrence that every fast implementation computes: one rule, four constants, and their derivatives.

All neurons of `ultralif.functional` share one recurrence with a few choices. With V the membrane after the
last step, I the current, k = 1/eps:

    P = lse(V + log leak, I)         UltraLIF                  (membrane LSE; its limit MAX)
        leak * V + I                 LIF, DSpike, SoftLIF      (ADD)
        lse(ring of V) + I           UltraDLIF                 (ring > 0, with LSE or MAX)
    z = k (P - threshold)
    s = 1/2 + A (f(z) - 1/2)         soft;  P > threshold      hard, with the derivative of the soft one
    V = P (1 - s) + v_reset s        reset ZERO;  P - threshold s  SUBTRACT;  P  NONE
        -lse(-P, -v_sat)             SATURATE, for UltraLIF and SoftLIF; for a maximum min(P, v_sat)

A delayed reset uses the previous step's spike, s(V) of the last membrane V, instead of s. The new
spike is that of the membrane after reset: z = k (V - threshold).

f is a sigmoid, or the antiderivative of another surrogate: see `Curve`.

In the backward pass, with gs and gV the gradients for s and V, and s' = A k f'(z):

    h = gs + gV dV/ds                the gradient for s; only gs where the reset is not differentiated
    G = h s' + gV dV/dP              the gradient for P
    threshold: -h s' (and -gV s for SUBTRACT)     eps: -h s' z + G dP/deps     A: h (f(z) - 1/2)

where dV/ds = v_reset - P and dV/dP = 1 - s for ZERO, -threshold and 1 for SUBTRACT, 0 and 1 for NONE, 0 and
o = sigmoid(k (v_sat - P)) for SATURATE, where dV/dv_sat = 1 - o and dV/deps is minus the entropy of o; and
dP/dV, dP/dI, dP/dleak, dP/deps are those of the membrane: for LSE, p, 1 - p, p / leak and the entropy of p,
where p = exp(k (V + log leak - P)) is the share of the past.

The fields of `Rule` are declared here and nowhere else: the C structure (``python src/ultralif/ops/rule.py``
writes cpu/rule.h), the number that Triton's kernels read (`code`) and the operator's schema (`encode`) are
derived from them.
"""

import math
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ultralif.ops.constants import Form, Value, value_of

__all__ = [
    "BITS",
    "CHOICES",
    "NUMBERS",
    "Constants",
    "Curve",
    "Membrane",
    "Reset",
    "Rule",
    "c_header",
    "code",
    "decode",
    "encode",
    "spelled_out",
]


class Membrane(IntEnum):
    """How past and current are combined: log-sum-exp, its limit, or a sum."""

    LSE = 0
    MAX = 1
    ADD = 2


class Reset(IntEnum):
    """The membrane after a spike: ``v_reset``, ``P - threshold``, P, or a soft minimum of P and ``v_sat``."""

    ZERO = 0
    SUBTRACT = 1
    NONE = 2
    SATURATE = 3


class Curve(IntEnum):
    """The soft spike f(z), an antiderivative of the surrogate derivative, whose area is 1.

    SIGMOID: sigmoid(z). ATAN: 1/2 + atan(pi z / 2) / pi. TRIANGLE: the antiderivative of max(0, 1 - abs(z)).
    SUPERSPIKE has no soft spike, and its surrogate derivative in P is 1 / (1 + abs(z))**2 for every eps.
    """

    SIGMOID = 0
    ATAN = 1
    TRIANGLE = 2
    SUPERSPIKE = 3


class Constants(NamedTuple):
    """The constants of a layer: numbers, tensors that broadcast against the features, or `Learned` ones."""

    eps: Value
    leak: Value
    threshold: Value
    amplitude: Value
    """The height A of DSpike's soft spike; ``v_sat`` where the reset is SATURATE; else 1."""


class Rule(NamedTuple):
    """A layer's choices: how it integrates, fires and resets."""

    membrane: Membrane
    soft: bool = False
    reset: Reset = Reset.ZERO
    detach: bool = False
    """Do not differentiate the spike in the reset."""
    delayed: bool = False
    """Reset by the previous step's spike, which follows from the membrane; rings do not support this."""
    curve: Curve = Curve.SIGMOID
    clipped: bool = False
    """DSpike: the soft spike has the height A > 1 and is clipped to [0, 1], where its derivative is 0."""
    rate: bool = False
    """Return the mean over time instead of the spikes."""
    centered: bool = False
    leaks: bool = False
    """The membrane of a ring decays, to ``leak * V``."""
    adapt: bool = False
    """AdaLIF: the state consists of the membrane, the adaptation and the last spike; the threshold adapts."""
    sharp: bool = False
    """DSpike with its sharpness b instead of eps: eps is threshold / b, and A is 1 / tanh(b / 2)."""
    ring: int = 0
    """Number of neurons on a ring, which is the last axis; 0 means no neighbours."""
    v_reset: float = 0.0
    adapt_strength: float = 0.0
    adapt_decay: float = 0.0

    @property
    def states(self) -> int:
        """The number of tensors in the state."""
        return 3 if self.adapt else 1

    @property
    def invertible(self) -> bool:
        """True if the membrane can be computed from a stored soft spike: P = threshold + eps logit(s)."""
        return (
            self.membrane == Membrane.LSE
            and self.soft
            and self.reset == Reset.ZERO
            and self.curve == Curve.SIGMOID
            and not (self.rate or self.delayed)
        )

    @property
    def linear(self) -> bool:
        """True if a step is linear in exp(V / eps), or a quotient of linear maps, so time can be chunked."""
        return self.reset in (Reset.NONE, Reset.SATURATE) and self.membrane != Membrane.ADD and not self.ring


_KINDS: dict[str, type] = Rule.__annotations__
CHOICES = tuple(name for name, kind in _KINDS.items() if kind is bool or issubclass(kind, IntEnum))
"""The fields that are choices, each with at most four options."""
NUMBERS = tuple(name for name, kind in _KINDS.items() if kind is float)
"""The fields that are numbers. The remaining field is ``ring``."""
BITS = {name: 2 * i for i, name in enumerate((*CHOICES, "same", "even"))}
"""The first of each choice's two bits in the number that `code` returns."""


def code(rule: Rule, same: int) -> int:
    """Encode a rule's choices as one number, two bits each, for the Triton kernels.

    ``same`` indicates whether all lanes share their constants: 0, no; 1, yes; 2, all lanes of a program do,
    and the constants are already decoded. The bits of ``even`` are set by a launch whose chunks divide the
    time.
    """
    return sum(int(getattr(rule, name)) << BITS[name] for name in CHOICES) + (same << BITS["same"])


def encode(rule: Rule) -> tuple[str, int, list[float]]:
    """Encode a rule in the types of an operator's schema; a compiler may trace its numbers."""
    choices = " ".join([str(int(getattr(rule, name))) for name in CHOICES])
    return choices, rule.ring, [getattr(rule, name) for name in NUMBERS]


def decode(choices: str, ring: int, numbers: Sequence[float]) -> Rule:
    """Return the rule for the results of `encode`."""
    given: dict[str, Any] = dict(zip(NUMBERS, numbers, strict=True))
    return _read(choices)._replace(ring=ring, **given)


@lru_cache
def _read(choices: str) -> Rule:
    pairs = zip(CHOICES, choices.split(), strict=True)
    return Rule(**{name: _KINDS[name](int(word)) for name, word in pairs})


def c_header() -> str:
    """Return the text of cpu/rule.h: a rule's enums, the forms of constants, and a rule's fields."""
    kinds = [kind for kind in _KINDS.values() if issubclass(kind, IntEnum)]
    words = [f"enum {{ {', '.join(word.name for word in kind)} }};" for kind in kinds]
    words.append(f"enum {{ GIVEN, {', '.join(form.name for form in Form)} }};")
    fields = f"int64_t ring; double {', '.join(NUMBERS)}; int32_t {', '.join(CHOICES)};"
    remark = "/* Generated by python src/ultralif/ops/rule.py from Rule and Form, which explain the names. */"
    return "\n".join([remark, "", *words, "", f"#define RULE_FIELDS {fields}", ""])


def spelled_out(constants: Constants, rule: Rule) -> tuple[Constants, Rule]:
    """Return the constants with a temperature and height in place of a sharpness."""
    if not rule.sharp:
        return constants, rule
    sharpness, threshold = value_of(constants.eps), value_of(constants.threshold)
    half = sharpness / 2
    height = 1 / (torch.tanh(half) if isinstance(half, Tensor) else math.tanh(half))
    return constants._replace(eps=threshold / sharpness, amplitude=height), rule._replace(sharp=False)


if __name__ == "__main__":
    from pathlib import Path

    Path(__file__).with_name("cpu").joinpath("rule.h").write_text(c_header())
