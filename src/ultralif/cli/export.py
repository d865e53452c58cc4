"""``ultralif export``: take a trained network to C, NIR, ONNX or torch.export."""

from __future__ import annotations

from contextlib import contextmanager
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from ultralif.cli.export_c import make_c
from ultralif.cli.export_feed import Feed, make_feed, measure
from ultralif.cli.output import echo
from ultralif.cli.own import know_own
from ultralif.cli.parse import parse
from ultralif.cli.source import load_module
from ultralif.errors import InputError, JobError
from ultralif.names import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

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
    weight_bits: Literal[8, 16] = 8,
    memory_budget: int | None = None,
    input_max: int = 1,
    max_events: int | None = None,
    input_range: tuple[float, float] | None = None,
    clip_membrane: bool = False,
    leak: Literal["multiply", "shift"] = "multiply",
    approximate: bool = False,
    dataset: str | None = None,
    model: str | None = None,
    neuron: str | None = None,
    data_dir: Path | None = None,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Write a trained network for other software or hardware, and print what the conversion changed.

    Examples:
      ultralif export 6c0c --to c --out net
      ultralif export 6c0c --to nir --approximate --out net
      ultralif export 6c0c --to onnx --out net --model net.py:Net --dataset my.npz

    Args:
        run: a run's name or folder, a NIR file of a LIF network, or a file of weights.
        to: c: plain C99 in integers. nir: for other simulators and neuromorphic chips. onnx. torch: a
            program of torch.export.
        out: a new folder for what is written.
        mode: mode of the exported network; soft is for onnx and torch only.
        timesteps: c: the longest sequence between two resets, by default the run's, or 100. onnx, torch: the
            length of a sequence; without it, one time step with the states as inputs and outputs.
        inputs: a .npy file of event counts (or of real numbers, for a run that takes them), [samples, time
            steps, inputs], in place of the run's test set: numpy.save("inputs.npy", x). The self-test of c
            replays the first 8; nir measures an approximation's drift on all.
        bits: c: of a membrane.
        weight_bits: c: of a weight; 16 decide almost always as floats do, and take twice the memory.
        memory_budget: c: the most bytes of constants and state together.
        input_max: c: the largest event count of an input in one time step; 1 for binary spikes.
        max_events: c: the most events of all inputs together in one time step.
        input_range: c: the least and the greatest input of a network that takes real numbers, which are
            counted in 8 bits. By default that of the run's training data; for pixels 0,1.
        clip_membrane: c: let membranes stop at the lowest number; otherwise what could overflow is refused.
        leak: c: apply a leak factor by multiplication, or by shifts.
        approximate: nir: write neurons that NIR does not have as LIF, and measure the drift on 1000 test
            samples or on --inputs.
        dataset: the data of a run on data of your own, as for ultralif train.
        model: file.py:Class of a run of a network of your own.
        neuron: file.py:Class of a run of a neuron of your own.
        data_dir: searched first for the run's dataset.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    _refuse(to, "c", bits=bits != 32, memory_budget=memory_budget is not None, input_max=input_max != 1)
    _refuse(to, "c", max_events=max_events is not None, clip_membrane=clip_membrane, leak=leak != "multiply")
    _refuse(to, "c", input_range=input_range is not None, weight_bits=weight_bits != 8)
    _refuse(to, "nir", approximate=approximate)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out} exists already; name a new folder, or remove it first")
    if timesteps is not None and timesteps < 1:
        raise InputError(f"--timesteps must be 1 or more, got {timesteps}")
    know_own(run, runs_dir, dataset, model, neuron)
    net, config = load_module(run, runs_dir)
    feed = make_feed(net, config, inputs, data_dir, input_range, ranged=to == "c")
    report: dict[str, Any] = {"run": run, "to": to, "mode": mode, "out": str(out)}
    with _whole(out) as folder:
        if to == "c":
            from ultralif.export import quantize

            integer = quantize(
                net,
                mode=mode,
                timesteps=timesteps or (config.timesteps if config else 100),
                shape=feed.shape,
                input_max=input_max,
                max_events=max_events,
                input_range=feed.range,
                bits=bits,
                clip_membrane=clip_membrane,
                leak=leak,
                weight_bits=weight_bits,
            )
            report |= make_c(net, mode, integer, folder, feed, memory_budget)
        elif to == "nir":
            report |= _to_nir(net, folder, feed, mode, approximate) | measure(net, mode, feed)
        else:
            report |= _to_graph(net, folder, feed.shape, to, mode, timesteps) | measure(net, mode, feed)
    _print(
        {k: v.replace(str(folder), str(out)) if isinstance(v, str) else v for k, v in report.items()}, json
    )


def _print(report: dict[str, Any], json: bool) -> None:
    if json:
        echo(dumps(report))
        return
    for name, value in report.items():
        echo(f"{name.replace('_', ' '):18} {value}")


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Give a folder that becomes ``out`` when all is written; an export that is killed leaves no folder."""
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


def _to_nir(net: nn.Module, out: Path, feed: Feed, mode: Any, approximate: bool) -> dict[str, Any]:
    from ultralif.export import to_nir

    samples = feed.some(DRIFT) if approximate else None
    if samples is not None:
        samples = samples.to(next(net.parameters()))
    elif approximate:
        raise InputError(
            "--approximate measures the drift on the run's test set, and there is none here; pass "
            "--inputs, a .npy file"
        )
    drift = to_nir(net, out / "model.nir", mode=mode, approximate=samples, shape=feed.shape)
    if drift is None or samples is None:
        return {"file": str(out / "model.nir"), "drift": "none: it is exact"}
    return {
        "file": str(out / "model.nir"),
        "drift_spikes": drift.spikes,
        "drift_decisions": drift.decisions,
        "drift_samples": samples.shape[1],
    }


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
