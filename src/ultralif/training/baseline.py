"""The defaults of ultralif 0.1.0, kept for good: a stored config says only what differs from these tables.

To add a field or an option, add it here with the value that gives the behaviour of 0.1.0. To change a
default, change it in the neuron or in `RunConfig` and leave these tables as they are. `identity` uses them.
"""

from typing import Any

__all__ = ["FIELDS", "FIRST_FIELDS", "OF_SCHEMA_1", "OPTIONS", "READINGS", "RESERVED"]

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
"""Options of each reading of the paper that differ from 0.1.0: the paper as written, as its author's code
computes, and as that code's study of the temperature computes."""

RESERVED = {
    "mode": "the field mode",
    "eps_range": "the fields eps_min and eps_max",
    "parameter_shape": "the field per_neuron",
    "time_constants": "ul.train with a network of your own, whose neurons have them",
    "batch_first": "nothing: batches of a run have time first",
    "check_finite": "nothing: a run that diverges is noticed without it",
    "backend": "nothing: it does not change a run",
}
"""Arguments of neurons that are not options of a run, and what to use in their place."""
OF_SCHEMA_1 = (
    *("eps", "learn_eps", "leak", "learn_leak", "threshold", "learn_threshold", "v_reset"),
    *("surrogate_slope", "learn_slope", "scaled_surrogate", "sharpness", "learn_sharpness"),
    *("adapt_strength", "adapt_decay", "adapt_late", "delayed_reset", "centered", "leak_form"),
)
"""The options that were fields in 0.1.0. None means, as it did then, that an option is not given."""
