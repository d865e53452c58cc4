"""Measure each step to hardware: accuracy lost to binary spikes and to integers, and the speed of C.

    python benchmarks/deployment.py gap        # soft, hard, tropical, and what closes the gap
    python benchmarks/deployment.py integers   # int8 weights, int16 and int32 membranes, table sizes
    python benchmarks/deployment.py bits       # 8- and 4-bit weights: rounding, or training with quantization
    python benchmarks/deployment.py speed      # spikes, additions, bytes, nanoseconds
    python benchmarks/deployment.py nir        # the drift of neurons that NIR cannot represent

Prints Markdown tables. Data: $ULTRALIF_TEST_DATA, or ../shared/data; networks are kept in --cache.
"""

import argparse
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean, median

import onnxruntime
import torch
from digits import TASKS, Task, task, trained
from torch import Tensor

import ultralif as ul
from ultralif import export
from ultralif.export.quantize import table_error


def table_of(*header: str) -> Callable[..., None]:
    """Print a Markdown header, and return a function that prints a row."""
    print(f"\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    return lambda *cells: print(f"| {' | '.join(map(str, cells))} |", flush=True)


def show_gap(folder: Path) -> None:
    """Print the mean accuracy before and after each tool, in percent, and where the modes first differ."""
    row = table_of(
        "data", "neuron", "soft", "hard", "tropical", "calibrated hard", "calibrated tropical",
        "more soft epochs, hard", "annealed, hard", "tuned hard", "tuned tropical",
    )  # fmt: skip
    partings = []
    for (dataset, timesteps), (_, epochs, seeds) in TASKS.items():
        for neuron in ("UltraLIF", "UltraDLIF"):
            found = []
            for seed in range(seeds):
                net, data = trained(folder, dataset, timesteps, neuron, seed), task(dataset, timesteps)
                before = export.gap(net, data.test())
                found.append([*(gap.accuracy for gap in before.values()), *_tools(net, data, epochs, seed)])
                if seed == 0:
                    partings += [(f"{dataset}, T={timesteps}", neuron, *item) for item in before.items()]
            means = [f"{mean(column):.2f}" for column in zip(*found, strict=True)]
            row(f"{dataset}, T={timesteps}", neuron, *means)
    row = table_of(
        "data", "neuron", "mode", "spike rate", "decisions equal to soft, %", "first differing spikes"
    )
    for data, neuron, mode, gap in partings:
        first = (
            ""
            if gap.first is None
            else f"layer {gap.first.layer}, step {gap.first.step}: {gap.first.share:.2%}"
        )
        row(data, neuron, mode, f"{gap.spike_rate[0]:.3f}", f"{gap.agreement:.2f}", first)


def _tools(net: ul.Network, data: Task, epochs: int, seed: int) -> Iterator[float]:
    for mode in ("hard", "tropical"):
        yield export.gap(export.calibrate(net, data.sample(5000), to=mode), data.test())[mode].accuracy
    eps = float(torch.as_tensor(net.neurons[0].eps).detach())
    for mode, reported, annealed in (
        ("soft", "hard", None),
        ("soft", "hard", (eps, 0.1)),
        ("hard", "hard", None),
        ("tropical", "tropical", None),
    ):
        batches, steps = data.epochs(epochs, 1000 + seed), data.steps(epochs)
        made = export.finetune(net, batches, steps=steps, mode=mode, lr=2e-3, eps=annealed)
        yield export.gap(made, data.test())[reported].accuracy


def _accuracy(integer: export.IntegerNetwork, data: Task) -> float:
    right = sum(int((integer.run(x).scores.argmax(1) == y).sum()) for x, y in data.test())
    return 100 * right / len(data.test_y)


def show_integers(folder: Path) -> None:
    """Print the accuracy of float and integer networks."""
    row = table_of(
        "data", "neuron", "mode", "float", "int32 membranes", "int16, saturating", "leak by shifts"
    )
    for dataset, timesteps in TASKS:
        for neuron, mode in (
            ("UltraLIF", "hard"), ("UltraLIF", "tropical"), ("UltraDLIF", "hard"), ("UltraDLIF", "tropical"),
            ("LIF", "hard"),
        ):  # fmt: skip
            net, data = trained(folder, dataset, timesteps, neuron), task(dataset, timesteps)
            float_accuracy = export.gap(net, data.test())[mode].accuracy
            options = {"mode": mode, "timesteps": timesteps, "input_max": int(data.test_x.max())}
            options["input_max"] = 1 if dataset == "MNIST" else options["input_max"]
            made = [
                export.quantize(net, **options),
                export.quantize(net, **options, bits=16, clip_membrane=True),
                *([export.quantize(net, **options, leak="shift")] if neuron == "LIF" else []),
            ]
            cells = [f"{value:.2f}" for value in (float_accuracy, *(_accuracy(one, data) for one in made))]
            row(f"{dataset}, T={timesteps}", neuron, mode, *cells, *[""] * (4 - len(cells)))
    row = table_of(
        "entries",
        "bytes",
        "largest error, eps",
        "UltraDLIF, MNIST, T=10, hard",
        "decisions equal to float, %",
    )
    net, data = trained(folder, "MNIST", 10, "UltraDLIF"), task("MNIST", 10)
    x = torch.cat([x for x, _ in data.test()], 1)
    with ul.mode(net, "hard"), torch.no_grad():
        expected = net(x).argmax(1)
    for bits in (3, 4, 5, 6, 8, 10):
        integer = export.quantize(net, timesteps=10, table_bits=bits)
        made = integer.neurons[0].table
        resolution = len(made.entries) << made.shift >> 3
        found = integer.run(x).scores.argmax(1)
        cells = (f"{100 * (found == y).double().mean():.2f}" for y in (data.test_y, expected))
        row(2**bits, 2 * 2**bits, f"{table_error(made, resolution):.4f}", *cells)


def _pictures(data: Task, steps: int, seed: int, size: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield training images as ``[1, B, 1, 28, 28]``, each moved by up to two pixels."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        index = torch.randint(len(data.x), (size,), generator=generator)
        x = torch.nn.functional.pad(data.x[index].view(-1, 28, 28).float() / 255, [2] * 4)
        down, right = torch.randint(5, (2, size), generator=generator).tolist()
        moved = [x[i, a : a + 28, b : b + 28] for i, (a, b) in enumerate(zip(down, right, strict=True))]
        yield torch.stack(moved)[None, :, None], data.y[index]


def show_bits(folder: Path) -> None:
    """Print the integer accuracy in percent: the mean and half the range over three seeds."""
    row = table_of(
        "network", "bits per weight", "floats", "rounded after training", "after more float training",
        "after quantization-aware training",
    )  # fmt: skip
    for name in ("vgg5", "784-64-10"):
        found: dict[int, list[list[float]]] = {8: [], 4: []}
        for seed in range(3):
            for bits, values in _bits(folder, name, seed):
                found[bits].append(values)
                print(f"<!-- {name}, seed {seed}, {bits} bits: {values} -->", flush=True)
        for bits, seeds in found.items():
            columns = zip(*seeds, strict=True)
            row(name, bits, *(f"{mean(c):.2f} ± {(max(c) - min(c)) / 2:.2f}" for c in columns))


def _bits(folder: Path, name: str, seed: int) -> Iterator[tuple[int, list[float]]]:
    """Yield the bits per weight, the float accuracy, and the integer accuracy from three methods."""
    data, how = task("MNIST", 1), {"timesteps": 1, "bits": 16, "clip_membrane": True}
    if name == "vgg5":
        net, how = ul.load("mnist/vgg5-t1"), how | {"input_range": (0, 1)}
        images = (data.test_x.float() / 255).view(1, -1, 1, 28, 28)
        test = list(zip(images.split(500, 1), data.test_y.split(500), strict=True))
        more, batches = {"steps": 200, "lr": 5e-4}, partial(_pictures, data, 200, seed)
    else:
        net, test = trained(folder, "MNIST", 1, "UltraLIF", seed), list(data.test())
        more, batches = {"steps": data.steps(2), "lr": 2e-3}, partial(data.epochs, 2, 1000 + seed)
    floats, before = export.finetune(net, batches(), **more), export.gap(net, test)["hard"].accuracy
    for bits in (8, 4):
        values = [before]
        for made in (net, floats, export.finetune(net, batches(), **more, weight_bits=bits, **how)):
            integer = export.quantize(made, weight_bits=bits, shape=test[0][0].shape[2:], **how)
            values.append(_accuracy_in_c(integer, test))
        yield bits, values


def _accuracy_in_c(integer: export.IntegerNetwork, test: list[tuple[Tensor, Tensor]]) -> float:
    """Return the percentage of correct answers of the exported program at one time step."""
    x, labels = torch.cat([x for x, _ in test], 1), torch.cat([y for _, y in test])
    with tempfile.TemporaryDirectory() as made:
        export.to_c(integer, f"{made}/c", x[:, :4])
        subprocess.run(["make", "-s", "-C", f"{made}/c", "CFLAGS=-O2 -march=native", "model"], check=True)
        stdin = (x if integer.levels is None else integer.levels(x)).byte().numpy().tobytes()
        done = subprocess.run([f"{made}/c/model"], input=stdin, capture_output=True, check=True)
    found = torch.tensor([int(line.split()[0]) for line in done.stdout.splitlines()])
    return 100 * (found == labels).double().mean().item()


BENCH = r"""
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static model_state state;
int main(int argc, char **argv)
{
    long samples = atol(argv[1]), steps = atol(argv[2]), i, t;
    size_t size = (size_t)samples * steps * MODEL_INPUTS;
    uint8_t *x = malloc(size);
    struct timespec a, b;
    long sum = 0;
    if (argc != 3 || fread(x, 1, size, stdin) != size)
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (i = 0; i < samples; i++) {
        model_reset(&state);
        for (t = 0; t < steps; t++)
            model_frame(&state, x + (i * steps + t) * MODEL_INPUTS);
        sum += model_class(&state);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.1f %ld\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / samples, sum);
    return 0;
}
"""


def _in_c(integer: export.IntegerNetwork, x: Tensor) -> tuple[float, str]:
    """Return nanoseconds per sample (the median of nine runs) and the sizes on a Cortex-M3."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "c"
        export.to_c(integer, out, x[:, :4])
        (out / "bench.c").write_text(BENCH)
        sources = [out / name for name in ("bench.c", "model.c")]
        subprocess.run(
            ["gcc", "-O2", "-march=native", "-std=gnu99", *sources, "-o", out / "bench"], check=True
        )
        stdin = x.transpose(0, 1).to(torch.uint8).contiguous().numpy().tobytes()
        command = [out / "bench", str(x.shape[1]), str(len(x))]
        runs = [
            subprocess.run(command, input=stdin, capture_output=True, check=True).stdout for _ in range(9)
        ]
        size = "not measured"
        if shutil.which("arm-none-eabi-gcc"):
            subprocess.run(["make", "-s", "-C", out, "selftest.elf"], check=True)
            done = subprocess.run(
                ["arm-none-eabi-size", out / "model-arm.o"], capture_output=True, check=True
            )
            size = done.stdout.decode().splitlines()[1].split()[0]
    return median(float(run.split()[0]) for run in runs), size


def _in_onnxruntime(session: onnxruntime.InferenceSession, x: Tensor) -> object:
    return session.run(None, {"x": x.numpy()})


def _timed(call: Callable[[Tensor], object], x: Tensor) -> float:
    """Return nanoseconds per sample: the median over one second of calls, after a warm-up."""
    call(x)
    times, start = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - start < 1:
        before = time.perf_counter_ns()
        call(x)
        times.append((time.perf_counter_ns() - before) / x.shape[1])
    return median(times)


def show_speed(folder: Path) -> None:
    """Print the cost of an inference in C, PyTorch and onnxruntime on one thread."""
    row = table_of(
        "data", "neuron", "mode", "events", "spikes", "additions", "dense", "constants, B", "state, B",
        "Cortex-M3 flash, B", "C, ns", "PyTorch, batch 1, ns", "batch 1000, ns", "onnxruntime, batch 1, ns",
        "batch 1000, ns",
    )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for dataset, timesteps in TASKS:
        for neuron, mode in (("UltraDLIF", "tropical"), ("UltraLIF", "hard"), ("LIF", "hard")):
            net, data = trained(folder, dataset, timesteps, neuron), task(dataset, timesteps)
            x, _ = next(data.test())
            integer = export.quantize(net, mode=mode, timesteps=timesteps, input_max=int(x.max()))
            output, size = integer.run(x), export.footprint(integer)
            nanoseconds, flash = _in_c(integer, x)
            with tempfile.TemporaryDirectory() as out:
                export.to_onnx(net, f"{out}/model.onnx", mode=mode, timesteps=timesteps)
                session = onnxruntime.InferenceSession(f"{out}/model.onnx", options)
            with ul.mode(net, mode), torch.no_grad():
                times = [
                    _timed(call, part)
                    for call in (net, partial(_in_onnxruntime, session))
                    for part in (x[:, :1].contiguous(), x)
                ]
            counts = (int(x.sum()), int(output.spikes[0].sum()), integer.additions(x, output))
            dense = timesteps * sum(synapses.weight.numel() for synapses in integer.synapses)
            cells = [f"{count / x.shape[1]:.0f}" for count in counts]
            cells += [dense, size.rom, size.ram, flash]
            cells += [f"{value:.0f}" for value in (nanoseconds, *times)]
            row(f"{dataset}, T={timesteps}", neuron, mode, *cells)


def show_nir(folder: Path) -> None:
    """Print how far LIF differs from the neurons that it replaces in a NIR file."""
    row = table_of("data", "neuron", "mode", "spikes that differ, %", "decisions that differ, %")
    for dataset, timesteps in TASKS:
        for neuron, mode in (("UltraLIF", "hard"), ("UltraDLIF", "hard"), ("UltraDLIF", "tropical")):
            net, data = trained(folder, dataset, timesteps, neuron), task(dataset, timesteps)
            x, _ = next(data.test())
            with tempfile.TemporaryDirectory() as out:
                drift = export.to_nir(net, f"{out}/model.nir", mode=mode, approximate=x)
            row(f"{dataset}, T={timesteps}", neuron, mode, *(f"{100 * share:.2f}" for share in drift))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    shows = {
        "gap": show_gap,
        "integers": show_integers,
        "bits": show_bits,
        "speed": show_speed,
        "nir": show_nir,
    }
    parser.add_argument("what", choices=shows)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "ultralif-digits")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{platform.machine()}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, one thread"
    )
    shows[arguments.what](arguments.cache)


if __name__ == "__main__":
    main()
