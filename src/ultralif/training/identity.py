"""The identity of a run: a hash of what differs from ultralif 0.1.0, whose defaults are kept here for good.

A stored config says only what differs from these tables, so that neither a new option nor another default
changes the name or the meaning of a run. To add a field or an option, add it here with the value that gives
the behaviour of 0.1.0. To change a default, change it in the neuron or in `RunConfig` and leave these tables
as they are.
"""

import difflib
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, cast

from ultralif.errors import InputError

__all__ = [
    "FIELDS",
    "OPTIONS",
    "READINGS",
    "SCHEMA",
    "arguments",
    "changed_options",
    "check_options",
    "document_id",
    "example",
    "first_document",
    "known_options",
]

SCHEMA = 2
"""Version of a stored config: 1 has all 45 fields of 0.1.0, 2 has what differs from the tables below."""

FIRST_FIELDS: dict[str, Any] = {
    "dataset": "digits",
    "neuron": "UltraLIF",
    "timesteps": 10,
    "seed": 42,
    "epochs": 100,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "sparsity": 0.0,
    "volume_reg": 0.0,
    "precision": "float32",
    "validation": 0.0,
    "hidden": [64],
    "readout": "linear",
    "orthogonal": False,
    "encoding": "rate",
    "gain": 0.5,
    "augment": None,
    "split": "tonic",
    "binary_events": False,
    "mode": None,
    "hard_epochs": 0,
    "eps_min": 0.1,
    "eps_max": 20.0,
    "eps_speed": 1.0,
    "anneal": None,
    "per_neuron": False,
}
"""The fields of a config of 0.1.0 with their values then."""
FIELDS: dict[str, Any] = FIRST_FIELDS | {
    "optimizer": "adam",
    "weight_decay": 0.0,
    "warmup_epochs": 0,
    "label_smoothing": 0.0,
    "loss": "mean",
    "model": "mlp",
    "width": 1.0,
    "channels_last": False,
    "flip": False,
    "shift": 0,
    "cutout": 0,
    "mixup": 0.0,
    "hard_share": 0.0,
    "settle_batches": 0,
    "track_test": False,
}
"""All fields of a config; one that 0.1.0 did not have has the value that gives its behaviour."""

_EVERY = {
    "threshold": 0.5,
    "learn_threshold": False,
    "v_reset": 0.0,
    "reset": "zero",
    "delayed_reset": False,
    "clamp": "inward",
    "synapse": None,
}
_LEAKY = {"leak": 0.9, "learn_leak": False, "leak_parameter": "logit"}
_ULTRA = _EVERY | {"eps": 1.0, "learn_eps": True, "detach_reset": None}
_RING = {
    "neighborhood": "ring",
    "centered": False,
    "coupling": "membrane",
    "coupled_axis": -1,
    "leak_form": "factor",
}
_LIF = {
    **_EVERY,
    **_LEAKY,
    "detach_reset": False,
    "surrogate": "sigmoid",
    "surrogate_slope": 10.0,
    "learn_slope": False,
    "scaled_surrogate": None,
    "slope_range": [0.05, 100.0],
}
_DSPIKE = {
    **_EVERY,
    **_LEAKY,
    "detach_reset": False,
    "sharpness": 4.0,
    "learn_sharpness": True,
    "sharpness_range": [0.1, 100.0],
    "sharpness_parameter": "log",
    "clipped": False,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "LIF": _LIF,
    "PLIF": _LIF | {"learn_leak": True},
    "AdaLIF": _LIF | {"adapt_strength": 0.1, "adapt_decay": 0.9, "adapt_late": False},
    "FullPLIF": _LIF | {"learn_leak": True, "learn_threshold": True},
    "DSpike": _DSPIKE,
    "DSpikePlus": _DSPIKE | {"learn_leak": True},
    "SoftLIF": _ULTRA | _LEAKY | {"v_sat": 2.0},
    "UltraLIF": _ULTRA | _LEAKY | {"v_sat": 2.0},
    "UltraPLIF": _ULTRA | _LEAKY | {"v_sat": 2.0, "learn_leak": True},
    "UltraDLIF": _ULTRA | _RING | _LEAKY,
    "UltraDPLIF": _ULTRA | _RING | _LEAKY | {"learn_leak": True},
}
"""The options of each neuron of 0.1.0 with the values that give its behaviour then."""

_FREE = {"threshold": 0.0, "clamp": "dead"}
_FROM_0_9 = {"leak": 0.7109495026250039}  # sigmoid(0.9): there 0.9 is the parameter's first value
_BOUNDED = {
    "clipped": True,
    "clamp": "dead",
    "sharpness": 4.0181499279178094,  # softplus(4)
    "sharpness_range": [0.5, 50.0],
    "sharpness_parameter": "softplus",
}
_RELEASED: dict[str, dict[str, Any]] = {
    "PLIF": _FROM_0_9,
    "FullPLIF": _FROM_0_9 | {"threshold": 0.6224593312018546},  # sigmoid(0.5)
    "DSpike": _BOUNDED,
    "DSpikePlus": _BOUNDED | _FROM_0_9,
    "SoftLIF": _FREE,
    "UltraLIF": _FREE,
    "UltraPLIF": _FREE | {"leak_parameter": "log"},
    "UltraDLIF": _FREE | {"coupling": "spike"},
    "UltraDPLIF": _FREE | _FROM_0_9 | {"coupling": "spike"},
}
READINGS: dict[str, dict[str, dict[str, Any]]] = {
    "0.1.0": {},
    "released": _RELEASED,
    "ablation": _RELEASED
    | {
        "UltraLIF": {"threshold": 1.0, "clamp": "dead"},
        "UltraPLIF": {"threshold": 1.0, "clamp": "dead", "leak_parameter": "log"},
        "UltraDLIF": {"threshold": 1.0, "clamp": "dead"},
        "UltraDPLIF": {"threshold": 1.0, "clamp": "dead"} | _FROM_0_9,
    },
}
"""Differences of a reading's neurons from 0.1.0: as it is written, as its author's code has
them, and as they are in that code's study of the temperature."""

RESERVED = {
    "mode": "the field mode",
    "eps_range": "the fields eps_min and eps_max",
    "parameter_shape": "the field per_neuron",
    "time_constants": "ul.train with a network of your own, whose neurons have them",
    "batch_first": "nothing: batches of a run have time first",
    "check_finite": "nothing: a run that diverges is noticed without it",
    "backend": "nothing: it does not change a run",
}
"""Arguments of neurons that are no options of a run, and what says the same."""
OF_SCHEMA_1 = (
    *("eps", "learn_eps", "leak", "learn_leak", "threshold", "learn_threshold", "v_reset"),
    *("surrogate_slope", "learn_slope", "scaled_surrogate", "sharpness", "learn_sharpness"),
    *("adapt_strength", "adapt_decay", "adapt_late", "delayed_reset", "centered", "leak_form"),
)
"""The options that were fields in 0.1.0; None was, and is, the same as not to give them."""
_LEARNED = {"slope": "surrogate_slope"}


def document_id(document: Mapping[str, Any]) -> str:
    """Return the name of a run from its stored config, of any schema: 12 digits of a hash of all it says."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


def first_document(fields: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config that 0.1.0 stored for these values: all of its fields, whatever their values."""
    values = {**FIRST_FIELDS, **dict.fromkeys(OF_SCHEMA_1), **fields, **options}
    return {"schema": 1, **json.loads(json.dumps(values))}


def known_options() -> set[str]:
    """Return the names of the options that the neurons of 0.1.0, and those that are registered, have."""
    names = {name for options in OPTIONS.values() for name in options}
    network = sys.modules.get("ultralif.nn.network")  # without it nothing is registered
    for neuron in network.NEURONS if network else ():
        names |= set(_live(neuron))
    return names - RESERVED.keys()


def check_options(neuron: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the form in which they are stored, or refuse a name or a value that no neuron has.

    Args:
        neuron: the neuron's name.
        options: by the names of the neuron's arguments.
    """
    checked = {}
    known = known_options() if options else set()
    table = OPTIONS.get(neuron) or (_live(neuron) if options else {})
    for name, value in options.items():
        if name in RESERVED:
            raise InputError(f"{name} is not an option of a run; use {RESERVED[name]}")
        if name not in known and name not in _live(neuron):
            raise _unknown(neuron, name)
        if value is not None or name not in OF_SCHEMA_1:
            checked[name] = _plain(name, value, table[name] if name in table else example(name))
    return dict(sorted(checked.items()))


def changed_options(neuron: str, options: Mapping[str, Any], defaults: str) -> dict[str, Any]:
    """Return what the options of a neuron are, where they differ from 0.1.0.

    Args:
        neuron: the neuron's name.
        options: those that are given.
        defaults: where the others come from: ``current``, or the name of a reading.
    """
    base = OPTIONS.get(neuron)
    if base is None:  # a neuron that 0.1.0 did not have: what is given is all that is known
        _check_names(neuron, options, _live(neuron))
        return dict(options)
    if defaults in READINGS:
        _check_names(neuron, options, base)
        resolved = READINGS[defaults].get(neuron, {}) | dict(options)
    else:
        live = _live(neuron)
        _check_names(neuron, options, live)
        resolved = {name: value for name, value in live.items() if name in base} | dict(options)
    return {name: value for name, value in sorted(resolved.items()) if value != base.get(name, _UNKNOWN)}


def arguments(neuron: str, options: Mapping[str, Any], defaults: str) -> dict[str, Any]:
    """Return the keyword arguments that build a neuron with these options, see `changed_options`."""
    live = _live(neuron)
    _check_names(neuron, options, live)
    if defaults == "current" or neuron not in OPTIONS:
        return dict(options)
    table = OPTIONS[neuron] | READINGS[defaults].get(neuron, {})
    base = {name: value for name, value in table.items() if name in live}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in (base | dict(options)).items()}


_UNKNOWN = object()


@cache
def _signature(kind: Any) -> dict[str, Any]:
    """Return the options of a neuron's class with their defaults, as they are now."""
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in RESERVED or parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        default = parameter.default
        learned = name.removeprefix("learn_")
        if learned != name and default is None:
            default = _LEARNED.get(learned, learned) in kind.learns
        found[name] = list(default) if isinstance(default, tuple) else default
    return found


def _live(neuron: str) -> dict[str, Any]:
    from ultralif.nn import find_neuron

    return _signature(cast(Any, find_neuron(neuron)))


def example(name: str) -> Any:
    """Return the value of an option in 0.1.0 for the first neuron that has it; None if none has."""
    return next((options[name] for options in OPTIONS.values() if name in options), None)


def _check_names(neuron: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in options:
        if name not in known and name not in _live(neuron):
            if name in known_options():
                raise InputError(f"{name} is not an argument of {neuron}; leave it out for this neuron")
            raise _unknown(neuron, name)


def _unknown(neuron: str, name: str) -> InputError:
    near = difflib.get_close_matches(name, [*FIELDS, *_live(neuron)], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its options are {', '.join(sorted(_live(neuron)))}"
    return InputError(f"{name!r} is not a field of a run's config, nor an option of {neuron}; {hint}")


def _plain(name: str, value: Any, default: Any) -> Any:
    """Return an option's value as JSON has it, in the type of its default."""
    if isinstance(value, list | tuple) and (default is None or isinstance(default, list)):
        return [_plain(name, entry, None) for entry in value]
    if value is None and not isinstance(default, float | str | list):
        return None
    if isinstance(value, bool):
        if default is None or isinstance(default, bool):
            return value
    elif isinstance(value, str):
        if default is None or isinstance(default, str):
            return value
    elif isinstance(value, Real) and not isinstance(default, bool | str | list):
        return _number(name, value, whole=isinstance(default, int))
    raise InputError(f"{name} must be {_KINDS.get(type(default), 'a plain value')}, got {value!r}")


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "a name",
    list: "a list of numbers",
}


def _number(name: str, value: Real, *, whole: bool) -> float | int:
    if whole and isinstance(value, Integral):
        return int(value)
    try:
        number = float(value) + 0.0  # so that -0.0 is 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or whole:
        raise InputError(f"{name} must be {_KINDS[int if whole else float]}, got {value!r}")
    return number
