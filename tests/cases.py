"""The table of neurons and their options that all tests go through, those of kernels included."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

import oracle
import ultralif as ul
from ultralif import functional
from ultralif.names import NEURON_NAMES


@dataclass(frozen=True)
class Case:
    """One neuron with its arguments, which its module, its function and its oracle share."""

    neuron: str
    formula: str
    constants: dict[str, Any]
    mode: str | None = None  # None: the function has no modes
    features: tuple[int, ...] = (4,)
    surrogate: dict[str, Any] = field(default_factory=dict)  # what only shapes the backward pass

    @property
    def exact(self) -> bool:
        """Whether backward is the derivative of forward."""
        return self.mode == "soft"

    def module(self, **options: Any) -> ul.Neuron:
        neuron = ul.NEURONS[self.neuron](**{**self.constants, **self.surrogate, **options})
        if self.mode is not None:
            neuron.mode = self.mode
        return neuron

    def function(self, current: Tensor, v0: Tensor | None = None, **constants: Any) -> tuple[Tensor, Any]:
        """Run the pure function; constants replace those of the case."""
        state = v0
        if self.formula == "adalif" and v0 is not None:
            state = functional.AdaptiveState(v0, torch.zeros_like(v0), torch.zeros_like(v0))
        return getattr(functional, self.formula)(current, state, **{**self.arguments, **constants})

    def oracle(self, current: np.ndarray, v0: np.ndarray | None = None, **constants: Any) -> oracle.Trace:
        """Run the numpy version."""
        v0 = np.zeros_like(current[0]) if v0 is None else v0
        return getattr(oracle, self.formula)(current, v0, **{**self.constants, **self._mode(), **constants})

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments of the function."""
        return {**self.constants, **self.surrogate, **self._mode()}

    def current(self, timesteps: int, batch: int = 2, scale: float = 1.5) -> Tensor:
        """Some currents on both sides of the threshold, the same on every machine."""
        shape = (timesteps, batch, *self.features)
        return scale * torch.sin(1.3 * torch.arange(1.0, 1 + np.prod(shape))).reshape(shape)

    def _mode(self) -> dict[str, str]:
        return {} if self.mode is None else {"mode": self.mode}


_BASE = {"leak": 0.8, "threshold": 0.4, "v_reset": -0.1}
_ULTRA = {"eps": 0.7, **_BASE}
_SPATIAL = {"eps": 0.7, "threshold": 0.4, "v_reset": -0.1}
_DSPIKE = {**_BASE, "sharpness": 3.0}
_SIGMOID = {"surrogate": "sigmoid", "surrogate_slope": 3.0}
_ADAPT = {**_BASE, "adapt_strength": 0.6, "adapt_decay": 0.7}

PLAIN: dict[str, Case] = {
    **{f"UltraLIF-{mode}": Case("UltraLIF", "ultralif", _ULTRA, mode) for mode in ul.UltraLIF.modes},
    "UltraLIF-delayed": Case("UltraLIF", "ultralif", {**_ULTRA, "delayed_reset": True}, "soft"),
    "UltraLIF-delayed-hard": Case("UltraLIF", "ultralif", {**_ULTRA, "delayed_reset": True}, "hard"),
    "UltraPLIF": Case("UltraPLIF", "ultralif", _ULTRA, "soft"),
    **{f"UltraDLIF-{mode}": Case("UltraDLIF", "ultradlif", _SPATIAL, mode) for mode in ul.UltraDLIF.modes},
    "UltraDLIF-centered": Case("UltraDLIF", "ultradlif", {**_SPATIAL, "centered": True}, "soft"),
    "UltraDLIF-delayed": Case("UltraDLIF", "ultradlif", {**_SPATIAL, "delayed_reset": True}, "soft"),
    "UltraDPLIF": Case("UltraDPLIF", "ultradlif", _ULTRA, "soft"),
    "UltraDPLIF-tropical": Case("UltraDPLIF", "ultradlif", _ULTRA, "tropical"),
    "UltraDPLIF-hard": Case("UltraDPLIF", "ultradlif", _ULTRA, "hard"),
    "SoftLIF": Case("SoftLIF", "softlif", _ULTRA, "soft"),
    "SoftLIF-hard": Case("SoftLIF", "softlif", _ULTRA, "hard"),
    "DSpike-hard": Case("DSpike", "dspike", _DSPIKE, "hard"),
    "DSpike-soft": Case("DSpike", "dspike", _DSPIKE, "soft"),
    "DSpikePlus-hard": Case("DSpikePlus", "dspike", _DSPIKE, "hard"),
    "DSpikePlus-soft": Case("DSpikePlus", "dspike", _DSPIKE, "soft"),
    "LIF": Case("LIF", "lif", _BASE, surrogate=_SIGMOID),
    "LIF-atan": Case("LIF", "lif", _BASE),
    "PLIF": Case("PLIF", "lif", _BASE, surrogate=_SIGMOID),
    "FullPLIF": Case("FullPLIF", "lif", _BASE, surrogate=_SIGMOID),
    "AdaLIF": Case("AdaLIF", "adalif", _ADAPT, surrogate=_SIGMOID),
}

_SOFT = {**_BASE, **_SIGMOID}
_LATE = {"reset": "subtract", "delayed_reset": True}
OPTIONS: dict[str, Case] = {
    "LIF-soft": Case("LIF", "lif", _SOFT, "soft"),
    "LIF-soft-atan": Case("LIF", "lif", {**_SOFT, "surrogate": "atan", "reset": "subtract"}, "soft"),
    "LIF-soft-triangle": Case("LIF", "lif", {**_SOFT, "surrogate": "triangle", **_LATE}, "soft"),
    "LIF-subtract-late": Case("LIF", "lif", {**_BASE, **_LATE}, "hard"),
    "AdaLIF-soft": Case("AdaLIF", "adalif", {**_ADAPT, **_SIGMOID}, "soft"),
    "AdaLIF-subtract-late": Case("AdaLIF", "adalif", {**_ADAPT, **_LATE, "threshold": 0.6}, "hard"),
    "DSpike-subtract": Case("DSpike", "dspike", {**_DSPIKE, "reset": "subtract"}, "soft"),
    "SoftLIF-saturate": Case("SoftLIF", "softlif", {**_ULTRA, "reset": "saturate", "v_sat": 0.6}, "soft"),
    "UltraLIF-subtract": Case("UltraLIF", "ultralif", {**_ULTRA, "reset": "subtract"}, "soft"),
    "UltraLIF-none": Case("UltraLIF", "ultralif", {**_ULTRA, "reset": "none", "threshold": 0.9}, "soft"),
    **{
        f"UltraLIF-saturate-{mode}": Case(
            "UltraLIF", "ultralif", {**_ULTRA, "reset": "saturate", "v_sat": 0.7}, mode
        )
        for mode in ul.UltraLIF.modes
    },
    "UltraDPLIF-channels": Case(
        "UltraDPLIF", "ultradlif", {**_ULTRA, "coupled_axis": -2, "reset": "subtract"}, "soft", (3, 2)
    ),
}

CASES = PLAIN | OPTIONS
EXACT = {name: case for name, case in CASES.items() if case.exact}


def membrane(state: Any) -> Tensor:
    """Return the membrane of a function's state, which for most is the state."""
    return state if isinstance(state, Tensor) else state.v


assert {case.neuron for case in CASES.values()} == set(NEURON_NAMES), "a neuron has no case"
