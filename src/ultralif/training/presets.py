"""Presets: the fields of a config by the name of a recipe. Needs no torch."""

import re
from typing import Any

__all__ = ["PRESETS", "recipe_of"]

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
"""A small VGG, soft first and binary for the last epochs."""
_BINARY: dict[str, Any] = {"neuron": "UltraDLIF", "centered": True, "mode": "hard"}

PRESETS: dict[str, dict[str, Any]] = {
    "binary": {**_BINARY, "eps": 1.0},
    "binary-narrow": {**_BINARY, "eps": 0.1, "learn_eps": False},
    "digits": {**_DEPTH, "timesteps": 4, "epochs": 24, "shift": 1},
    "deep": {**_DEPTH, "timesteps": 1, "epochs": 6, "channels_last": True},
}
"""Fields by the name of a recipe: two with binary spikes throughout, and two for convolutional networks, soft
first and binary for the last epochs. ``digits`` is for the small pictures of that name, ``deep`` for larger
ones, with a first result within minutes."""


def recipe_of(model: str) -> str | None:
    """Return the name of the preset that trains a model; None for perceptrons and networks of the user.

    Example:
        >>> recipe_of("vgg5"), recipe_of("mlp")
        ('deep', None)
    """
    return "deep" if re.match(r"(vgg|resnet)\d", model) else None
