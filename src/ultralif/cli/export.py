"""``ultralif export``: take a trained network to C, NIR, ONNX or torch.export."""

from __future__ import annotations

from contextlib import contextmanager
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from ultralif.cli.output import echo
from ultralif.cli.parse import parse
from ultralif.cli.source import load_network
from ultralif.errors import InputError, JobError
from ultralif.names import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from ultralif.export import IntegerNetwork
    from ultralif.nn import Network

__all__ = ["COMMAND", "main"]

REPLAYED = 8  # samples in the self-test


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
        inputs: a .npy file of event counts [samples, time steps, inputs]. The self-test of c replays the
            first 8; nir measures an approximation's drift on all.
        bits: c: of a membrane.
        memory_budget: c: the most bytes of constants and state together.
        input_max: c: the largest event count of an input in one time step; 1 for binary spikes.
        max_events: c: the most events of all inputs together in one time step.
        saturate: c: let membranes stop at their lowest number, where refusing would be the alternative.
        leak: c: apply a leak factor by multiplication, or by shifts.
        approximate: nir: write what NIR cannot say as LIF, and measure the drift on --inputs.
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
    net, _, config = load_network(run, runs_dir=runs_dir)
    if to == "c" and config is not None and config.encoding == "constant":
        raise InputError(
            f"run {run} was trained on real numbers (--encoding constant), and c takes event counts; export "
            "to onnx, or train with --encoding rate"
        )
    recorded = None if inputs is None else _recorded(inputs, net)
    report: dict[str, Any] = {"run": run, "to": to, "mode": mode, "out": str(out)}
    with _whole(out) as folder:
        if to == "c":
            from ultralif.export import quantize

            integer = quantize(
                net,
                mode=mode,
                timesteps=timesteps or (config.timesteps if config else 100),
                input_max=input_max,
                max_events=max_events,
                bits=bits,
                saturate=saturate,
                leak=leak,
            )
            report |= _to_c(net, mode, integer, folder, recorded, memory_budget)
        elif to == "nir":
            report |= _to_nir(net, folder, recorded, mode, approximate)
        else:
            report |= _to_graph(net, folder, to, mode, timesteps)
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


def _recorded(path: Path, net: Network) -> Tensor:
    """Return the event counts of a file, ``[T, B, inputs]``."""
    import numpy as np
    import torch

    try:
        counts = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"--inputs {path} does not exist") from error
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise InputError(f"--inputs {path} is not a .npy file of numbers") from error
    whole = isinstance(counts, np.ndarray) and counts.dtype.kind in "uib" and counts.ndim >= 3 and counts.size
    if not whole or counts[0, 0].size != net.sizes[0]:
        kind = f"{counts.dtype} {counts.shape}" if isinstance(counts, np.ndarray) else "several arrays"
        raise InputError(
            f"--inputs {path} must hold whole numbers [samples, time steps, {net.sizes[0]}], not {kind}"
        )
    return torch.from_numpy(counts.astype(np.int64)).flatten(2).transpose(0, 1)


def _to_c(
    net: Network, mode: Any, integer: IntegerNetwork, out: Path, recorded: Tensor | None, budget: int | None
) -> dict[str, Any]:
    from ultralif.export import to_c
    from ultralif.nn import mode as in_mode

    samples = _drawn(integer) if recorded is None else recorded[: integer.timesteps]
    replayed = samples[:, :REPLAYED]
    title = f"{type(net.neurons[0]).__name__}, {mode}"
    size = to_c(integer, out, replayed, memory_budget=budget, title=title)
    with in_mode(net, mode):
        alike = integer.run(samples).scores.argmax(1) == net(samples.to(next(net.parameters()))).argmax(1)
    return {
        "sizes": str(integer),
        "timesteps": integer.timesteps,
        "max_events": integer.max_events,
        "constant_bytes": size.rom,
        "state_bytes": size.ram,
        "decides_as_floats": f"{int(alike.sum())} of {len(alike)} samples",
        "self_test": f"{replayed.shape[1]} {'drawn' if recorded is None else 'recorded'} samples",
        "next": f"make -C {out} test",
    }


def _drawn(integer: IntegerNetwork) -> Tensor:
    """Draw binary spikes, no more in a time step than the network takes."""
    import torch

    shape = (min(integer.timesteps, 10), REPLAYED, integer.inputs)
    spikes = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.2
    return spikes & (spikes.cumsum(-1) <= integer.max_events)


def _to_nir(net: Network, out: Path, recorded: Tensor | None, mode: Any, approximate: bool) -> dict[str, Any]:
    from ultralif.export import to_nir

    if approximate and recorded is None:
        raise InputError("--approximate needs --inputs, a .npy file, to measure the drift on")
    samples = recorded.float() if approximate and recorded is not None else None
    drift = to_nir(net, out / "model.nir", mode=mode, approximate=samples)
    if drift is None:
        return {"file": str(out / "model.nir"), "drift": "none: it is exact"}
    return {"file": str(out / "model.nir"), "drift_spikes": drift.spikes, "drift_decisions": drift.decisions}


def _to_graph(net: Network, out: Path, to: str, mode: Any, timesteps: int | None) -> dict[str, Any]:
    from ultralif.export import to_onnx, to_torch

    form = {"form": "one time step, states in and out" if timesteps is None else f"{timesteps} time steps"}
    if to == "torch":
        to_torch(net, out / "model.pt2", mode=mode, timesteps=timesteps)
        return form | {"file": str(out / "model.pt2")}
    difference = to_onnx(net, out / "model.onnx", mode=mode, timesteps=timesteps)
    return form | {"file": str(out / "model.onnx"), "onnxruntime_differs_by": difference}


COMMAND = export
