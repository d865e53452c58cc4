"""``ultralif export``: take a trained network to C, NIR, ONNX or torch.export."""

from __future__ import annotations

from contextlib import contextmanager
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from ultralif.cli.export_c import make_c
from ultralif.cli.output import echo, say
from ultralif.cli.parse import parse
from ultralif.cli.source import load_module
from ultralif.errors import InputError, JobError
from ultralif.names import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from ultralif.training.config import RunConfig

    Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]

__all__ = ["COMMAND", "main"]

DRIFT = 1000  # samples of the test set that an approximation's drift is measured on


def main(argv: list[str]) -> None:
    """Run the command."""
    parse(export, argv, "export")


def export(
    run: str,
    /,
    *,
    to: Literal["c", "nir", "onnx", "torch"],
    out: Path,
    mode: Mode = "hard",
    timesteps: int | None = None,
    inputs: Path | None = None,
    bits: Literal[16, 32] = 32,
    memory_budget: int | None = None,
    input_max: int = 1,
    max_events: int | None = None,
    saturate: bool = False,
    leak: Literal["multiply", "shift"] = "multiply",
    approximate: bool = False,
    data_dir: Path | None = None,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Take a trained network elsewhere, and say what was lost on the way.

    Args:
        run: a run's name or folder, a NIR file of a LIF network, or a file of weights.
        to: c: plain C99 in integers. nir: for other simulators and neuromorphic chips. onnx. torch: a
            program of torch.export.
        out: a new folder for what is written.
        mode: how the network computes there; soft is for onnx and torch.
        timesteps: c: the longest sequence between two resets, by default the run's, or 100. onnx, torch: the
            length of a sequence; without it, one time step with the states as inputs and outputs.
        inputs: a .npy file of event counts [samples, time steps, inputs] in place of the run's test set. The
            self-test of c replays the first 8; nir measures an approximation's drift on all.
        bits: c: of a membrane.
        memory_budget: c: the most bytes of constants and state together.
        input_max: c: the largest event count of an input in one time step; 1 for binary spikes.
        max_events: c: the most events of all inputs together in one time step.
        saturate: c: let membranes stop at their lowest number, where refusing would be the alternative.
        leak: c: apply a leak factor by multiplication, or by shifts.
        approximate: nir: write what NIR cannot say as LIF, and measure the drift on 1000 test samples or on
            --inputs.
        data_dir: searched first for the run's dataset.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    _refuse(to, "c", bits=bits != 32, memory_budget=memory_budget is not None, input_max=input_max != 1)
    _refuse(to, "c", max_events=max_events is not None, saturate=saturate, leak=leak != "multiply")
    _refuse(to, "nir", approximate=approximate)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out} exists already; name a new folder, or remove it first")
    if timesteps is not None and timesteps < 1:
        raise InputError(f"--timesteps must be 1 or more, got {timesteps}")
    net, config = load_module(run, runs_dir)
    if to == "c" and config is not None and config.encoding in ("constant", "direct"):
        raise InputError(
            f"run {run} was trained on real numbers (--encoding {config.encoding}), and c takes event "
            "counts; export to onnx, or train with --encoding rate"
        )
    shape = _shape(net, config)
    batches = _test_set(config, shape, data_dir)
    recorded = None if inputs is None else _recorded(inputs, shape)
    report: dict[str, Any] = {"run": run, "to": to, "mode": mode, "out": str(out)}
    with _whole(out) as folder:
        if to == "c":
            from ultralif.export import quantize

            integer = quantize(
                net,
                mode=mode,
                timesteps=timesteps or (config.timesteps if config else 100),
                shape=shape,
                input_max=input_max,
                max_events=max_events,
                bits=bits,
                saturate=saturate,
                leak=leak,
            )
            report |= make_c(net, mode, integer, folder, recorded, batches, memory_budget)
        elif to == "nir":
            report |= _to_nir(net, folder, shape, recorded, batches, mode, approximate)
        else:
            report |= _to_graph(net, folder, shape, to, mode, timesteps)
    report = {k: v.replace(str(folder), str(out)) if isinstance(v, str) else v for k, v in report.items()}
    if json:
        echo(dumps(report))
    else:
        for name, value in report.items():
            echo(f"{name.replace('_', ' '):16} {value}")


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Give a folder that becomes ``out`` when all is written: one that was killed leaves none."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as aside:
            folder = Path(aside) / out.name
            folder.mkdir()
            yield folder
            if out.exists():
                out.rmdir()
            folder.rename(out)
    except OSError as error:
        raise JobError(
            f"--out {out} cannot be written ({error.strerror}); make room, or name another folder"
        ) from error


def _refuse(to: str, only: str, **given: bool) -> None:
    """Refuse options that do not belong to the format."""
    for name, is_given in given.items():
        if is_given and to != only:
            raise InputError(f"--{name.replace('_', '-')} is for --to {only}, not for {to}; leave it out")


def _shape(net: nn.Module, config: RunConfig | None) -> tuple[int, ...]:
    """Return the features of one time step; what cannot be exported is refused here."""
    from ultralif.data import DATASETS
    from ultralif.export import describe

    known = config is not None and config.model != "mlp" and not config.is_own
    shape = DATASETS[config.dataset].shape if config is not None and known else None
    return describe(net, shape).nodes[0].shape


def _test_set(config: RunConfig | None, shape: tuple[int, ...], data_dir: Path | None) -> Batches | None:
    """Return the batches of a run's test set, inputs ``[T, B, *shape]`` and labels; None without its data."""
    if config is None or config.is_own:
        return None
    import torch

    from ultralif.training.feed import EVALUATION, inputs, load_data, make_loader

    try:
        data = load_data(config, torch.device("cpu"), data_dir)
    except (InputError, JobError) as error:
        say(f"no test set, so that no accuracy is measured: {error}")
        return None
    loader = make_loader(config, data, data.dataset.test, training=False)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for x, labels in loader.epoch(EVALUATION):
            yield inputs(x, config).reshape(*x.shape[:2], *shape), labels

    return batches


def _recorded(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Return the event counts of a file, ``[T, B, *shape]``."""
    from math import prod

    import numpy as np
    import torch

    from ultralif.data.npy import read_npy

    if not path.exists():
        raise InputError(f"--inputs {path} does not exist")
    try:
        counts = read_npy(path)
    except (InputError, JobError, MemoryError) as error:
        raise InputError(f"--inputs {path} is not a .npy file of numbers") from error
    whole = counts.dtype.kind in "uib" and counts.ndim >= 3 and counts.size
    if not whole or counts[0, 0].size != prod(shape):
        raise InputError(
            f"--inputs {path} must hold whole numbers [samples, time steps, {prod(shape)}], not "
            f"{counts.dtype} {counts.shape}"
        )
    x = torch.from_numpy(counts.astype(np.int64)).flatten(2).transpose(0, 1)
    return x.reshape(*x.shape[:2], *shape)


def _to_nir(
    net: nn.Module,
    out: Path,
    shape: tuple[int, ...],
    recorded: Tensor | None,
    batches: Batches | None,
    mode: Any,
    approximate: bool,
) -> dict[str, Any]:
    from ultralif.export import to_nir

    samples = None
    if approximate:
        if recorded is None and batches is None:
            raise InputError(
                "--approximate measures the drift on the run's test set, and there is none here; pass "
                "--inputs, a .npy file"
            )
        samples = _some(batches) if recorded is None and batches is not None else recorded
        samples = None if samples is None else samples.to(next(net.parameters()))
    drift = to_nir(net, out / "model.nir", mode=mode, approximate=samples, shape=shape)
    if drift is None or samples is None:
        return {"file": str(out / "model.nir"), "drift": "none: it is exact"}
    return {
        "file": str(out / "model.nir"),
        "drift_spikes": drift.spikes,
        "drift_decisions": drift.decisions,
        "drift_samples": samples.shape[1],
    }


def _some(batches: Batches) -> Tensor:
    """Return the first test samples."""
    import torch

    found, count = [], 0
    for x, _ in batches():
        found.append(x)
        count += x.shape[1]
        if count >= DRIFT:
            break
    return torch.cat(found, 1)[:, :DRIFT]


def _to_graph(
    net: nn.Module, out: Path, shape: tuple[int, ...], to: str, mode: Any, timesteps: int | None
) -> dict[str, Any]:
    from ultralif.export import to_onnx, to_torch

    form = {"form": "one time step, states in and out" if timesteps is None else "sequences of any length"}
    if to == "torch":
        to_torch(net, out / "model.pt2", mode=mode, timesteps=timesteps, shape=shape)
        return form | {"file": str(out / "model.pt2")}
    difference = to_onnx(net, out / "model.onnx", mode=mode, timesteps=timesteps, shape=shape)
    return form | {"file": str(out / "model.onnx"), "onnxruntime_differs_by": difference}


COMMAND = export
