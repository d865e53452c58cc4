"""What a run is: every choice of an experiment, with the paper's as defaults. Needs no torch."""

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ultralif.errors import InputError, check_choice

__all__ = ["SCHEMA", "RunConfig"]

SCHEMA = 1
"""Version of the fields below; it stands in every config that is written."""

NEURON_NAMES = (
    "LIF",
    "PLIF",
    "AdaLIF",
    "FullPLIF",
    "DSpike",
    "DSpikePlus",
    "SoftLIF",
    "UltraLIF",
    "UltraPLIF",
    "UltraDLIF",
    "UltraDPLIF",
)
"""All neurons, spelled as in `ultralif.nn`, which this module does not import."""

Encoding = Literal["rate", "rate-normalized", "constant"]
Readout = Literal["linear", "spiking"]
Schedule = Literal["cosine", "constant"]
Precision = Literal["float32", "tf32", "bfloat16", "float64"]
Partition = Literal["tonic", "spikingjelly"]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run. Two runs with equal fields are the same run: their hash is its name."""

    dataset: str = "digits"
    """One of those that `ultralif data list` shows."""
    neuron: str = "UltraLIF"
    """A neuron's name."""
    timesteps: int = 10
    """Time steps T."""
    seed: int = 42
    """Of initialisation, order and spikes."""

    epochs: int = 100
    """Passes over the data."""
    batch_size: int = 128
    """Samples a step."""
    learning_rate: float = 1e-3
    """Of Adam."""
    schedule: Schedule = "cosine"
    """How the learning rate falls from epoch to epoch."""
    sparsity: float = 0.0
    """lambda: weight of the mean spike rate in the loss."""
    volume_reg: float = 0.0
    """alpha: weight of the volume regulariser of the first layer."""
    precision: Precision = "float32"
    """Of the arithmetic; tf32 and bfloat16 concern the matrix products."""
    validation: float = 0.0
    """Part of the training set that is held out; model selection looks at nothing else."""

    hidden: tuple[int, ...] = (64,)
    """Neurons of each hidden layer."""
    readout: Readout = "linear"
    """A linear map of the mean spikes, or the mean spikes of a last spiking layer."""
    orthogonal: bool = False
    """Begin with orthogonal weights in the first layer."""

    encoding: Encoding = "rate"
    """How images become sequences."""
    gain: float = 0.5
    """Spike probability of a white pixel."""
    augment: bool | None = None
    """Crop and flip images. None: for CIFAR-10."""
    split: Partition = "tonic"
    """Which of DVS-Gesture's published splits."""
    binary_events: bool = False
    """Cut event counts to 0 and 1."""

    eps: float | None = None
    """Temperature at the start. None, here and below: the neuron's own."""
    learn_eps: bool | None = None
    eps_min: float = 0.1
    """Where a learned temperature is kept."""
    eps_max: float = 20.0
    eps_speed: float = 1.0
    """Factor of the learning rate of the temperature."""
    anneal: tuple[float, float] | None = None
    """Let the temperature go from the first value to the second, geometrically over the epochs."""
    hard_epochs: int = 0
    """Train this many of the last epochs with binary spikes forward."""
    per_neuron: bool = False
    """Learn one constant for each neuron in place of one for the layer."""
    leak: float | None = None
    learn_leak: bool | None = None
    threshold: float | None = None
    learn_threshold: bool | None = None
    v_reset: float | None = None
    surrogate_slope: float | None = None
    learn_slope: bool | None = None
    scaled_surrogate: bool | None = None
    sharpness: float | None = None
    learn_sharpness: bool | None = None
    adapt_strength: float | None = None
    adapt_decay: float | None = None
    adapt_late: bool | None = None
    delayed_reset: bool | None = None
    centered: bool | None = None
    leak_form: Literal["factor", "shift"] | None = None

    def __post_init__(self) -> None:
        """Refuse what could not be trained."""
        for field in fields(RunConfig):
            _check_type(field.name, getattr(self, field.name))
        object.__setattr__(self, "neuron", _neuron_name(self.neuron))
        for name in ("timesteps", "epochs", "batch_size"):
            _check(name, getattr(self, name) >= 1, getattr(self, name), "at least 1")
        _check("seed", 0 <= self.seed < 2**63, self.seed, "a number from 0 to 2**63 - 1")
        _check("learning_rate", 0 < self.learning_rate < 1e3, self.learning_rate, "positive")
        for name in ("sparsity", "volume_reg"):
            _check(name, 0 <= getattr(self, name) < 1e6, getattr(self, name), "0 or positive")
        _check("validation", 0 <= self.validation < 1, self.validation, "a part of the training set below 1")
        _check(
            "hidden", bool(self.hidden) and min(self.hidden) >= 1, self.hidden, "one size a layer, such as 64"
        )
        _check("gain", 0 < self.gain <= 1, self.gain, "above 0 and at most 1")
        _check("eps_speed", 0 < self.eps_speed <= 1e3, self.eps_speed, "positive")
        _check(
            "eps_min",
            0 < self.eps_min < self.eps_max,
            (self.eps_min, self.eps_max),
            "positive and below eps_max",
        )
        _check("hard_epochs", 0 <= self.hard_epochs <= self.epochs, self.hard_epochs, "at most the epochs")
        if self.anneal is not None:
            good = len(self.anneal) == 2 and min(self.anneal) > 0
            _check("anneal", good, self.anneal, "two positive temperatures")
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)

    def neuron_options(self) -> dict[str, Any]:
        """Return what the config says about the neurons, by their own argument names."""
        options = {name: getattr(self, name) for name in _NEURON_OPTIONS}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def id(self) -> str:
        """The run's name: a hash of everything above."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the schema's version, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(RunConfig)}
        return {"schema": SCHEMA, **json.loads(json.dumps(values))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunConfig":
        """Read what `to_dict` wrote, or a part of it."""
        given = dict(data)
        schema = given.pop("schema", SCHEMA)
        if schema != SCHEMA:
            raise InputError(
                f"schema {schema!r} of this config is not the one that this version reads ({SCHEMA}); train "
                "it again, or install the version of ultralif that wrote it"
            )
        known = {field.name for field in fields(cls)}
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(sorted(known))}"
                raise InputError(f"{name!r} is not a field of a run's config; {hint}")
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
        return cls(**values)

    def with_(self, **changes: Any) -> "RunConfig":
        """Return a copy with other values."""
        return replace(self, **changes)


_NEURON_OPTIONS = (
    "eps",
    "learn_eps",
    "leak",
    "learn_leak",
    "threshold",
    "learn_threshold",
    "v_reset",
    "surrogate_slope",
    "learn_slope",
    "scaled_surrogate",
    "sharpness",
    "learn_sharpness",
    "adapt_strength",
    "adapt_decay",
    "adapt_late",
    "delayed_reset",
    "centered",
    "leak_form",
)
_CHOICES: dict[str, tuple[str, ...]] = {
    "schedule": get_args(Schedule),
    "precision": get_args(Precision),
    "readout": get_args(Readout),
    "encoding": get_args(Encoding),
    "split": get_args(Partition),
}


def _neuron_name(name: str) -> str:
    """Return a neuron's name as it is spelled; ``ultralif`` and ``DSpike+`` are understood."""
    wanted = name.lower().replace("+", "plus")
    for known in NEURON_NAMES:
        if known.lower() == wanted:
            return known
    near = difflib.get_close_matches(name, NEURON_NAMES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(NEURON_NAMES)}"
    raise InputError(f"neuron {name!r} is not known; {hint}")


def _check(name: str, good: bool, value: object, wanted: str) -> None:
    if not good:
        raise InputError(f"{name} must be {wanted}, got {value}")


@cache
def _types(name: str) -> tuple[tuple[type, ...], bool]:
    """Return the types a field may have, and whether they are those of a tuple's entries."""
    hint = get_type_hints(RunConfig)[name]
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain: list[type] = []
    many = False
    for option in options:
        if get_origin(option) is tuple:
            many = True
            plain += [kind for kind in get_args(option) if kind is not ...]
        else:
            plain.append(str if get_origin(option) is Literal else option)
    return tuple(plain), many


def _check_type(name: str, value: object) -> None:
    kinds, many = _types(name)
    entries = value if many and isinstance(value, tuple) else (value,)
    for entry in entries:
        whole = isinstance(entry, int) and not isinstance(entry, bool)
        if not (type(entry) in kinds or (float in kinds and whole)):
            wanted = " or ".join(
                "a list of " * many + kind.__name__.replace("NoneType", "None") for kind in kinds
            )
            raise InputError(f"{name} must be {wanted}, got {value!r}")
