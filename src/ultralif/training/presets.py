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
    "settle_batches": 20,
}
"""A small VGG, soft first and binary for the last epochs."""

PRESETS: dict[str, dict[str, Any]] = {
    "written": {"defaults": "0.1.0"},
    "paper": {"defaults": "0.1.0"},
    "released": {"defaults": "released", "mode": "soft", "encoding": "rate-clipped", "track_test": True},
    "ablation": {
        "defaults": "ablation",
        "mode": "soft",
        "encoding": "constant-normalized",
        "readout": "spiking",
        "schedule": "constant",
        "track_test": True,
    },
    "binary": {"defaults": "0.1.0", "neuron": "UltraDLIF", "centered": True, "mode": "hard"},
    "binary-narrow": {
        "defaults": "0.1.0",
        "neuron": "UltraDLIF",
        "centered": True,
        "mode": "hard",
        "eps": 0.1,
        "learn_eps": False,
    },
    "digits": {**_DEPTH, "timesteps": 4, "epochs": 24, "shift": 1},
    "deep": {**_DEPTH, "timesteps": 1, "epochs": 6, "channels_last": True},
}
"""Fields by the name of a recipe. ``written`` (formerly ``paper``): the paper as written; ``released``: its
author's code; ``ablation``: that code's study of the temperature; two recipes with binary spikes throughout;
and two for convolutional networks, soft first and binary for the last epochs: ``digits`` for the small
pictures of that name, ``deep`` for larger ones, with a first result within minutes."""


def recipe_of(model: str) -> str | None:
    """Return the name of the preset that trains a model; None for perceptrons and networks of the user.

    Example:
        >>> recipe_of("vgg5"), recipe_of("mlp")
        ('deep', None)
    """
    return "deep" if re.match(r"(vgg|resnet)\d", model) else None
