"""Count instructions, RAM and flash of exported networks on Cortex-M, and of dense int8 networks.

    python benchmarks/board.py            # count what docs/results/board.json is missing, and write the table
    python benchmarks/board.py --host     # time an inference on this machine against onnxruntime int8

Needs arm-none-eabi-gcc and ``pip install unicorn``, and MNIST and N-MNIST in $ULTRALIF_TEST_DATA or
../shared/data. Counts are saved after every subject and board, so an interrupted run resumes. The table
replaces the lines between the markers in docs/results/deployment.md.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

import digits
import numpy as np
import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.export import IntegerNetwork, quantize, to_c
from ultralif.export.c.count import Emulator

ROOT = Path(__file__).parents[1]
JSON, PAGE = ROOT / "docs/results/board.json", ROOT / "docs/results/deployment.md"
BOARDS = ("m0plus", "m3", "m4-portable", "m4")
DENSE_MACS = 3_725_568
CMSIS = {"m0plus": 27.9e6, "m3": 11.9e6, "m4": 8.50e6}
"""CMSIS-NN 99f736a at -Ofast, the same layer shapes with ReLU, mean of 50 images; counted once, not by this
command: 46 to 50 kB of flash, 19,968 bytes of RAM."""


@cache
def images(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return test images of MNIST as bytes ``[count, 784]``."""
    return np.asarray(digits.task("MNIST", 1).test_x[:count], np.uint8).reshape(-1, 784)


@cache
def recordings(count: int) -> Tensor:
    """Return N-MNIST test samples as event counts in ten time steps, ``[10, count, inputs]``."""
    x, _ = next(digits.task("N-MNIST", 10).test())
    return x[:, :count].long()


class Subject:
    """A program and its inputs."""

    def __init__(self, name: str, samples: int, steps: int = 1) -> None:
        self.name, self.samples, self.steps = name, samples, steps

    def write(self, folder: Path) -> int:
        """Write the program and its Makefile into a folder, and return the size of its state in bytes."""
        raise NotImplementedError

    def frames(self, sample: int) -> list[bytes]:
        """Return a sample's input: one frame per time step, or a single constant frame."""
        return [images(self.samples)[sample].tobytes()]

    def scores(self) -> Tensor | None:
        """Return the expected scores ``[samples, classes]``, if known."""
        return None


class Exported(Subject):
    """A spiking network exported by the library."""

    def network(self) -> IntegerNetwork:
        """Return the integer network."""
        raise NotImplementedError

    def inputs(self) -> Tensor:
        """Return the inputs of all samples, ``[T, samples, *input]``."""
        raise NotImplementedError

    def write(self, folder: Path) -> int:
        return to_c(self.network(), folder, self.inputs()[:, :8]).ram

    def scores(self) -> Tensor:
        return self.network().run(self.inputs()).scores


class Spiking(Exported):
    """The library's MNIST network with a given number of time steps and weight bits."""

    def __init__(self, name: str, samples: int, steps: int = 1, weight_bits: Literal[4, 8] = 8) -> None:
        super().__init__(name, samples, steps)
        self.weight_bits = weight_bits

    def network(self) -> IntegerNetwork:
        return vgg5(self.steps, self.weight_bits)

    def inputs(self) -> Tensor:
        pixels = torch.tensor(images(self.samples) / 255.0).view(1, -1, 1, 28, 28)
        return pixels.expand(self.steps, -1, -1, -1, -1)


class Events(Exported):
    """A 2312-64-10 perceptron with event input, at ten time steps."""

    def network(self) -> IntegerNetwork:
        cached = Path(os.environ.get("BOARD_CACHE", Path(tempfile.gettempdir()) / "ultralif-board"))
        cached.mkdir(exist_ok=True)
        net = digits.trained(cached, "N-MNIST", 10, "UltraLIF", 0)
        most = int(recordings(1000).max())
        events = int(recordings(1000).sum(-1).max())
        return quantize(net, mode="hard", timesteps=10, input_max=most, max_events=2 * events)

    def inputs(self) -> Tensor:
        return recordings(self.samples)

    def frames(self, sample: int) -> list[bytes]:
        return [step[sample].numpy().astype("u1").tobytes() for step in self.inputs()]


class Dense(Subject):
    """The dense int8 network of board_dense.c."""

    def __init__(
        self,
        name: str,
        samples: int,
        channels: Sequence[int] = (16, 32, 32, 64),
        side: int = 28,
        colors: int = 1,
    ) -> None:
        super().__init__(name, samples)
        self.channels, self.side, self.colors = channels, side, colors

    def frames(self, sample: int) -> list[bytes]:
        return [np.resize(images(self.samples)[sample], self.side**2 * self.colors).tobytes()]

    def write(self, folder: Path) -> int:
        Spiking("", 8).write(folder)  # for its Makefile and start-up code
        a, b, c, d = self.channels
        shapes = {1: 9 * a * self.colors, 2: 9 * a * b, 3: 9 * b * c, 4: 9 * c * d, 5: 10 * d}
        drawn = np.random.default_rng(0)
        text = [
            f"static const int8_t weight_{i}[] = {{{', '.join(map(str, drawn.integers(-127, 128, n)))}}};\n"
            for i, n in shapes.items()
        ]
        (folder / "dense_weights.h").write_text("".join(text))
        (folder / "weights.h").write_text("")
        whole, half, quarter = (self.side // n * (self.side // n) for n in (1, 2, 4))
        maps = max(whole * a, half * c), max(whole * self.colors, half * b, quarter * d)
        sizes = "".join(f"#define C{i} {n}\n" for i, n in enumerate((self.colors, *self.channels)))
        (folder / "model.h").write_text(
            f"#include <stdint.h>\n{sizes}#define SIDE {self.side}\n"
            f"#define MODEL_INPUTS {whole * self.colors}\n#define MODEL_CLASSES 10\n"
            "typedef uint8_t model_value;\n"
            f"typedef struct {{ int32_t score[10]; int8_t a[{maps[0]}], b[{maps[1]}]; }} model_state;\n"
            "void model_reset(model_state *s);\nint model_class(const model_state *s);\n"
            "int model_frame(model_state *s, const model_value *levels);\n"
            "int model_selftest(model_state *s);\n"
        )
        way = "#define IM2COL\n" if "im2col" in self.name else ""
        (folder / "model.c").write_text(way + (ROOT / "benchmarks/board_dense.c").read_text())
        (folder / "selftest.c").write_text("typedef int empty;\n")
        return 40 + sum(maps) + (9 * c if way else 0)


SUBJECTS = (
    Spiking("vgg5, one time step", 200),
    Spiking("vgg5, four time steps", 200, steps=4),
    Spiking("vgg5, one time step, weights of 4 bits", 200, weight_bits=4),
    Events("N-MNIST events, ten time steps", 50, steps=10),
    Dense("dense int8, plain loop", 2),
    Dense("dense int8, im2col", 2),
)


@cache
def vgg5(steps: int, weight_bits: Literal[4, 8] = 8) -> IntegerNetwork:
    """Return mnist/vgg5-t1 as an integer network; the weights are the same for any number of steps."""
    options = {"bits": 16, "clip_membrane": True, "weight_bits": weight_bits}
    net = ul.load("mnist/vgg5-t1")
    return quantize(net, timesteps=steps, shape=(1, 28, 28), input_range=(0, 1), **options)


def count(subject: Subject, board: str, folder: Path, samples: int | None = None) -> dict[str, Any]:
    """Build a subject for a board, and return its mean instructions per sample, flash and stack.

    The scores of exported networks are compared with those of the integer simulator.
    """
    flags = "CFLAGS=-O3"
    subprocess.run(["make", "-s", "-C", folder, flags, f"count-{board}.elf"], check=True)
    emulator = Emulator(folder / f"count-{board}.elf", board.split("-")[0])
    state, samples, expected = emulator.symbols["state"], samples or subject.samples, subject.scores()
    for sample in range(samples):
        emulator.call("model_reset", state)
        frames = subject.frames(sample)
        for step in range(subject.steps):
            if step < len(frames):
                failed = emulator.call("model_frame", state, emulator.write(frames[step]))
            else:
                failed = emulator.call("model_tick", state)
            if failed:
                raise RuntimeError(f"{subject.name}: the model refused sample {sample}")
        emulator.call("model_class", state)
        if expected is not None:
            scores = np.frombuffer(emulator.read(state, 4 * expected.shape[1]), "<i4")
            if scores.tolist() != expected[sample].tolist():
                raise RuntimeError(f"{subject.name}: sample {sample} differs from the simulator on {board}")
    size = subprocess.run(
        ["arm-none-eabi-size", folder / f"count-{board}-model.o"], check=True, capture_output=True, text=True
    )
    text, data = map(int, size.stdout.splitlines()[1].split()[:2])
    return {
        "instructions": round(emulator.instructions / samples),
        "samples": samples,
        "flash": text + data,
        "stack": emulator.stack(),
    }


def measure(found: dict[str, Any]) -> None:
    """Count what is missing, and save each count."""
    for subject in SUBJECTS:
        entry = found.setdefault(subject.name, {"boards": {}})
        lacking = [board for board in BOARDS if board not in entry["boards"]]
        if not lacking:
            continue
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "net"
            entry["state"] = subject.write(folder)
            for board in lacking:
                entry["boards"][board] = count(subject, board, folder)
                print(subject.name, board, entry["boards"][board], flush=True)
                JSON.write_text(json.dumps(found, indent=1) + "\n")


def table(found: dict[str, Any]) -> str:
    """Return the page's table."""
    lines = [
        "| million instructions per inference | Cortex-M0+ | M3 | M4, plain C | M4, DSP | flash, kB "
        "| state, bytes | samples |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in (subject.name for subject in SUBJECTS):
        entry = found[name]
        boards = entry["boards"]
        cells = [f"{boards[board]['instructions'] / 1e6:.2f}" for board in BOARDS]
        flash = [boards[board]["flash"] / 1e3 for board in BOARDS]
        size = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (min(flash), max(flash))))
        lines.append(
            f"| {name} | {' | '.join(cells)} | {size} | {entry['state']:,} | {boards['m3']['samples']} |"
        )
    dense = [f"{CMSIS[board] / 1e6:.1f}" if board in CMSIS else "-" for board in BOARDS]
    lines.append(f"| CMSIS-NN int8, the dense network | {' | '.join(dense)} | 46 to 50 | 19,968 | 50 |")
    lines += [
        "",
        "| times fewer than CMSIS-NN | Cortex-M0+ | M3 | M4, plain C | M4, DSP |",
        "|---|---|---|---|---|",
    ]
    for subject in SUBJECTS[:3]:
        boards = found[subject.name]["boards"]
        ratios = [
            f"{subject.steps * CMSIS[board.split('-')[0]] / boards[board]['instructions']:.1f}"
            for board in BOARDS
        ]
        lines.append(f"| {subject.name} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def relu_twin() -> nn.Module:
    """Return the dense network with ReLU and vgg5's shapes."""
    layers: list[nn.Module] = []
    for before, after, halved in ((1, 16, True), (16, 32, False), (32, 32, True), (32, 64, True)):
        layers += [nn.Conv2d(before, after, 3, padding=1), *[nn.MaxPool2d(2)] * halved, nn.ReLU()]
    return nn.Sequential(*layers, nn.AvgPool2d(3), nn.Flatten(), nn.Linear(64, 10)).eval()


def host(rounds: int = 40, samples: int = 200) -> dict[str, Any]:
    """Time single inferences on this machine, in turns: our C and onnxruntime int8, one thread each.

    Times are processor times, so other programs disturb them less.
    """
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    pixels = (images(samples) / np.float32(255)).astype(np.float32).reshape(-1, 1, 1, 28, 28)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(pixels[:100])

        def get_next(self) -> dict[str, Any] | None:
            x = next(self.left, None)
            return None if x is None else {"x": x}

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        Spiking("", 8).write(folder / "net")
        main = (
            '#include "model.h"\n#include <stdio.h>\n#include <time.h>\nstatic model_state s;\n'
            f"static model_value x[{samples}][784];\nint main(void)\n{{\n    int i, n = 0;\n"
            "    struct timespec a, b;\n    if (fread(x, 1, sizeof x, stdin) != sizeof x) return 1;\n"
            "    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);\n"
            f"    for (i = 0; i < {samples}; i++) {{\n        model_reset(&s);\n"
            "        model_frame(&s, x[i]);\n        n += model_class(&s);\n    }\n"
            "    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);\n"
            '    printf("%f %d\\n", (double)(b.tv_sec - a.tv_sec) * 1e6\n'
            "           + (double)(b.tv_nsec - a.tv_nsec) / 1e3, n);\n"
            "    return 0;\n}\n"
        )
        (folder / "net" / "timed.c").write_text(main)
        sources = [folder / "net" / name for name in ("timed.c", "model.c")]
        subprocess.run(["gcc", "-O3", "-march=native", "-o", folder / "timed", *sources], check=True)
        torch.manual_seed(0)
        torch.onnx.export(
            relu_twin(), (torch.zeros(1, 1, 28, 28),), folder / "f.onnx", input_names=["x"], dynamo=False
        )
        quantize_static(folder / "f.onnx", folder / "q.onnx", Reader())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(folder / "q.onnx", options, providers=["CPUExecutionProvider"])
        times: dict[str, list[float]] = {"ours": [], "onnxruntime": []}
        data = images(samples).tobytes()
        for _ in range(rounds):
            done = subprocess.run([folder / "timed"], input=data, capture_output=True, check=True)
            times["ours"].append(float(done.stdout.split()[0]) / samples)
            start = time.process_time()
            for x in pixels:
                session.run(None, {"x": x})
            times["onnxruntime"].append((time.process_time() - start) * 1e6 / samples)
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": cpu[1] if cpu else "",
        "rounds": rounds,
        "samples": samples,
        "onnxruntime_version": onnxruntime.__version__,
        **{f"{name}_us": round(median(values), 1) for name, values in times.items()},
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--host", action="store_true", help="time this machine against onnxruntime int8")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not shutil.which("arm-none-eabi-gcc"):
        raise SystemExit("arm-none-eabi-gcc is not installed; run: apt-get install gcc-arm-none-eabi")
    found: dict[str, Any] = json.loads(JSON.read_text()) if JSON.exists() else {}
    if given.host:
        found["host"] = host()
        print(found["host"])
        JSON.write_text(json.dumps(found, indent=1) + "\n")
    else:
        measure(found)
    page = PAGE.read_text()
    if all(len(found.get(subject.name, {}).get("boards", {})) == len(BOARDS) for subject in SUBJECTS):
        text = f"<!-- board -->\n\n{table(found)}\n\n<!-- /board -->"
        PAGE.write_text(re.sub(r"<!-- board -->.*<!-- /board -->", lambda _: text, page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
