"""Arguments of any neuron as flags: ``--eps 0.5 --no-learn-eps``."""

from collections.abc import Collection, Sequence
from typing import Any

from ultralif.errors import InputError
from ultralif.names import ELSEWHERE, similar
from ultralif.training.identity import example, known_options

__all__ = ["OPTIONS", "describe_options", "split_options"]

_SWITCH = {"True": True, "False": False, "None": None}


OPTIONS: dict[str, tuple[str, str, str]] = {
    "adapt_decay": ("FLOAT", "0.9", "decay of AdaLIF's adaptation"),
    "adapt_late": ("", "False", "AdaLIF: adapt by the spike of the step before"),
    "adapt_strength": ("FLOAT", "0.1", "of AdaLIF's adaptation"),
    "centered": ("", "False", "UltraD: take eps log 3 off, so that an undriven membrane does not drift"),
    "clamp": ("inward|dead", "inward", "gradient of a learned constant at the end of its range"),
    "clipped": ("", "True", "clip the DSpike curve to [0, 1]"),
    "coupled_axis": ("INT", "-1", "UltraD: the axis of neighbours; -3, the channels of pictures"),
    "coupling": ("membrane|spike", "membrane", "UltraD: as the paper writes it, or as its code has it"),
    "delayed_reset": ("", "False", "reset by the spike of the step before"),
    "detach_reset": ("", "None", "do not differentiate the reset; None: where spikes are binary"),
    "eps": ("FLOAT", "0.2", "temperature of SoftLIF and the Ultra neurons"),
    "leak": ("FLOAT", "0.9", "decay factor of the membrane in a time step, in (0, 1)"),
    "leak_form": ("factor|shift", "factor", "UltraDPLIF: multiply by the leak, or add its logarithm"),
    "leak_parameter": ("logit|log", "logit", "a learned leak is a sigmoid, or an exponential"),
    "learn_eps": ("", "True", ""),
    "learn_leak": ("", "True for PLIF, FullPLIF, DSpikePlus, UltraPLIF, UltraDPLIF", ""),
    "learn_sharpness": ("", "True", ""),
    "learn_slope": ("", "False", ""),
    "learn_threshold": ("", "True for FullPLIF", ""),
    "neighborhood": ("ring|grid", "ring", "UltraD: neighbours on one axis, or on the two of a picture"),
    "reset": ("zero|subtract|none|saturate", "zero", "the membrane after a spike"),
    "scaled_surrogate": ("", "None", "multiply the surrogate's derivative by its slope"),
    "sharpness": ("FLOAT", "4.0", "of the DSpike curve"),
    "sharpness_parameter": ("log|softplus", "log", "a learned sharpness is an exponential, or a softplus"),
    "sharpness_range": ("FLOAT,FLOAT", "0.1,100.0", "of a learned one"),
    "slope_range": ("FLOAT,FLOAT", "0.05,100.0", "of a learned slope"),
    "surrogate": ("sigmoid|atan|triangle", "sigmoid", "derivative of a binary spike of LIF and its kin"),
    "surrogate_slope": ("FLOAT", "10.0", "1 / width of the surrogate"),
    "synapse": ("FLOAT", "None", "decay of a synaptic current before the membrane; None: there is none"),
    "threshold": ("FLOAT", "0.5", "a spike is a membrane above it"),
    "v_reset": ("FLOAT", "0.0", "the membrane after a spike, with --reset zero"),
    "v_sat": ("FLOAT", "2.0", "ceiling of the membrane, with --reset saturate"),
}
"""Form, default and meaning of each option; written down, since asking the neurons would import torch."""


def describe_options() -> str:
    """Return the part of a command's help that lists the options."""
    lines = []
    for name, (form, default, meaning) in OPTIONS.items():
        flag = f"--{_flag(name)} {form}".rstrip()
        lines.append(f"  {flag:44} {meaning}{' ' if meaning else ''}(default: {default})")
    extra = sorted(known_options() - OPTIONS.keys())
    lines += [f"  --{_flag(name)}" for name in extra]
    return "\n".join(
        ["Options of the neuron, for those that have them; --no-... for those without a value:", *lines]
    )


def split_options(argv: Sequence[str], fields: Collection[str]) -> tuple[list[str], dict[str, Any]]:
    """Split arguments into the command's own and the options of the neuron.

    Args:
        argv: the arguments of a command.
        fields: the names of the command's own flags.

    Example:
        >>> split_options(["--eps", "0.5", "--epochs", "3", "--no-learn-eps"], ["epochs"])
        (['--epochs', '3'], {'eps': 0.5, 'learn_eps': False})
    """
    known = known_options() - set(fields)
    words, options = [], {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        flag, _, joined = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or (name not in known and name.removeprefix("no_") not in known):
            _check_spelling(flag, name, fields, known)
            words.append(word)
        elif name not in known:
            options[name.removeprefix("no_")] = False
        else:
            values = [joined] if joined else _values(name, rest)
            options[name] = _value(flag, example(name), values)
    return words, options


def _values(name: str, rest: list[str]) -> list[str]:
    """Take the values that follow a flag."""
    most = len(rest) if isinstance(example(name), list) else 1
    values: list[str] = []
    while rest and len(values) < most and not rest[0].startswith("--"):
        values.append(rest.pop(0))
    return values


def _value(flag: str, default: Any, values: Sequence[str]) -> Any:
    """Return the value after a flag, in the type of the option's default."""
    if isinstance(default, list):
        return [_number(flag, part) for value in values for part in value.split(",") if part]
    if not values:
        if isinstance(default, float | str):
            raise InputError(f"{flag} needs a value")
        return True
    (value,) = values
    switch = value.capitalize()
    if isinstance(default, bool):
        if switch not in _SWITCH:
            raise InputError(f"{flag} must be one of {', '.join(_SWITCH)}, got {value!r}")
        return _SWITCH[switch]
    if switch == "None" or (default is None and switch in _SWITCH):
        return _SWITCH[switch]
    if default is None:
        try:
            return float(value)
        except ValueError:
            return value
    return value if isinstance(default, str) else _number(flag, value)


def _number(flag: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{flag} takes a number, got {value!r}") from None


def _check_spelling(flag: str, name: str, fields: Collection[str], known: Collection[str]) -> None:
    """Refuse a flag that is not the command's, but nearly that of an option."""
    if not flag.startswith("--") or name in fields or name.removeprefix("no_") in fields:
        return
    if name in ELSEWHERE:
        ours, remark = ELSEWHERE[name]
        raise InputError(f"{flag} is called --{_flag(ours)} here{': ' if remark else ''}{remark}")
    near = similar(name, [*fields, *known])
    if near is not None and near in known:
        raise InputError(f"{flag} is not known; did you mean --{_flag(near)}?")


def _flag(name: str) -> str:
    return name.replace("_", "-")
