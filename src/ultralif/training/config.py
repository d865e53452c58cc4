"""Run configs: their fields, neuron options and recipes, and checks for all of these.

Only new configs need the neuron classes, and so torch, to complete their options; stored configs don't.
"""

import hashlib
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ultralif.data import DATASETS
from ultralif.errors import InputError, check_choice
from ultralif.names import NEURON_NAMES, Mode, find_name, similar

__all__ = [
    "NEURON_NAMES",
    "PRESETS",
    "RESERVED",
    "SCHEMA",
    "CompleteOptions",
    "RunConfig",
    "check_options",
    "class_defaults",
    "complete",
    "document_id",
    "known_neurons",
    "recipe_of",
    "spelled",
    "validate",
]


_DEPTH: dict[str, Any] = {
    "model": "vgg5",
    "encoding": "direct",
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "batch_size": 64,
    "hard_share": 0.5,
    "schedule": "linear",
    "warmup_epochs": 1,
    "weight_decay": 5e-4,
    "label_smoothing": 0.1,
    "recalibrate_bn": 20,
}
"""A small VGG, trained with soft spikes first and binary spikes in the last epochs."""
_BINARY: dict[str, Any] = {"neuron": "UltraDLIF", "centered": True, "mode": "hard"}

PRESETS: dict[str, dict[str, Any]] = {
    "binary": {**_BINARY, "eps": 1.0},
    "binary-narrow": {**_BINARY, "eps": 0.1, "learn_eps": False},
    "digits": {**_DEPTH, "timesteps": 4, "epochs": 24, "shift": 1},
    "deep": {**_DEPTH, "timesteps": 1, "epochs": 6, "channels_last": True},
}
"""The fields of each recipe, by name. Two recipes use binary spikes throughout. The other two are for
convolutional networks, with soft spikes first and binary spikes in the last epochs: ``digits`` is for the
small images of that dataset, and ``deep`` gives a first result on larger images within minutes."""


def recipe_of(model: str, dataset: str = "digits") -> str | None:
    """Return the name of the preset for a model; None for perceptrons and the user's own networks.

    ``digits`` has its own recipe, because its images are small.

    Example:
        >>> recipe_of("vgg5"), recipe_of("vgg5", "mnist"), recipe_of("mlp")
        ('digits', 'deep', None)
    """
    if not re.match(r"(vgg|resnet)\d", model):
        return None
    return "digits" if dataset.lower() == "digits" else "deep"


_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a finite number",
    str: "a name",
    NoneType: "None",
}


def validate(owner: type, name: str, value: object) -> object:
    """Convert a value to its field's type, for example 1 to 1.0 or a list to a tuple.

    Args:
        owner: a class whose fields are annotated with bool, int, float, str, Literal, None, or tuples of
            them.
        name: the field.
        value: the given value.
    """
    kind = _kind(owner, name)
    if kind.many and isinstance(value, list | tuple):
        return tuple(_single(name, entry, kind) for entry in value)
    if kind.many and value is not None:
        raise InputError(f"{name} must be a list, each entry {_WORDS[kind.types[0]]}, got {value!r}")
    return _single(name, value, kind)


class _Kind(NamedTuple):
    """The values that a field accepts."""

    types: tuple[type, ...]
    choices: tuple[str, ...]
    many: bool
    """Whether the field is a tuple of such values."""


@cache
def _kind(owner: type, name: str) -> _Kind:
    hint = get_type_hints(owner)[name]
    types: list[type] = []
    choices: tuple[str, ...] = ()
    many = False
    for option in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if get_origin(option) is Literal:
            choices = get_args(option)
            types.append(str)
        elif get_origin(option) is tuple:
            many = True
            types.append(get_args(option)[0])
        else:
            types.append(option)
    return _Kind(tuple(types), choices, many)


def _single(name: str, value: object, kind: _Kind) -> object:
    types = kind.types
    if value is None and NoneType in types:
        return None
    if isinstance(value, bool):
        if bool in types:
            return value
    elif isinstance(value, str) and str in types:
        if kind.choices:
            check_choice(name, value, kind.choices)
        return value
    elif isinstance(value, Integral) and int in types:
        return int(value)
    elif isinstance(value, Real) and float in types and _is_finite(value):
        return float(value) + 0.0  # -0.0 becomes 0.0
    raise InputError(f"{name} must be {' or '.join(_WORDS[one] for one in types)}, got {value!r}")


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer larger than any float
        return False


RESERVED = {
    "mode": "use the field mode",
    "eps_range": "use the fields eps_min and eps_max",
    "parameter_shape": "use the field per_neuron",
    "time_constants": "use ul.train with your own network, whose neurons may have time constants",
    "batch_first": "leave it out, because the batches of a run always have time first",
    "backend": "leave it out, because it does not affect the result",
}
"""Neuron arguments that are not options of a run, and what to do instead."""


OPEN = object()
"""Placeholder for a default that JSON cannot express, or for no default at all: the class decides."""


class CompleteOptions(dict[str, Any]):
    """All of a neuron's options, as listed in a stored config, so that the neuron's class is not needed."""


def class_defaults(neuron: str) -> dict[str, Any]:
    """Return the options of a neuron class, each with its default in JSON form or `OPEN`."""
    from ultralif.nn import find_neuron

    return _signature(cast(Any, find_neuron(neuron)))


@cache
def _signature(kind: Any) -> dict[str, Any]:
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in RESERVED or parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        default = parameter.default
        learned = name.removeprefix("learn_")
        if learned != name and default is None:
            default = {"slope": "surrogate_slope"}.get(learned, learned) in kind.learns
        found[name] = list(default) if isinstance(default, tuple) else default if _is_plain(default) else OPEN
    return found


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list)


def _all_options() -> dict[str, Any]:
    """Return the options of all neurons, each with the default from the first neuron that has it."""
    from ultralif.nn.network import NEURONS

    found: dict[str, Any] = {}
    for kind in NEURONS.values():
        found = _signature(cast(Any, kind)) | found
    return found


def check_options(neuron: str, options: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """Return options in JSON form; reject unknown names and bad values.

    An option that only other neurons have is rejected later, by `complete`, because a sweep passes the same
    options on to different neurons.

    Args:
        neuron: the neuron's name.
        options: the values of the neuron's arguments, by name.
        fields: the names of a config's fields, for hints.
    """
    if isinstance(options, CompleteOptions) or not options:
        return CompleteOptions(options) if options else {}
    own = class_defaults(neuron)
    known = _all_options() | own
    checked = {}
    for name, value in options.items():
        if name in RESERVED:
            raise InputError(f"{name} is not an option of a run; {RESERVED[name]}")
        if name not in known:
            near = similar(name, [*fields, *own])
            hint = f"did you mean {near!r}?" if near else f"its options are {', '.join(sorted(own))}"
            raise InputError(f"{name!r} is neither a field of the config nor an option of {neuron}; {hint}")
        checked[name] = _plain(name, value, None if known[name] is OPEN else known[name])
    return checked


def complete(neuron: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> CompleteOptions:
    """Return all of a neuron's options, sorted by name, with defaults for those not given."""
    for name in options:
        if name not in defaults:
            raise InputError(f"{name} is not an argument of {neuron}; leave it out for this neuron")
    known = {name: value for name, value in defaults.items() if value is not OPEN}
    return CompleteOptions(sorted({**known, **options}.items()))


def _plain(name: str, value: Any, default: Any) -> Any:
    """Return an option's value in JSON form, converted to the type of its default."""
    if isinstance(value, list | tuple) and (default is None or isinstance(default, list)):
        return [_plain(name, entry, None) for entry in value]
    if value is None and not isinstance(default, float | str | list) and type(default) is not int:
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
    int: "an integer",
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


SCHEMA = 3
"""Version of the stored config format."""

Partition = Literal["tonic", "spikingjelly"]
C = TypeVar("C")


def _taking_options(config: type[C]) -> type[C]:
    """Accept neuron options as keywords of a config: ``RunConfig(eps=0.5)``."""
    initialize: Callable[..., None] = config.__init__
    names = {each.name for each in fields(config)}  # type: ignore[arg-type]

    @wraps(initialize)
    def init(self: C, **values: Any) -> None:
        options = {name: values.pop(name) for name in list(values) if name not in names}
        given = values.get("neuron_options", {})
        if options and isinstance(given, Mapping):
            values["neuron_options"] = {**given, **options}
        initialize(self, **values)

    config.__init__ = init  # type: ignore[assignment]
    return config


@_taking_options
@dataclass(frozen=True, kw_only=True, eq=False)
class RunConfig:
    """The config of a training run. Configs with the same values are equal and describe the same run.

    The neuron's options can be passed as keywords: ``RunConfig(eps=0.5)`` is the same as
    ``RunConfig(neuron_options={"eps": 0.5})``.

    Example:
        >>> config = RunConfig(neuron="LIF", timesteps=4, eps_max=5.0)
        >>> config.with_(seed=7).seed
        7
    """

    dataset: str = "digits"
    """A dataset listed by `ultralif data list`; on the command line also my.npz or a folder of .npy files,
    both with x_train, y_train, x_test and y_test, or file.py:function."""
    neuron: str = "UltraLIF"
    """UltraLIF, UltraPLIF, UltraDLIF, UltraDPLIF, LIF, PLIF, AdaLIF, FullPLIF, DSpike(Plus) or SoftLIF."""
    timesteps: int = 10
    """Number of time steps T."""
    seed: int = 42
    """Seed for initialisation, shuffling and spike encoding."""

    epochs: int = 100
    """Number of passes over the training data."""
    batch_size: int = 128
    """Number of samples per training step."""
    learning_rate: float = 1e-3
    """Learning rate of the optimizer."""
    schedule: Literal["cosine", "constant", "linear"] = "cosine"
    """How the learning rate changes over the epochs."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam, or SGD with a Nesterov momentum of 0.9."""
    weight_decay: float = 0.0
    """Weight decay; not applied to biases, norms and the neurons' constants."""
    warmup_epochs: int = 0
    """Number of initial epochs over which the learning rate rises linearly."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all classes."""
    loss: Literal["mean", "tet"] = "mean"
    """Cross-entropy of the mean scores, or the mean over time of each step's cross-entropy."""
    sparsity: float = 0.0
    """lambda: weight of the mean spike rate in the loss."""
    target_rate: float | None = None
    """Binary spike rate that every spiking layer is trained to reach, such as 0.1."""
    volume_reg: float = 0.0
    """alpha: weight of the first layer's volume regulariser."""
    precision: Literal["float32", "tf32", "bfloat16", "float64"] = "float32"
    """Precision of the arithmetic; tf32 and bfloat16 apply to matrix products only."""
    validation: float = 0.0
    """Fraction of the training set that is held out for model selection."""

    hidden: tuple[int, ...] = (64,)
    """Number of neurons in each hidden layer."""
    model: str = "mlp"
    """mlp, or a model from ultralif.models: vgg5, vgg7, vgg9, vgg11r, resnet18 ...; on the command line also
    file.py:Class."""
    width: float = 1.0
    """Factor that multiplies the number of channels in a model from ultralif.models."""
    channels_last: bool = False
    """Use the channels-last memory format, which is faster on a GPU."""
    readout: Literal["linear", "spiking"] = "linear"
    """A linear map of the mean spikes, or the mean spikes of a final spiking layer."""
    orthogonal: bool = False
    """Initialise the first layer with orthogonal weights."""

    encoding: Literal[
        "rate", "rate-normalized", "rate-clipped", "constant", "constant-normalized", "direct"
    ] = "rate"
    """Encoding of images as sequences: spikes, a constant current, or (direct) left to the model."""
    gain: float = 0.5
    """Spike probability of a white pixel."""
    augment: bool | None = None
    """Shift training images by up to 4 pixels and mirror half of them. None: only for CIFAR-10."""
    flip: bool = False
    """Mirror half of the training images. If flip, shift, cutout or mixup is set, augment is ignored."""
    shift: int = 0
    """Shift training images by up to this many pixels."""
    cutout: int = 0
    """Blacken a square of this size in each training image."""
    mixup: float = 0.0
    """Mix each training image with another; the weight is drawn from Beta(mixup, mixup)."""
    split: Partition = "tonic"
    """Which of the published splits of DVS-Gesture to use."""
    binary_events: bool = False
    """Clip event counts to 0 and 1."""

    mode: Mode | None = None
    """Mode during training. None, here and below, means the default of the neuron's class."""
    hard_epochs: int = 0
    """Number of final epochs trained with binary spikes in the forward pass."""
    hard_share: float = 0.0
    """Fraction of the epochs, at the end, trained with binary spikes. The larger of hard_share and
    hard_epochs is used."""
    recalibrate_bn: int = 0
    """Number of batches from which the batch norm statistics are recomputed after training, in the final
    mode."""
    track_test: bool = False
    """Record the accuracy on the test set, and on a validation set if there is one, after every epoch."""
    eps_min: float = 0.1
    """Lower bound of the learned temperature."""
    eps_max: float = 20.0
    """Upper bound of the learned temperature."""
    eps_speed: float = 1.0
    """Factor by which the temperature's learning rate is multiplied."""
    anneal: tuple[float, float] | None = None
    """Anneal the temperature from the first value to the second, geometrically over the epochs."""
    per_neuron: bool = False
    """Learn one constant per neuron instead of one per layer."""
    neuron_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the neuron, such as eps, leak and learn_eps."""

    def __post_init__(self) -> None:
        """Convert values to the types of their fields, and reject configs that cannot be trained."""
        for name in _names():
            object.__setattr__(self, name, validate(RunConfig, name, getattr(self, name)))
        if not isinstance(self.neuron_options, Mapping):
            raise InputError(f"neuron_options must be a mapping, got {self.neuron_options!r}")
        object.__setattr__(self, "neuron", spelled("neuron", self.neuron))
        object.__setattr__(self, "dataset", spelled("dataset", self.dataset))
        options = check_options(self.neuron, self.neuron_options, _names())
        object.__setattr__(self, "neuron_options", options)
        for names, good, wanted in _LIMITS:
            for name in names:
                _check(name, good(getattr(self, name)), getattr(self, name), wanted)
        low, high, epochs = self.eps_min, self.eps_max, self.epochs
        _check("eps_min", 0 < low < high, low, f"above 0 and below eps_max, {high}")
        _check(
            "hard_epochs", 0 <= self.hard_epochs <= epochs, self.hard_epochs, "from 0 to the number of epochs"
        )
        warm = 0 <= self.warmup_epochs <= epochs
        _check("warmup_epochs", warm, self.warmup_epochs, f"from 0 to {epochs}, the number of epochs")
        if self.target_rate is not None and self.sparsity:
            raise InputError("sparsity and target_rate both set the spike rate; choose one of them")

    @cached_property
    def complete_options(self) -> CompleteOptions:
        """All of the neurons' options, with class defaults for those not given."""
        if isinstance(self.neuron_options, CompleteOptions):
            return self.neuron_options
        return complete(self.neuron, self.neuron_options, self.option_defaults)

    @property
    def option_defaults(self) -> Mapping[str, Any]:
        """The neuron class's options with their defaults."""
        return class_defaults(self.neuron)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunConfig) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.id)

    @cached_property
    def id(self) -> str:
        """The run's name: 12 hexadecimal digits of a hash of `to_dict`."""
        return document_id(self.to_dict())

    @property
    def shared(self) -> tuple[object, ...]:
        """The fields that all runs in a stack must share."""
        alone = () if self.model == "mlp" else (self.id,)  # only multilayer perceptrons are stacked
        return (*(getattr(self, name) for name in _names() if name not in _OWN), *alone)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema version, every field and every neuron option, ready for JSON."""
        values = {name: getattr(self, name) for name in _names()}
        values = {name: x for name, x in values.items() if name not in _ADDED or x != _defaults()[name]}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"schema": SCHEMA, **plain, "neuron_options": dict(self.complete_options)}

    def changes(self) -> dict[str, Any]:
        """Return, by name, the fields and neuron options that differ from their defaults."""
        changed = {name: x for name, usual in _defaults().items() if (x := getattr(self, name)) != usual}
        return {
            n: list(x) if isinstance(x, tuple) else x for n, x in changed.items()
        } | self.changed_options()

    def changed_options(self) -> dict[str, Any]:
        """Return the neuron options that differ from the class defaults."""
        own = self.option_defaults
        return {n: x for n, x in self.complete_options.items() if n not in own or x != own[n]}

    def settings(self) -> dict[str, Any]:
        """Return every field and every neuron option, by name."""
        return {**{name: getattr(self, name) for name in _names()}, **self.complete_options}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunConfig":
        """Read the output of `to_dict`, or, if there is no schema, fields written by the user."""
        given = dict(data)
        for name in given:
            if not isinstance(name, str):
                raise InputError(f"{name!r} is not a field of a run's config")
        if "schema" not in given:
            return cls(**given)
        check_schema(given)
        options = given.get("neuron_options")
        if isinstance(options, Mapping):
            given["neuron_options"] = CompleteOptions(options)
        return cls(**{name: given[name] for name in (*_names(), "neuron_options") if name in given})

    @classmethod
    def for_model(cls, model: str, **fields: Any) -> "RunConfig":
        """Return a model's config with its recipe, as used by ``ultralif train --model``.

        Args:
            model: a model from ultralif.models, such as vgg5.
            fields: values that override the recipe.

        Example:
            >>> RunConfig.for_model("vgg5", epochs=2).encoding
            'direct'
        """
        recipe = recipe_of(model, fields.get("dataset", cls.dataset))
        return cls(**{**PRESETS.get(recipe or "", {}), "model": model, **fields})

    def with_(self, **changes: Any) -> "RunConfig":
        """Return a copy with other values; if the neuron changes, only non-default options are kept."""
        if "neuron" in changes and isinstance(self.neuron_options, CompleteOptions):
            changes = {"neuron_options": self.changed_options(), **changes}
        return replace(self, **changes)


_OWN = {
    *("neuron", "seed", "sparsity", "volume_reg", "orthogonal", "mode"),
    *("eps_min", "eps_max", "eps_speed", "anneal", "per_neuron"),
}
"""The fields that may differ between runs in the same stack."""
_ADDED = {"target_rate"}
"""Fields added after the schema was fixed. Defaults are not stored, so older runs keep their names."""
_MOST_LAYERS = 1000
_LIMITS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("timesteps",), lambda n: 1 <= n <= 100_000, "from 1 to 100000"),
    (("epochs", "batch_size"), lambda n: 1 <= n <= 1_000_000, "from 1 to 1000000"),
    (("seed",), lambda n: 0 <= n < 2**63, "from 0 to 2**63 - 1"),
    (("learning_rate",), lambda x: 0 < x < 1e3, "above 0 and below 1000"),
    (("sparsity", "volume_reg"), lambda x: 0 <= x < 1e6, "0 or more, and below 1e6"),
    (("target_rate",), lambda x: x is None or 0 < x < 1, "a rate between 0 and 1, such as 0.1"),
    (("validation",), lambda x: 0 <= x < 1, "a share of the training set, from 0 to below 1"),
    (
        ("hidden",),
        lambda sizes: 1 <= len(sizes) <= _MOST_LAYERS and min(sizes) >= 1 and max(sizes) < 2**31,
        f"the size of each hidden layer, such as 64, for at most {_MOST_LAYERS} layers",
    ),
    (("gain",), lambda x: 0 < x <= 1, "above 0 and at most 1"),
    (("eps_speed",), lambda x: 0 < x <= 1e3, "above 0 and at most 1000"),
    (("eps_max",), lambda x: x <= 1e6, "at most 1e6"),
    (("hard_share",), lambda x: 0 <= x <= 1, "a share of the epochs, from 0 to 1"),
    (("label_smoothing", "weight_decay"), lambda x: 0 <= x < 1, "0 or more, and below 1"),
    (("shift", "cutout", "recalibrate_bn"), lambda n: 0 <= n <= 10_000, "from 0 to 10000"),
    (("mixup",), lambda x: 0 <= x <= 100, "from 0 to 100"),
    (("width",), lambda x: 0 < x <= 100, "above 0 and at most 100"),
    (
        ("model",),
        lambda name: re.fullmatch(r"mlp|(vgg|resnet)\d+r?|own:.+", name) is not None,
        "mlp or a model such as vgg9 or resnet18",
    ),
    (
        ("anneal",),
        lambda ends: ends is None or (len(ends) == 2 and 0 < min(ends) <= max(ends) <= 1e6),
        "two positive temperatures, such as 2 0.1",
    ),
)
"""Fields, the condition on their values, and its wording in error messages."""


@cache
def _names() -> tuple[str, ...]:
    """Return the names of all fields except `neuron_options`."""
    return tuple(each.name for each in fields(RunConfig) if each.name != "neuron_options")


@cache
def _defaults() -> dict[str, Any]:
    """Return the default of every field except `neuron_options`."""
    return {each.name: each.default for each in fields(RunConfig) if each.name in _names()}


def document_id(document: Mapping[str, Any]) -> str:
    """Return a run's name from its stored config: 12 hexadecimal digits of a hash of the document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


def check_schema(document: Mapping[str, Any]) -> None:
    """Reject a stored config from another version, or an incomplete one."""
    schema = document.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise InputError(
            f"this config has schema {schema!r}, but this version reads schema {SCHEMA}; train the run again"
        )
    wanted = {"schema", *_names(), "neuron_options"}
    if wrong := sorted((wanted ^ document.keys()) - _ADDED):
        raise InputError(
            f"a stored config must have every field and no others, but this one differs in "
            f"{', '.join(wrong)}; train the run again"
        )


def spelled(kind: str, name: str) -> str:
    """Return the exact name of a neuron or dataset from a variant such as ``DSpike+`` or ``N_MNIST``."""
    if kind == "dataset" and name.startswith("own:"):
        return name
    return find_name(kind, name, tuple(DATASETS) if kind == "dataset" else known_neurons())


def known_neurons() -> tuple[str, ...]:
    """Return the library's neurons, and those registered by the caller."""
    network = sys.modules.get("ultralif.nn.network")  # None: nothing has been registered yet
    return tuple(dict.fromkeys((*NEURON_NAMES, *(network.NEURONS if network else ()))))


def _check(name: str, good: bool, value: object, wanted: str) -> None:
    if not good:
        raise InputError(f"{name} must be {wanted}, got {value!r}")
