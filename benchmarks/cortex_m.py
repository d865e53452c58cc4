"""Take a trained network to a Cortex-M3 stage by stage: modes, integers, C, memory, the emulator.

    ultralif train --config deep --dataset mnist --width 0.5 --timesteps 2 --epochs 6 --batch-size 64 \
        --eps 0.5 --hard-share 0.5
    python benchmarks/cortex_m.py RUN [--samples 10000] [--weight-bits 8] [--data-dir FOLDER]

It needs make and a C compiler, and arm-none-eabi-gcc and qemu-system-arm for the last two lines.
"""

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif import export


def images(run: ul.RunConfig, samples: int, data_dir: Path | None) -> tuple[Tensor, Tensor]:
    """Return the first test images ``[N, C, H, W]`` and their labels."""
    test = ul.data.load(run.dataset, data_dir=data_dir).test
    some = test.subset(torch.arange(min(samples, len(test))))
    x, labels = next(ul.data.Loader(some, len(some), 1, "constant", shuffle=False).epoch(0))
    return x[0], labels


def percent(decided: Tensor, labels: Tensor) -> float:
    return 100 * (decided == labels).double().mean().item()


@torch.no_grad()
def by_floats(net: nn.Module, x: Tensor, mode: str) -> Tensor:
    with ul.mode(net, mode):
        return torch.cat([net(part).argmax(1) for part in x.split(250)])


def by_integers(integer: export.IntegerNetwork, x: Tensor) -> Iterator[tuple[Tensor, int]]:
    for part in x.split(250):
        shown = part.expand(integer.timesteps, *part.shape)
        output = integer.run(shown)
        yield output.scores.argmax(1), integer.additions(shown, output)


def in_c(folder: Path, integer: export.IntegerNetwork, x: Tensor) -> Tensor:
    levels = integer.levels(x).byte().numpy().tobytes()
    done = subprocess.run([folder / "model"], input=levels, capture_output=True, check=True)
    return torch.tensor([int(line.split()[0]) for line in done.stdout.splitlines()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--samples", type=int, default=10_000, help="of the test set")
    parser.add_argument("--weight-bits", type=int, default=8, choices=(8, 16))
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    net, run = ul.load(arguments.run).eval(), ul.Store().read(arguments.run).config
    x, labels = images(run, arguments.samples, arguments.data_dir)
    found = {mode: by_floats(net, x, mode) for mode in ("soft", "hard", "tropical")}
    how = {"timesteps": run.timesteps, "shape": x.shape[1:], "input_range": (0, 1)}
    how |= {"weight_bits": arguments.weight_bits, "bits": 16, "clip_membrane": True}
    integer = export.quantize(net, **how)
    parts = list(by_integers(integer, x))
    found["integers"] = torch.cat([decided for decided, _ in parts])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "net"
        replayed = x[:4].expand(run.timesteps, 4, *x.shape[1:])
        size = export.to_c(integer, folder, replayed, title=f"{run.model}, {run.dataset}")
        subprocess.run(["make", "-s", "-C", folder, "test"], check=True)
        found["C"] = in_c(folder, integer, x)
        for stage, decided in found.items():
            same = int((decided == found["hard"]).sum())
            print(f"{stage:9} {percent(decided, labels):6.2f} %, same as hard mode: {same} of {len(labels)}")
        additions = sum(count for _, count in parts) / len(labels)
        print(f"{integer}: {additions:,.0f} weight additions per image")
        print(f"{size.rom} bytes of constants, {size.ram} of state")
        if shutil.which("arm-none-eabi-gcc"):
            subprocess.run(["make", "-s", "-C", folder, "cortex-m"], check=True)
        if shutil.which("qemu-system-arm"):
            subprocess.run(["make", "-s", "-C", folder, "qemu"], check=True)


if __name__ == "__main__":
    main()
