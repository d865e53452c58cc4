"""``ultralif export``: convert a trained network to C, NIR, ONNX or torch.export."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from ultralif.cli.output import echo, say
from ultralif.cli.sources import is_code, load_module, make_network, register_paths_of
from ultralif.errors import InputError, JobError
from ultralif.names import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from ultralif.conversion import Observed
    from ultralif.export import IntegerNetwork
    from ultralif.training.batches import Data
    from ultralif.training.config import RunConfig

    Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]

__all__ = ["COMMAND"]

DRIFT = 1000  # test samples for measuring an approximation's drift


def export(
    run: str,
    /,
    *,
    to: Literal["c", "arduino", "nir", "onnx", "torch"],
    out: Path,
    mode: Mode = "hard",
    timesteps: int | None = None,
    inputs: Path | None = None,
    bits: Literal[16, 32] = 32,
    weight_bits: Literal[4, 8, 16] = 8,
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
    reset: Literal["zero", "subtract"] | None = None,
    data_dir: Path | None = None,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Export a trained network to other software or hardware, and print what the conversion changed.

    Examples:
      ultralif export 6c0c --to c --out net
      ultralif export 6c0c --to nir --approximate --out net
      ultralif export 6c0c --to onnx --out net --model net.py:Net --dataset my.npz
      ultralif export their_model.py:Net --to c --out net

    Args:
        run: a run's name or folder, a NIR file, a weight file, or file.py:Net, a class or function that
            returns a network from snnTorch, SpikingJelly, norse or this library. An export from another
            library's network or a NIR file is compared with the source's spikes, on --inputs if given.
        to: c: integer-only C99. arduino: the same as a library for the Arduino IDE, with the options of c.
            nir: for other simulators and neuromorphic chips. onnx. torch: a torch.export program.
        out: a new folder for the exported files.
        mode: mode of the exported network; soft is for onnx and torch only.
        timesteps: c: the longest sequence between two resets; by default the run's time steps, or 100. onnx,
            torch: sequence length; by default, one time step with the states as inputs and outputs.
        inputs: a .npy file of event counts (or real numbers, if the run was trained on them), [samples, time
            steps, inputs], to use instead of the run's test set: numpy.save("inputs.npy", x). The c self-test
            replays the first 8 samples; nir measures an approximation's drift on all of them.
        bits: c: bits per membrane.
        weight_bits: c: bits per weight; 16 bits nearly always match the float model and need twice the
            memory; 4 bits need half, but the network must be trained for them (export.finetune).
        memory_budget: c: largest total size of constants and state, in bytes.
        input_max: c: the largest event count of one input in one time step; 1 for binary spikes.
        max_events: c: the largest total number of events in one time step, over all inputs.
        input_range: c: smallest and largest input of a network with real-valued inputs, which are
            quantized to 8 bits. By default the range of the run's training data; 0,1 for pixels.
        clip_membrane: c: clip membranes at the lowest representable value; otherwise, a network that could
            overflow is refused.
        leak: c: apply the leak factor by multiplication or by shifts.
        approximate: nir: write neurons that NIR does not support as LIF, and measure the drift on 1000 test
            samples or on --inputs.
        dataset: your own data that the run was trained on, as for ultralif train.
        model: file.py:Class, for a run with your own network.
        neuron: file.py:Class, for a run with your own neuron.
        reset: how neurons in a NIR file reset after a spike: zero, as NIR specifies, or subtract, which most
            snnTorch networks use but NIR cannot represent.
        data_dir: a folder to search first for the run's dataset.
        runs_dir: runs folder.
        json: print one JSON document.
    """
    written = "c" if to == "arduino" else to
    _refuse(written, "c", bits=bits != 32, memory_budget=memory_budget is not None, input_max=input_max != 1)
    _refuse(
        written, "c", max_events=max_events is not None, clip_membrane=clip_membrane, leak=leak != "multiply"
    )
    _refuse(written, "c", input_range=input_range is not None, weight_bits=weight_bits != 8)
    _refuse(to, "nir", approximate=approximate)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out} already exists; choose a new folder, or remove it first")
    if timesteps is not None and timesteps < 1:
        raise InputError(f"--timesteps must be 1 or more, got {timesteps}")
    if reset is not None and Path(run).suffix != ".nir":
        raise InputError(f"--reset is for NIR files, not for {run}; omit it")
    source: Original | None = None
    if is_code(run):
        config = None
        net, source, given = _own_network(run, inputs, input_range)
    else:
        register_paths_of(run, runs_dir, dataset, model, neuron)
        net, config = _read_nir(run, reset) if Path(run).suffix == ".nir" else load_module(run, runs_dir)
        given = _make_inputs(net, config, inputs, data_dir, input_range, ranged=written == "c")
        if Path(run).suffix == ".nir":
            source = _source_of_nir(run, reset)
    report: dict[str, object] = {"run": run, "to": to, "mode": mode, "out": str(out)}
    with _whole(out) as folder:
        if written == "c":
            from ultralif.export import quantize

            integer = quantize(
                net,
                mode=mode,
                timesteps=timesteps or (config.timesteps if config else 100),
                shape=given.shape,
                input_max=input_max,
                max_events=max_events,
                input_range=given.range,
                bits=bits,
                clip_membrane=clip_membrane,
                leak=leak,
                weight_bits=weight_bits,
                inputs=_compared(given),
            )
            layout: Literal["make", "arduino"] = "make" if to == "c" else "arduino"
            report |= _make_c(net, mode, integer, folder, given, memory_budget, layout, source)
        elif to == "nir":
            report |= _to_nir(net, folder, given, mode, approximate) | _measure(net, mode, given)
        else:
            report |= _to_graph(net, folder, given.shape, to, mode, timesteps) | _measure(net, mode, given)
    _print(
        {k: v.replace(str(folder), str(out)) if isinstance(v, str) else v for k, v in report.items()}, json
    )


def _print(report: dict[str, object], json: bool) -> None:
    if json:
        echo(dumps(report))
        return
    for name, value in report.items():
        echo(f"{name.replace('_', ' '):18} {value}")


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Yield a folder that becomes ``out`` once everything is written; a killed export leaves no folder."""
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
            f"--out {out} cannot be written ({error.strerror}); free some space, or choose another folder"
        ) from error


def _compared(given: Inputs) -> Tensor | None:
    """Return recorded inputs, if any, for comparing the export with the network on more than random ones."""
    return None if given.recorded is None else given.recorded.float()


def _refuse(to: str, only: str, **given: bool) -> None:
    """Reject options that do not apply to the format."""
    for name, is_given in given.items():
        if is_given and to != only:
            raise InputError(f"--{name.replace('_', '-')} is for --to {only}, not for {to}; omit it")


def _to_nir(net: nn.Module, out: Path, given: Inputs, mode: Mode, approximate: bool) -> dict[str, object]:
    from ultralif.export import to_nir

    samples = given.some(DRIFT) if approximate else None
    if samples is not None:
        samples = samples.to(next(net.parameters()))
    elif approximate:
        raise InputError(
            "--approximate measures the drift on the run's test set, which is not available; pass "
            "a .npy file with --inputs"
        )
    drift = to_nir(
        net, out / "model.nir", mode=mode, approximate=samples, shape=given.shape, inputs=_compared(given)
    )
    if samples is None:
        return {"file": str(out / "model.nir"), "drift": "none: it is exact", "drift_spikes": drift.spikes}
    return {
        "file": str(out / "model.nir"),
        "drift_spikes": drift.spikes,
        "drift_decisions": drift.decisions,
        "drift_samples": samples.shape[1],
    }


def _to_graph(
    net: nn.Module, out: Path, shape: tuple[int, ...], to: str, mode: Mode, timesteps: int | None
) -> dict[str, object]:
    from ultralif.export import to_onnx, to_torch

    form: dict[str, object] = {
        "form": "one time step, states in and out" if timesteps is None else "sequences of any length"
    }
    if to == "torch":
        to_torch(net, out / "model.pt2", mode=mode, timesteps=timesteps, shape=shape)
        return form | {"file": str(out / "model.pt2")}
    difference = to_onnx(net, out / "model.onnx", mode=mode, timesteps=timesteps, shape=shape)
    return form | {"file": str(out / "model.onnx"), "onnxruntime_differs_by": difference}


REPLAYED = 8  # samples in the self-test


def _make_c(
    net: nn.Module,
    mode: Mode,
    integer: IntegerNetwork,
    out: Path,
    given: Inputs,
    budget: int | None,
    layout: Literal["make", "arduino"],
    source: Original | None,
) -> dict[str, object]:
    """Write an integer network's C program and self-test, and return the report to print."""
    from ultralif.export import to_c
    from ultralif.export.c import ways
    from ultralif.nn import Neuron

    kinds = [type(module).__name__ for module in net.modules() if isinstance(module, Neuron)]
    samples = given.some(REPLAYED)
    origin = "recorded" if given.recorded is not None else "test"
    measured = _measure(net, mode, given, integer)
    if samples is None or (given.recorded is None and "accuracy" in measured):
        samples, origin = _drawn(integer), "drawn"
    samples = samples[: integer.timesteps]
    title = f"{kinds[0]}, {mode}"
    size = to_c(integer, out, samples[:, :REPLAYED], memory_budget=budget, title=title, layout=layout)
    if source is not None:
        measured |= _compare_with(source, integer, samples)
    elif not measured:
        measured = {"decides_as_floats": _alike(net, mode, integer, samples)}
    return {
        "shapes": str(integer),
        "timesteps": integer.timesteps,
        **_input(integer),
        "constant_bytes": size.rom,
        "state_bytes": size.ram,
        **{f"layer {name}": way for name, way in ways(integer).items()},
        **measured,
        "self_test": f"{min(samples.shape[1], REPLAYED)} {origin} samples",
        "next": f"make -C {out} test" if layout == "make" else f"move {out} to Arduino/libraries",
    }


def _compare_with(source: Original, integer: IntegerNetwork, x: Tensor) -> dict[str, object]:
    """Return how many spikes and decisions the integer network shares with its source."""
    theirs = source.run(x.float())
    if source.static:
        x = x[:1].expand(len(theirs.spikes[0]), *x.shape[1:])
    ours = integer.run(x)
    pairs = list(zip(theirs.spikes, ours.spikes, strict=False))
    same = sum(int((a.reshape(b.shape) == b).sum()) for a, b in pairs)
    spikes, total = sum(int(a.sum()) for a, _ in pairs), sum(b.numel() for _, b in pairs)
    alike = int((theirs.scores.argmax(1) == ours.scores.argmax(1)).sum())
    return {
        "source": source.library,
        "spikes_as_source": f"{100 * same / total:.2f} % of {total} neuron steps ({spikes} spikes)",
        "decides_as_source": f"{alike} of {x.shape[1]} samples",
    }


def _read_nir(run: str, reset: Literal["zero", "subtract"] | None) -> tuple[nn.Module, None]:
    from ultralif.export import from_nir

    return from_nir(run, reset=reset), None


def _source_of_nir(run: str, reset: Literal["zero", "subtract"] | None) -> Original:
    """Load the network from a NIR file; it runs with norse's arithmetic."""
    from ultralif.conversion import Observed
    from ultralif.export import from_nir
    from ultralif.export.harden import answer

    net = from_nir(run, reset=reset or "zero", exact=True)

    def observe(x: Tensor) -> Observed:
        scores, spikes = answer(net, x)
        return Observed(tuple(spikes), scores)

    return Original("the file, computed with norse's arithmetic", observe)


def _own_network(
    path: str, inputs: Path | None, input_range: tuple[float, float] | None
) -> tuple[nn.Module, Original | None, Inputs]:
    """Build a network from code and convert it; return it, its source if foreign, and its inputs."""
    import torch

    from ultralif.conversion import convert, is_foreign, run_source, streaming
    from ultralif.export.trace import input_shape

    made = make_network(path).eval()
    shape = None if inputs is None else _shape_of(inputs)
    shape = input_shape(made, shape)
    recorded = None if inputs is None else _recorded(inputs, shape, input_range is not None)
    given = Inputs(shape, input_range, None, recorded)
    if not is_foreign(made):
        return made, None, given
    x = torch.rand(10, REPLAYED, *shape, generator=torch.Generator().manual_seed(0))
    x = (x < 0.2).float() if recorded is None else recorded[:, :REPLAYED].float()
    static = True
    try:
        net, static = streaming(convert(made, check=x))
    except InputError as error:
        problem: InputError | None = error
    else:
        problem = None
    if static:  # the source may itself repeat one input over time
        try:
            net, _ = streaming(convert(made, check=x[0]))
        except InputError as error:
            raise (problem or error) from None
    library = next(
        name
        for module in made.modules()
        if (name := type(module).__module__.split(".")[0]) in ("snntorch", "spikingjelly", "norse")
    )
    return net, Original(library, lambda x: run_source(made, x[0] if static else x), static), given


def _shape_of(path: Path) -> tuple[int, ...]:
    """Return the shape of one time step of the samples in a file."""
    from ultralif.data.files import read_npy

    if not path.exists():
        raise InputError(f"--inputs {path} does not exist")
    shape = read_npy(path).shape[2:]
    if not shape:
        raise InputError(f"--inputs {path} must be [samples, time steps, *input]")
    return tuple(shape)


def _input(integer: IntegerNetwork) -> dict[str, object]:
    """Describe the first layer's inputs."""
    if integer.levels is None:
        return {"input": "event counts", "max_events": integer.max_events}
    levels = integer.levels
    return {"input": f"real numbers as 8-bit integers: {levels.low} to {levels.high}, {levels.step:.4g} each"}


def _alike(net: nn.Module, mode: Mode, integer: IntegerNetwork, samples: Tensor) -> str:
    from ultralif.export.harden import answer
    from ultralif.nn import mode as in_mode

    with in_mode(net, mode):
        floats = answer(net, samples.to(next(net.parameters())))[0].argmax(1)
    alike = integer.run(samples).scores.argmax(1) == floats
    return f"{int(alike.sum())} of {len(alike)} samples"


def _drawn(integer: IntegerNetwork) -> Tensor:
    """Draw binary spikes, at most as many per time step as the network accepts, or a real-valued image."""
    import torch

    shape = (min(integer.timesteps, 10), REPLAYED, integer.inputs)
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    if integer.levels is not None:
        drawn = integer.levels.step * (
            integer.levels.low + drawn * (integer.levels.high - integer.levels.low)
        )
        return drawn[:1].expand(shape).reshape(*shape[:2], *integer.nodes[0].shape)
    spikes = drawn < 0.2
    spikes &= spikes.cumsum(-1) <= integer.max_events
    return spikes.view(*shape[:2], *integer.nodes[0].shape)


REAL = ("direct", "constant", "constant-normalized")
"""Encodings that produce real numbers instead of spikes."""


@dataclass(frozen=True)
class Original:
    """The source of an export: a network from another library or a file, with its own arithmetic."""

    library: str
    run: Callable[[Tensor], Observed]
    static: bool = False
    """Whether it accepts a single input and repeats it over time itself."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a network, ``[T, B, *shape]``."""

    shape: tuple[int, ...]
    range: tuple[float, float] | None
    """The range of real-valued inputs; None for event counts."""
    batches: Batches | None
    """Returns the inputs and labels of the test set; None without data."""
    recorded: Tensor | None
    """Samples from a file, if any."""
    direct: bool = False
    """Whether the network accepts unencoded images and repeats them over time itself."""

    def some(self, most: int) -> Tensor | None:
        """Return the recorded samples or the first test samples; None if neither is available."""
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


def _make_inputs(
    net: nn.Module,
    config: RunConfig | None,
    inputs: Path | None,
    data_dir: Path | None,
    input_range: tuple[float, float] | None,
    *,
    ranged: bool,
) -> Inputs:
    """Return a network's inputs, after checking that all of its layers can be exported.

    Args:
        net: the network.
        config: its run's config, if known.
        inputs: a .npy file of samples.
        data_dir: a folder to search first for the dataset.
        input_range: the range of real-valued inputs; None uses the run's range.
        ranged: whether the range is needed.
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
    return Inputs(
        shape, input_range, batches, recorded, real and config is not None and config.encoding == "direct"
    )


def _load(config: RunConfig, data_dir: Path | None) -> Data | None:
    """Load a run's data; if that fails, print the reason and return None."""
    import torch

    from ultralif.training.batches import load_data

    try:
        return load_data(config, torch.device("cpu"), data_dir)
    except (InputError, JobError) as error:
        say(f"no test set, so the accuracy is not measured: {error}")
        return None


def _range(config: RunConfig, data: Data | None) -> tuple[float, float]:
    """Return the smallest and the largest value in a run's training images."""
    if config.dataset.startswith("own:") or config.encoding == "constant-normalized":
        if data is None:
            raise InputError(
                "the network has real-valued inputs, whose range is unknown without its data; pass the data "
                "with --dataset, or the range with --input-range"
            )
        from ultralif.training.batches import make_loader

        ends = [
            (float(x.min()), float(x.max())) for x, _ in make_loader(config, data, data.train, training=False)
        ]
        return min(low for low, _ in ends), max(high for _, high in ends)
    return 0.0, 1.0  # pixels


def _test_set(config: RunConfig, data: Data, shape: tuple[int, ...]) -> Batches:
    from ultralif.training.batches import EVALUATION, inputs, make_loader

    loader = make_loader(config, data, data.dataset.test, training=False)
    steps = config.timesteps if config.encoding == "direct" and not data.dataset.test.is_events else None

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for x, labels in loader.epoch(EVALUATION):
            x = inputs(x, config)
            x = x if steps is None else x.expand(steps, *x.shape[1:])
            yield x.reshape(*x.shape[:2], *shape), labels

    return batches


def _recorded(path: Path, shape: tuple[int, ...], real: bool) -> Tensor:
    """Return the samples in a file, ``[T, B, *shape]``."""
    import numpy as np
    import torch

    from ultralif.data.files import read_npy

    if not path.exists():
        raise InputError(f"--inputs {path} does not exist")
    try:
        values = read_npy(path)
    except (InputError, JobError, MemoryError) as error:
        raise InputError(f"--inputs {path} is not a .npy file of numbers") from error
    kinds, what = ("uibf", "numbers") if real else ("uib", "integers")
    whole = values.dtype.kind in kinds and values.ndim >= 3 and values.size
    if not whole or values[0, 0].size != prod(shape):
        raise InputError(
            f"--inputs {path} must contain {what} [samples, time steps, {prod(shape)}], got "
            f"{values.dtype} {values.shape}"
        )
    kept = values.astype(np.float32 if values.dtype.kind == "f" else np.int64)
    x = torch.from_numpy(kept).flatten(2).transpose(0, 1)
    return x.reshape(*x.shape[:2], *shape)


def _measure(
    net: nn.Module, mode: Mode, given: Inputs, integer: IntegerNetwork | None = None
) -> dict[str, object]:
    """Return the float and integer accuracy on the whole test set, or {} without a test set."""
    import torch

    from ultralif.export.harden import answer
    from ultralif.nn import mode as in_mode

    if given.batches is None:
        return {}
    right, alike, seen = torch.zeros(2), 0, 0
    try:
        with in_mode(net, mode), torch.no_grad():
            for x, labels in given.batches():
                floats = answer(net, x[0] if given.direct else x)[0].argmax(1)
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


COMMAND = export
