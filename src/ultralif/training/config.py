"""What a run is: every choice of an experiment, with the paper's as defaults. Needs no torch."""

import difflib
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ultralif.data import DATASETS
from ultralif.errors import InputError
from ultralif.training.typed import typed

__all__ = ["NEURON_NAMES", "PRESETS", "SCHEMA", "RunConfig", "spelled"]

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

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "binary": {"neuron": "UltraDLIF", "centered": True, "mode": "hard"},
    "binary-narrow": {
        "neuron": "UltraDLIF",
        "centered": True,
        "mode": "hard",
        "eps": 0.1,
        "learn_eps": False,
    },
}
"""Fields by the name of a recipe: the paper's, and two whose spikes are 0 and 1 already in training."""

Partition = Literal["tonic", "spikingjelly"]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run. Two runs with equal fields are the same run: their hash is its name."""

    dataset: str = "digits"
    """One of those that `ultralif data list` shows."""
    neuron: str = "UltraLIF"
    """UltraLIF, UltraPLIF, UltraDLIF, UltraDPLIF, LIF, PLIF, AdaLIF, FullPLIF, DSpike(Plus) or SoftLIF."""
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
    schedule: Literal["cosine", "constant"] = "cosine"
    """How the learning rate falls from epoch to epoch."""
    sparsity: float = 0.0
    """lambda: weight of the mean spike rate in the loss."""
    volume_reg: float = 0.0
    """alpha: weight of the volume regulariser of the first layer."""
    precision: Literal["float32", "tf32", "bfloat16", "float64"] = "float32"
    """Of the arithmetic; tf32 and bfloat16 concern the matrix products."""
    validation: float = 0.0
    """Part of the training set that is held out; model selection looks at nothing else."""

    hidden: tuple[int, ...] = (64,)
    """Neurons of each hidden layer."""
    readout: Literal["linear", "spiking"] = "linear"
    """A linear map of the mean spikes, or the mean spikes of a last spiking layer."""
    orthogonal: bool = False
    """Begin with orthogonal weights in the first layer."""

    encoding: Literal["rate", "rate-normalized", "constant"] = "rate"
    """How images become sequences."""
    gain: float = 0.5
    """Spike probability of a white pixel."""
    augment: bool | None = None
    """Crop and flip images. None: for CIFAR-10."""
    split: Partition = "tonic"
    """Which of DVS-Gesture's published splits."""
    binary_events: bool = False
    """Cut event counts to 0 and 1."""

    mode: Literal["soft", "hard", "tropical"] | None = None
    """How spikes are computed in training. None, here and below: as the neuron's class has it."""
    hard_epochs: int = 0
    """Train this many of the last epochs with binary spikes forward."""
    eps: float | None = None
    """Temperature at the start."""
    learn_eps: bool | None = None
    """Learn the temperature."""
    eps_min: float = 0.1
    """The least temperature that is learned."""
    eps_max: float = 20.0
    """The greatest temperature that is learned."""
    eps_speed: float = 1.0
    """Factor of the learning rate of the temperature."""
    anneal: tuple[float, float] | None = None
    """Let the temperature go from the first value to the second, geometrically over the epochs."""
    per_neuron: bool = False
    """Learn one constant for each neuron in place of one for the layer."""
    leak: float | None = None
    """Decay factor of the membrane at the start."""
    learn_leak: bool | None = None
    """Learn the leak."""
    threshold: float | None = None
    """A spike is a membrane above it."""
    learn_threshold: bool | None = None
    """Learn the threshold."""
    v_reset: float | None = None
    """The membrane after a spike."""
    surrogate_slope: float | None = None
    """Steepness of a surrogate gradient."""
    learn_slope: bool | None = None
    """Learn the surrogate's steepness."""
    scaled_surrogate: bool | None = None
    """Scale the surrogate gradient by its steepness."""
    sharpness: float | None = None
    """Of DSpike's curve."""
    learn_sharpness: bool | None = None
    """Learn the sharpness."""
    adapt_strength: float | None = None
    """How far AdaLIF's threshold rises."""
    adapt_decay: float | None = None
    """Decay factor of AdaLIF's adaptation."""
    adapt_late: bool | None = None
    """Let AdaLIF's threshold see only the spike before the previous one."""
    delayed_reset: bool | None = None
    """Reset by the previous step's spike."""
    centered: bool | None = None
    """Keep the mean of an undriven UltraDLIF layer."""
    leak_form: Literal["factor", "shift"] | None = None
    """How UltraDPLIF's leak acts: V * leak, or V + log(leak)."""

    def __post_init__(self) -> None:
        """Bring values to the types of their fields, and refuse what could not be trained."""
        for field in fields(RunConfig):
            object.__setattr__(self, field.name, typed(RunConfig, field.name, getattr(self, field.name)))
        object.__setattr__(self, "neuron", spelled("neuron", self.neuron))
        object.__setattr__(self, "dataset", spelled("dataset", self.dataset))
        for name, most in _COUNTS.items():
            _check(name, 1 <= getattr(self, name) <= most, getattr(self, name), f"from 1 to {most}")
        _check("seed", 0 <= self.seed < 2**63, self.seed, "from 0 to 2**63 - 1")
        _check("learning_rate", 0 < self.learning_rate < 1e3, self.learning_rate, "above 0 and below 1000")
        for name in ("sparsity", "volume_reg"):
            _check(name, 0 <= getattr(self, name) < 1e6, getattr(self, name), "0 or more, and below 1e6")
        _check("validation", 0 <= self.validation < 1, self.validation, "a part of the training set, below 1")
        sizes = bool(self.hidden) and min(self.hidden) >= 1 and max(self.hidden) < 2**31
        _check("hidden", sizes, self.hidden, "the size of each hidden layer, such as 64")
        _check("gain", 0 < self.gain <= 1, self.gain, "above 0 and at most 1")
        _check("eps_speed", 0 < self.eps_speed <= 1e3, self.eps_speed, "above 0 and at most 1000")
        bounds = (self.eps_min, self.eps_max)
        _check("eps_min", 0 < bounds[0] < bounds[1], bounds[0], f"above 0 and below eps_max, {bounds[1]}")
        _check("eps_max", bounds[1] <= 1e6, bounds[1], "at most 1e6")
        _check("hard_epochs", 0 <= self.hard_epochs <= self.epochs, self.hard_epochs, "0 or up to the epochs")
        if self.anneal is not None:
            good = len(self.anneal) == 2 and 0 < min(self.anneal) <= max(self.anneal) <= 1e6
            _check("anneal", good, self.anneal, "two positive temperatures, such as 2 0.1")

    def neuron_options(self) -> dict[str, Any]:
        """Return what the config says about the neurons, by their own argument names."""
        options = {name: getattr(self, name) for name in _NEURON_OPTIONS}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def id(self) -> str:
        """The run's name: a hash of everything above."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def shared(self) -> tuple[object, ...]:
        """What a run must have in common with another to be trained in one stack with it."""
        return tuple(getattr(self, name) for name in _SHARED)

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
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(sorted(known))}"
                raise InputError(f"{name!r} is not a field of a run's config; {hint}")
        return cls(**given)

    def with_(self, **changes: Any) -> "RunConfig":
        """Return a copy with other values."""
        return replace(self, **changes)


_COUNTS = {"timesteps": 100_000, "epochs": 1_000_000, "batch_size": 1_000_000}
_SHARED = (
    "dataset",
    "timesteps",
    "epochs",
    "batch_size",
    "learning_rate",
    "schedule",
    "precision",
    "validation",
    "hidden",
    "readout",
    "encoding",
    "gain",
    "augment",
    "split",
    "binary_events",
    "hard_epochs",
)
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


def spelled(field: str, name: str) -> str:
    """Return a neuron or dataset as its name is spelled; ``ultralif``, ``DSpike+``, ``N_MNIST`` are known."""
    names = tuple(DATASETS) if field == "dataset" else tuple(dict.fromkeys((*NEURON_NAMES, *_registered())))
    plain = {_plain(known): known for known in names}
    if _plain(name) in plain:
        return plain[_plain(name)]
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    hint = f"did you mean {plain[near[0]]}?" if near else f"choose one of {', '.join(names)}"
    raise InputError(f"{field} {name!r} is not known; {hint}")


def _registered() -> tuple[str, ...]:
    """Return the neurons that the caller has registered; without `ultralif.nn` there are none."""
    network = sys.modules.get("ultralif.nn.network")
    return tuple(network.NEURONS) if network else ()


def _plain(name: str) -> str:
    return name.lower().replace("+", "plus").replace("-", "").replace("_", "")


def _check(name: str, good: bool, value: object, wanted: str) -> None:
    if not good:
        raise InputError(f"{name} must be {wanted}, got {value}")
