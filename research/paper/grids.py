"""The runs behind each table and figure of the paper, plus two controls and the binary modes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from research.paper.published import BASELINES, DATASETS, LAMBDAS, TIMESTEPS, ULTRA
from research.readings.presets import reading_config
from ultralif.errors import InputError
from ultralif.training import PRESETS, RunConfig

__all__ = [
    "ABLATION",
    "CLIPPED",
    "CONSTANT",
    "CONTROLS",
    "RECIPES",
    "RELEASED_ABLATION",
    "SEED",
    "STATIC",
    "TABLES",
    "Key",
    "Variant",
    "cells",
    "deep_variants",
    "key_of",
    "main_variants",
    "released_penalized",
    "released_variants",
    "runs_of",
    "without_seed",
]

SEED = 42
"""The paper's seed; further seeds count up from it."""
STATIC = ("mnist", "fashion-mnist", "cifar10")
ABLATED = (0.5, 1.0, 2.0)
CLIPPED = "rate-clipped"
"""The author's rate code, which also marks the cells of runs that follow the author's code."""
CONSTANT = "constant-normalized"
"""The encoding in the author's separate system for the temperature study; it also marks those cells."""
BASE = reading_config("written", "UltraLIF", precision="tf32")
"""The paper's recipe; TF32 rounds weights in matrix products to eleven bits, but spikes stay exact."""


class Key(NamedTuple):
    """A cell of the paper's tables: a run without its seed."""

    label: str
    dataset: str
    timesteps: int
    encoding: str


@dataclass(frozen=True)
class Variant:
    """A network of the paper, or a control: its table label and its changes to the base config."""

    label: str
    neuron: str
    options: tuple[tuple[str, Any], ...] = field(default=())
    reading: str = "written"

    def config(self, dataset: str, timesteps: int, seed: int, encoding: str = "rate") -> RunConfig:
        """Return the config of one run."""
        given = {"dataset": dataset, "timesteps": timesteps, "seed": seed, "encoding": encoding}
        fields = {"precision": BASE.precision, **dict(self.options), **given}
        return reading_config(self.reading, self.neuron, **fields)


def plain(neuron: str, sparsity: float = 0.0) -> Variant:
    """Return one of the paper's neurons with its own constants."""
    label = neuron if not sparsity else f"{neuron} lambda={sparsity:g}"
    return Variant(label, neuron, (("sparsity", sparsity),) if sparsity else ())


CONTROLS = (
    Variant("SoftLIF", "SoftLIF"),
    Variant("LIF learned width", "LIF", (("surrogate_slope", 1.0), ("learn_slope", True))),
)
"""Two controls: an exact gradient without log-sum-exp, and a surrogate with a learned width."""

_FULL = (("precision", "float32"),)


def _preset(name: str) -> Variant:
    """Return one of the library's recipes, trained with binary spikes."""
    fields = {**PRESETS[name], **dict(_FULL)}
    return Variant(name.replace("-", " "), fields.pop("neuron"), tuple(fields.items()))


RECIPES = (
    _preset("binary"),
    _preset("binary-narrow"),
    Variant("UltraPLIF binary", "UltraPLIF", (("mode", "hard"), *_FULL)),
)
"""Networks trained with binary spikes: the presets, and the second-best recipe on validation data."""

ABLATION = tuple(
    Variant(f"{neuron} eps={eps:g}", neuron, (("eps", eps), ("learn_eps", False)))
    for neuron in ULTRA
    for eps in ABLATED
)


def _as_released(variant: Variant) -> Variant:
    """Return a network of the paper as computed by the author's code."""
    return replace(variant, reading="released")


def released_variants() -> tuple[Variant, ...]:
    """Return the ten neurons in the author's code and its control, which the paper omits."""
    neurons = (*(plain(neuron) for neuron in (*BASELINES, *ULTRA)), Variant("SigmaLIF", "SoftLIF"))
    return tuple(_as_released(variant) for variant in neurons)


def released_penalized() -> tuple[Variant, ...]:
    """Return the neurons in the author's code, with the sparsity penalty."""
    return tuple(_as_released(plain(neuron, value)) for neuron in ULTRA for value in LAMBDAS if value)


RELEASED_ABLATION = tuple(
    replace(variant, options=(*_FULL, *variant.options), reading="ablation")
    for variant in (*ABLATION, *(plain(neuron) for neuron in ULTRA))
)
"""The temperature study, with the settings in the author's code."""


def deep_variants() -> tuple[Variant, ...]:
    """Return LIF, the Ultra neurons and the control with two and three hidden layers."""
    return tuple(
        replace(v, label=f"{v.label} {depth} layers", options=(*v.options, ("hidden", (64,) * depth)))
        for v in released_variants()
        for depth in (2, 3)
        if v.label in ("LIF", "SigmaLIF", *ULTRA)
    )


def main_variants() -> tuple[Variant, ...]:
    """Return the networks trained on every dataset at every T."""
    penalized = (plain(neuron, value) for neuron in ULTRA for value in LAMBDAS if value)
    return (*(plain(neuron) for neuron in (*BASELINES, *ULTRA)), *CONTROLS, *penalized)


TABLES: dict[str, str] = {
    **{name: f"accuracy on {name}" for name in DATASETS},
    "t1-summary": "best baseline and best Ultra neuron at T=1",
    **{f"{name}-efficiency": f"accuracy and energy on {name}" for name in ("mnist", "cifar10")},
    **{f"{name}-sparsity": f"the sparsity penalty on {name}" for name in DATASETS},
    "eps-ablation": "fixed and learned temperature on MNIST at T=1",
    "encodings": "both readings of the rate code at T=1",
    **{f"released-{name}": f"both readings of the paper on {name}" for name in DATASETS},
    "released-sparsity": "the sparsity penalty as in the author's code",
    "released-ablation": "fixed and learned temperature in the author's separate system",
    "released-depth": "two and three hidden layers at T=1, as in the author's code",
    "binary": "recipes for binary spikes compared with baselines and controls",
}
"""What each table shows, by name."""


def cells(table: str) -> Iterator[tuple[Key, RunConfig]]:
    """Yield the cells of a table and the run of each with the paper's seed; ``all`` means every table."""
    if table == "all":
        yield from {config.id: (key, config) for name in TABLES for key, config in cells(name)}.values()
        return
    if table not in TABLES:
        raise InputError(f"unknown table {table!r}; choose one of all, {', '.join(TABLES)}")
    for dataset, timesteps, encoding, variants in _parts(table):
        for variant in variants:
            key = Key(variant.label, dataset, timesteps, encoding)
            yield key, variant.config(dataset, timesteps, SEED, encoding)


def runs_of(table: str, seeds: int = 5) -> list[RunConfig]:
    """Return the runs that a table needs, ordered by seed."""
    first = [config for _, config in cells(table)]
    return [config.with_(seed=seed) for seed in range(SEED, SEED + seeds) for config in first]


def without_seed(config: Mapping[str, Any]) -> str:
    """Return a config as text without its seed, which is the same for all runs of a cell."""
    return json.dumps({name: value for name, value in config.items() if name != "seed"}, sort_keys=True)


def key_of(config: Mapping[str, Any]) -> Key | None:
    """Return a run's cell, ignoring its seed; None if the run is not one of the paper's.

    Args:
        config: the dict returned by `RunConfig.to_dict`.
    """
    return _meanings().get(without_seed(config))


@cache
def _meanings() -> dict[str, Key]:
    """Return all cells, keyed by their configs without a seed."""
    return {without_seed(config.to_dict()): key for key, config in cells("all")}


def _parts(table: str) -> Iterator[tuple[str, int, str, Sequence[Variant]]]:
    """Yield a table's datasets, values of T, encodings and variants."""
    everything = main_variants()
    unpenalized = [variant for variant in everything if "lambda" not in variant.label]
    if table == "t1-summary":
        for dataset in DATASETS:
            yield dataset, 1, "rate", unpenalized
    elif table == "eps-ablation":
        for encoding in ("rate", "rate-normalized"):
            yield "mnist", 1, encoding, [*ABLATION, *(plain(neuron) for neuron in ULTRA)]
    elif table == "binary":
        for dataset in DATASETS:
            for timesteps in TIMESTEPS:
                yield dataset, timesteps, "rate", [*unpenalized, *RECIPES]
    elif table == "released-ablation":
        yield "mnist", 1, CONSTANT, RELEASED_ABLATION
    elif table == "released-depth":
        for dataset in DATASETS:
            yield dataset, 1, CLIPPED, deep_variants()
    elif table == "released-sparsity":
        for dataset in DATASETS:
            for timesteps in TIMESTEPS:
                yield dataset, timesteps, CLIPPED, released_penalized()
    elif table.startswith("released-"):
        for timesteps in TIMESTEPS:
            yield table.removeprefix("released-"), timesteps, CLIPPED, released_variants()
    elif table == "encodings":
        for dataset in STATIC:
            for encoding in ("rate", "rate-normalized"):
                yield dataset, 1, encoding, unpenalized
    else:
        dataset = table.removesuffix("-efficiency").removesuffix("-sparsity")
        for timesteps in TIMESTEPS:
            yield dataset, timesteps, "rate", unpenalized if table in DATASETS else everything
