"""A small VGG for MNIST on a Cortex-M3: train it, count it in integers, run its self-test in QEMU.

    python benchmarks/cortex_m.py [--epochs 2] [--samples 20000] [--test-samples 10000] [--data-dir FOLDER]

Prints the accuracy of floats, integers and C on the test set, and the bytes of flash and RAM. It needs
make and a C compiler; arm-none-eabi-gcc and qemu-system-arm for the last two lines.
"""

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import ultralif as ul
from ultralif import export

TIMESTEPS, SHAPE = 8, (1, 28, 28)
STAGES = ((1, 8), (8, 16))  # channels


def frames(x: Tensor) -> Tensor:
    """Return ``[T, B, 1, 28, 28]`` for what the loader gives."""
    return x.reshape(*x.shape[:2], *SHAPE)


def small_vgg() -> nn.Module:
    """Return two convolutions with batch norm and maximum pooling before their neurons, and a linear head."""
    stages = [
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(b)) for a, b in STAGES
    ]
    layers = [layer for stage in stages for layer in (ul.TimeDistributed(stage), ul.UltraLIF())]
    return nn.Sequential(*layers, nn.Flatten(2), nn.Linear(16 * 7 * 7, 10))


def train(net: nn.Module, split: ul.data.Split, epochs: int) -> None:
    """Train soft, and binary for the last third."""
    loader = ul.data.Loader(split, 100, TIMESTEPS)
    steps = epochs * len(loader)
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps)
    for step in range(steps):
        if step % len(loader) == 0:
            batches = loader.epoch(step // len(loader))
        ul.set_mode(net, "soft" if step < 2 * steps // 3 else "hard")
        x, labels = next(batches)
        optimizer.zero_grad()
        cross_entropy(net(frames(x)).mean(0), labels).backward()
        optimizer.step()
        schedule.step()


def in_c(folder: Path, x: Tensor) -> Tensor:
    """Return the classes that the built program finds."""
    counts = x.flatten(2).transpose(0, 1).contiguous().byte().numpy().tobytes()
    done = subprocess.run([folder / "model", str(len(x))], input=counts, capture_output=True, check=True)
    return torch.tensor([int(line.split()[0]) for line in done.stdout.splitlines()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=20_000, help="of the training set")
    parser.add_argument("--test-samples", type=int, default=10_000)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    mnist = ul.data.load("mnist", data_dir=arguments.data_dir)
    net = small_vgg()
    start = time.perf_counter()
    train(net, mnist.train.subset(torch.arange(arguments.samples)), arguments.epochs)
    print(
        f"trained on {arguments.samples} digits x {arguments.epochs} in {time.perf_counter() - start:.0f} s"
    )
    net.eval()
    integer = export.quantize(net, timesteps=TIMESTEPS, shape=SHAPE, bits=16, saturate=True)
    right, seen, agree = torch.zeros(3), 0, True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "vgg"
        test = mnist.test.subset(torch.arange(arguments.test_samples))
        batches = ul.data.Loader(test, 250, TIMESTEPS, shuffle=False)
        some = frames(next(iter(batches))[0])
        additions = integer.additions(some, integer.run(some)) / some.shape[1]
        size = export.to_c(integer, folder, some[:, :4], title="A VGG for MNIST")
        subprocess.run(["make", "-s", "-C", folder, "test"], check=True)
        for x, labels in batches:
            with torch.no_grad():
                floats = net(frames(x)).mean(0).argmax(1)
            found = [floats, integer.run(frames(x)).scores.argmax(1), in_c(folder, x)]
            agree &= torch.equal(*found[1:])
            right += torch.tensor([float((part == labels).sum()) for part in found])
            seen += len(labels)
        for name, value in zip(("floats", "integers", "C"), right.tolist(), strict=True):
            print(f"{name:9} {100 * value / seen:6.2f} % of {seen} test digits")
        dense = TIMESTEPS * (8 * 9 * 28 * 28 + 16 * 8 * 9 * 14 * 14 + 16 * 49 * 10)
        print(f"{additions:,.0f} additions a digit; the dense network multiplies {dense:,} times")
        print(
            f"{integer}: {size.rom} bytes of constants, {size.ram} of state; C decides as integers: {agree}"
        )
        if shutil.which("arm-none-eabi-gcc"):
            subprocess.run(["make", "-s", "-C", folder, "cortex-m"], check=True)
        if shutil.which("qemu-system-arm"):
            subprocess.run(["make", "-s", "-C", folder, "qemu"], check=True)


if __name__ == "__main__":
    main()
