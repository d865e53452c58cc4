"""What every fast implementation computes: one rule, four constants, and their derivatives.

All neurons of `ultralif.functional` are one recurrence with three choices. With V the membrane after the
last step, I the current, k = 1/eps:

    P = lse(V + log leak, I)         UltraLIF                  (membrane "lse"; its limit "max")
        leak * V + I                 LIF, DSpike, SoftLIF      ("add")
        lse(ring of V) + I           UltraDLIF                 (ring > 0, with "lse" or "max")
    z = k (P - threshold)
    s = 1/2 + A (sigmoid(z) - 1/2)   soft;  P > threshold      hard, with the derivative of the soft one
    V = P (1 - s) + v_reset s

Going back, with gs and gV the gradients for s and V, and s' = A k sigmoid'(z):

    h = gs + gV (v_reset - P)        all that s feeds; only gs where the reset is not differentiated
    G = h s' + gV (1 - s)            all that P feeds
    threshold: -h s'     eps: -h s' z + G dP/deps     A: h (sigmoid(z) - 1/2)

and dP/dV, dP/dI, dP/dleak, dP/deps are those of the membrane: for "lse", p, 1 - p, p / leak and the entropy
of p, where p = exp(k (V + log leak - P)) is the share of the past.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor

__all__ = ["Constants", "Implementation", "LeakForm", "Membrane", "Rule", "decode", "encode"]

Membrane = Literal["lse", "max", "add"]
LeakForm = Literal["none", "factor", "shift"]


class Constants(NamedTuple):
    """The constants of a layer, each a number or 1-D with a length L that divides the number F of features.

    Entry ``l`` of a tensor serves the features from ``l * F / L`` on: L = F is one value for each neuron,
    L = M one for each member of a stack. A shorter length divides a longer one.
    """

    eps: Tensor | float
    leak: Tensor | float
    threshold: Tensor | float
    amplitude: Tensor | float

    def longest(self) -> int:
        """Return the length of the longest."""
        return max(c.numel() if isinstance(c, Tensor) else 1 for c in self)

    def summed(self, grads: Tensor) -> Tensor:
        """Sum gradients ``[4, ..., F]`` over the features that share a constant, to ``[4, L]``."""
        longest = self.longest()
        return grads.view(4, -1, longest, grads.shape[-1] // longest).sum((1, 3))


class Rule(NamedTuple):
    """How a layer integrates and fires."""

    membrane: Membrane
    soft: bool
    through_reset: bool = True
    """Differentiate the reset."""
    unit: bool = True
    """The height A is 1, as for every neuron but those with a surrogate of another height."""
    rate: bool = False
    """Return the mean over time in place of the spikes."""
    centered: bool = False
    leak_form: LeakForm = "none"
    """How the leak acts on a ring: ``V * leak``, ``V + log(leak)`` or not at all."""
    adapt: bool = False
    """AdaLIF: the state is membrane, adaptation and last spike, and the threshold moves."""
    adapt_late: bool = False
    ring: int = 0
    """Neurons on a ring, the last axis; 0: no neighbours."""
    v_reset: float = 0.0
    adapt_strength: float = 0.0
    adapt_decay: float = 0.0

    @property
    def states(self) -> int:
        """How many tensors the state is made of."""
        return 3 if self.adapt else 1


_CHOICES = Rule._fields.index("ring")


def encode(rule: Rule) -> tuple[str, int, list[float]]:
    """Write a rule as an operator's schema can hold it; numbers stay numbers, which a compiler may trace."""
    choices = " ".join([str(value) for value in rule[:_CHOICES]])
    return choices, rule.ring, [rule.v_reset, rule.adapt_strength, rule.adapt_decay]


def decode(choices: str, ring: int, numbers: Sequence[float]) -> Rule:
    """Read what `encode` wrote."""
    v_reset, strength, decay = numbers
    return _read(choices)._replace(ring=ring, v_reset=v_reset, adapt_strength=strength, adapt_decay=decay)


@lru_cache
def _read(choices: str) -> Rule:
    words: dict[str, Any] = {"True": True, "False": False}
    return Rule(*(words.get(word, word) for word in choices.split()))


class Implementation(Protocol):
    """A module with the recurrence and its derivative. None is rest, or no gradient."""

    def forward(
        self, current: Tensor, state: Tensor | None, constants: Constants, rule: Rule
    ) -> tuple[Tensor, Tensor]:
        """Return the spikes of ``[T, B, F]`` (or their mean, ``[B, F]``) and the last state.

        Args:
            current: ``[T, B, F]``, T and B and F at least 1.
            state: membrane, and for AdaLIF adaptation and last spike, ``[1 or 3, B, F]``.
            constants: tensors are in the dtype of the membrane.
            rule: what to compute.
        """

    def backward(
        self,
        grad_out: Tensor | None,
        grad_state: Tensor | None,
        current: Tensor,
        state: Tensor | None,
        constants: Constants,
        rule: Rule,
        learn: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients for the current, for the state, and for the constants.

        The second is empty for a layer at rest. The last is ``[4, L]`` for the length L of the longest
        constant; it is empty where ``learn`` is false.
        """
