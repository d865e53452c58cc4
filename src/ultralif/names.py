"""Names shared by the whole library: modes, neurons and groups of neurons, and how a name is looked up."""

import difflib
from collections.abc import Iterable
from typing import Literal, get_args

from ultralif.errors import InputError

__all__ = [
    *("BASELINES", "ELSEWHERE", "GROUPS", "MODES", "NEURON_NAMES", "ULTRA", "Mode"),
    *("find_name", "similar"),
]

Mode = Literal["soft", "hard", "tropical"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""The modes of a neuron, in the order in which tables show them."""
ULTRA = ("UltraLIF", "UltraPLIF", "UltraDLIF", "UltraDPLIF")
"""The paper's own neurons."""
BASELINES = ("LIF", "PLIF", "AdaLIF", "FullPLIF", "DSpike", "DSpikePlus")
"""The baseline neurons that the paper compares with its own."""
NEURON_NAMES = (*BASELINES, "SoftLIF", *ULTRA)
"""All neurons of the library, spelled as in `ultralif.nn`."""
GROUPS = {"all": NEURON_NAMES, "paper": (*BASELINES, *ULTRA), "ultra": ULTRA, "baselines": BASELINES}
"""Names for several neurons: all of them, the paper's ten, its own four, and its six baselines."""


_TIME_CONSTANT = "leak = 1 - 1 / tau for SpikingJelly's tau, and leak = exp(-dt / tau) elsewhere"

ELSEWHERE: dict[str, tuple[str, str]] = {
    "alpha": ("synapse", "for the alpha of a surrogate function, use surrogate_slope"),
    "beta": ("leak", ""),
    "decay": ("leak", ""),
    "hard_reset": ("reset", "reset='zero' for a hard reset, reset='subtract' for a soft one"),
    "init_tau": ("leak", _TIME_CONSTANT),
    "learn_beta": ("learn_leak", ""),
    "reset_delay": ("delayed_reset", ""),
    "reset_mechanism": ("reset", "'zero', 'subtract' or 'none'"),
    "slope": ("surrogate_slope", ""),
    "spike_grad": ("surrogate", "'sigmoid', 'atan', 'triangle' or 'superspike'"),
    "surrogate_function": ("surrogate", "'sigmoid', 'atan', 'triangle' or 'superspike'"),
    "surrogate_gradient": ("surrogate", "'sigmoid', 'atan', 'triangle' or 'superspike'"),
    "tau": ("leak", _TIME_CONSTANT),
    "tau_mem": ("leak", _TIME_CONSTANT),
    "tau_syn": ("synapse", "synapse = exp(-dt / tau) for a time constant tau"),
    "temperature": ("eps", ""),
    "v_th": ("threshold", ""),
    "v_threshold": ("threshold", ""),
}
"""Neuron argument names in other libraries, with our name and a note."""


def find_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a known name; case, hyphens and underscores are ignored, and ``+`` means ``plus``.

    Args:
        kind: what is being looked up, for the error message.
        name: as the user wrote it.
        known: the existing names.

    Example:
        >>> find_name("neuron", "ultra_dlif", NEURON_NAMES), find_name("neuron", "dspike+", NEURON_NAMES)
        ('UltraDLIF', 'DSpikePlus')
    """
    known = tuple(known)
    if name in known:  # the usual case: thousands of configs are created with exact names
        return name
    spelled = {_plain(each): each for each in known}
    if _plain(name) in spelled:
        return spelled[_plain(name)]
    near = similar(_plain(name), spelled)
    hint = f"did you mean {spelled[near]}?" if near else f"choose one of {', '.join(spelled.values())}"
    raise InputError(f"{kind} {name!r} is not known; {hint}")


def similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, judged by initials or similar spelling.

    Example:
        >>> similar("lr", ["epochs", "learning_rate"]), similar("--epoch", ["--epochs"]), similar("x", ["y"])
        ('learning_rate', '--epochs', None)
    """
    known = list(known)
    for each in known:
        words = each.lstrip("-").replace("-", "_").split("_")
        if len(words) > 1 and name.lstrip("-") == "".join(word[:1] for word in words):
            return each
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def _plain(name: str) -> str:
    return name.lower().replace("+", "plus").replace("-", "").replace("_", "")
