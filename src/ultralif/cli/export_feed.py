"""The inputs of ``ultralif export``: a run's test set, recorded samples, and their shape and range."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ultralif.cli.output import say
from ultralif.errors import InputError, JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor, nn

    from ultralif.export import IntegerNetwork
    from ultralif.training.config import RunConfig
    from ultralif.training.feed import Data

    Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]

__all__ = ["Feed", "make_feed", "measure"]

REAL = ("direct", "constant", "constant-normalized")
"""Encodings that give real numbers, and not spikes."""


@dataclass(frozen=True)
class Feed:
    """The inputs of a network, ``[T, B, *shape]``."""

    shape: tuple[int, ...]
    range: tuple[float, float] | None
    """Of inputs that are real numbers; None: they are event counts."""
    batches: Batches | None
    """Returns the test set, inputs and labels; None without data."""
    recorded: Tensor | None
    """Samples from a file."""
    direct: bool = False
    """The network takes images as they are, and repeats them over time itself."""

    def some(self, most: int) -> Tensor | None:
        """Return recorded samples, or the first of the test set; None if there are neither."""
        import torch

        if self.recorded is not None or self.batches is None:
            return self.recorded
        found, count = [], 0
        for x, _ in self.batches():
            found.append(x)
            count += x.shape[1]
            if count >= most:
                break
        return torch.cat(found, 1)[:, :most]


def make_feed(
    net: nn.Module,
    config: RunConfig | None,
    inputs: Path | None,
    data_dir: Path | None,
    input_range: tuple[float, float] | None,
    *,
    ranged: bool,
) -> Feed:
    """Return the inputs of a network; a layer that cannot be exported is refused here.

    Args:
        net: the network.
        config: of its run, where known.
        inputs: a .npy file of samples.
        data_dir: searched first for the dataset.
        input_range: of real-valued inputs; None: as the run says.
        ranged: the range is needed.
    """
    from ultralif.data import DATASETS
    from ultralif.export import describe

    spec = None if config is None else DATASETS.get(config.dataset)
    known = config is not None and config.model != "mlp" and spec is not None
    shape = describe(net, spec.shape if known and spec is not None else None).nodes[0].shape
    real = config is not None and config.encoding in REAL and not (spec is not None and spec.is_events)
    data = None if config is None else _load(config, data_dir)
    recorded = None if inputs is None else _recorded(inputs, shape, real or input_range is not None)
    if ranged and real and input_range is None and config is not None:
        input_range = _range(config, data)
    batches = None if config is None or data is None else _test_set(config, data, shape)
    return Feed(
        shape, input_range, batches, recorded, real and config is not None and config.encoding == "direct"
    )


def _load(config: RunConfig, data_dir: Path | None) -> Data | None:
    """Return the data of a run, or None, and say why."""
    import torch

    from ultralif.training.feed import load_data

    try:
        return load_data(config, torch.device("cpu"), data_dir)
    except (InputError, JobError) as error:
        say(f"no test set, so that no accuracy is measured: {error}")
        return None


def _range(config: RunConfig, data: Data | None) -> tuple[float, float]:
    """Return the least and the greatest value of a run's training images."""
    if config.dataset.startswith("own:") or config.encoding == "constant-normalized":
        if data is None:
            raise InputError(
                "the network takes real numbers, and their range is not known without its data; give them "
                "with --dataset, or --input-range"
            )
        from ultralif.training.feed import make_loader

        ends = [
            (float(x.min()), float(x.max())) for x, _ in make_loader(config, data, data.train, training=False)
        ]
        return min(low for low, _ in ends), max(high for _, high in ends)
    return 0.0, 1.0  # pixels


def _test_set(config: RunConfig, data: Data, shape: tuple[int, ...]) -> Batches:
    from ultralif.training.feed import EVALUATION, inputs, make_loader

    loader = make_loader(config, data, data.dataset.test, training=False)
    steps = config.timesteps if config.encoding == "direct" and not data.dataset.test.is_events else None

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for x, labels in loader.epoch(EVALUATION):
            x = inputs(x, config)
            x = x if steps is None else x.expand(steps, *x.shape[1:])
            yield x.reshape(*x.shape[:2], *shape), labels

    return batches


def _recorded(path: Path, shape: tuple[int, ...], real: bool) -> Tensor:
    """Return the samples of a file, ``[T, B, *shape]``."""
    import numpy as np
    import torch

    from ultralif.data.files import read_npy

    if not path.exists():
        raise InputError(f"--inputs {path} does not exist")
    try:
        values = read_npy(path)
    except (InputError, JobError, MemoryError) as error:
        raise InputError(f"--inputs {path} is not a .npy file of numbers") from error
    kinds, what = ("uibf", "numbers") if real else ("uib", "whole numbers")
    whole = values.dtype.kind in kinds and values.ndim >= 3 and values.size
    if not whole or values[0, 0].size != prod(shape):
        raise InputError(
            f"--inputs {path} must hold {what} [samples, time steps, {prod(shape)}], not "
            f"{values.dtype} {values.shape}"
        )
    kept = values.astype(np.float32 if values.dtype.kind == "f" else np.int64)
    x = torch.from_numpy(kept).flatten(2).transpose(0, 1)
    return x.reshape(*x.shape[:2], *shape)


def measure(net: nn.Module, mode: Any, feed: Feed, integer: IntegerNetwork | None = None) -> dict[str, Any]:
    """Return the share of right decisions on the whole test set, by floats and integers; {} without one."""
    import torch

    from ultralif.export.harden import answer
    from ultralif.nn import mode as in_mode

    if feed.batches is None:
        return {}
    right, alike, seen = torch.zeros(2), 0, 0
    try:
        with in_mode(net, mode), torch.no_grad():
            for x, labels in feed.batches():
                floats = answer(net, x[0] if feed.direct else x)[0].argmax(1)
                integers = floats if integer is None else integer.run(x).scores.argmax(1)
                alike += int((floats == integers).sum())
                right += torch.stack([(floats == labels).sum(), (integers == labels).sum()])
                seen += len(labels)
    except InputError as error:
        return {"accuracy": f"not measured on the test set: {error}"}
    by_floats, by_integers = (round(part, 2) for part in (100 * right / seen).tolist())
    found = {"test_samples": seen, "float_percent": by_floats}
    if integer is None:
        return found
    return {**found, "integer_percent": by_integers, "decides_as_floats": f"{alike} of {seen} samples"}
