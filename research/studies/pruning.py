"""Compare pruning by log-volume with pruning by magnitude at equal size on MNIST.

    python -m research studies pruning --data ../shared/data/mnist --out docs/results/pruning.md

A 784-128-10 network of UltraLIF neurons reads each image as a constant current for one time step. Its hidden
layer is pruned without data. The test accuracy is measured directly after pruning, with the mean of the
removed spikes kept as a bias, and after one more epoch of training.
"""

import argparse
import gzip
import json
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

import ultralif as ul
from research import DOCS
from ultralif.analysis import log_volume, merge_redundant, prune_neurons, volume_regularizer

HIDDEN, EPOCHS, BATCH, RATE = 128, 10, 256, 3e-3
SIZES = (96, 64, 32, 16)
CRITERIA = ("volume", "magnitude", "random")
MEASURES = ("pruned", "bias kept", "1 epoch more")


def read_idx(path: Path) -> Tensor:
    """Read an MNIST idx file: a header with a magic number and sizes, then bytes."""
    data = gzip.decompress(path.read_bytes())
    dimensions = data[3]
    shape = np.frombuffer(data, ">i4", dimensions, 4)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def load(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    images = [read_idx(folder / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k")]
    labels = [read_idx(folder / f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")]
    train_x, test_x = (image.flatten(1).float() / 255 for image in images)
    return train_x, labels[0].long(), test_x, labels[1].long()


def train(net: ul.Network, x: Tensor, y: Tensor, epochs: int, seed: int, alpha: float = 0.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=generator).split(BATCH):
            loss = cross_entropy(net(x[index].unsqueeze(0)), y[index])
            if alpha:
                loss = loss + alpha * volume_regularizer(net.linears[0].weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(net: ul.Network, x: Tensor, y: Tensor) -> float:
    return 100 * (net(x.unsqueeze(0)).argmax(1) == y).double().mean().item()


def prune_all(
    net: ul.Network, data: tuple[Tensor, Tensor, Tensor, Tensor], seed: int
) -> dict[tuple[str, int, str], float]:
    """Return the test accuracy for each criterion, size and measure."""
    train_x, train_y, test_x, test_y = data
    with torch.no_grad():
        mean_spikes = net.observe(train_x[:10_000].unsqueeze(0)).rates[0].mean(0)
    results = {}
    for by in CRITERIA:
        for keep in SIZES:
            generator = torch.Generator().manual_seed(seed)
            plain = prune_neurons(net, keep, by=by, generator=generator)
            generator.manual_seed(seed)
            kept = prune_neurons(net, keep, by=by, generator=generator, mean_spikes=mean_spikes)
            results[by, keep, "pruned"] = accuracy(plain, test_x, test_y)
            results[by, keep, "bias kept"] = accuracy(kept, test_x, test_y)
            train(kept, train_x, train_y, 1, seed)
            results[by, keep, "1 epoch more"] = accuracy(kept, test_x, test_y)
    return results


def mean_and_spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def table(results: list[dict[tuple[str, int, str], float]]) -> list[str]:
    lines = ["| measure | by | " + " | ".join(f"{keep} left" for keep in SIZES) + " |"]
    lines.append("|---|---|" + "---|" * len(SIZES))
    for measure in MEASURES:
        for by in CRITERIA:
            cells = []
            for keep in SIZES:
                values = [result[by, keep, measure] for result in results]
                cells.append(mean_and_spread(values))
            lines.append(f"| {measure} | {by} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mnist"))
    parser.add_argument("--out", type=Path, default=DOCS / "pruning.md")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.0, 1e-3])
    parser.add_argument("--save", type=Path, help="folder for the first network and three test images")
    args = parser.parse_args()
    torch.set_num_threads(1)
    start, data = time.perf_counter(), load(args.data)
    sections: list[str] = []
    for alpha in args.alphas:
        results, whole, volumes, merged = [], [], [], []
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            net = ul.Network((784, HIDDEN, 10), "UltraLIF")
            train(net, data[0], data[1], EPOCHS, seed, alpha)
            whole.append(accuracy(net, *data[2:]))
            volumes.append(float(log_volume(net.linears[0].weight.detach())))
            merged.append(HIDDEN - merge_redundant(net, tol=0.1).network.sizes[1])
            results.append(prune_all(net, data, seed))
            print(f"alpha {alpha:g} seed {seed}: {whole[-1]:.2f} %, log-volume {volumes[-1]:.1f}", flush=True)
            if args.save and seed == 0 and alpha == 0:
                args.save.mkdir(parents=True, exist_ok=True)
                described = {"neuron": "UltraLIF", "sizes": list(net.sizes), "neuron_options": {}}
                metadata = {"network": json.dumps(described), "mode": "soft"}
                save_file(net.state_dict(), args.save / "mnist.safetensors", metadata)
                np.save(args.save / "samples.npy", data[2][:3].numpy())
        trained = f"with {alpha:g} times the volume regularizer" if alpha else "on cross-entropy alone"
        sections += [
            f"## Trained {trained}",
            "",
            f"Whole network, {HIDDEN} neurons: {mean_and_spread(whole)} % correct, log-volume "
            f"{statistics.mean(volumes):.1f}. Neurons merged (equal within 10 %): {merged}.",
            "",
            *table(results),
            "",
        ]
    machine = f"{platform.machine()}, 1 thread, torch {torch.__version__}, a shared machine"
    minutes = (time.perf_counter() - start) / 60
    text = f"""# Pruning by log-volume and by magnitude, on MNIST

Command: `python -m research studies pruning --seeds {args.seeds}` ({minutes:.1f} minutes on {machine}).

A 784-{HIDDEN}-10 network of UltraLIF neurons sees each image as a constant current for one time step. It
was trained for {EPOCHS} epochs with Adam. The tables show the test accuracy in percent with soft spikes,
as mean ± standard deviation over {args.seeds} seeds, after the hidden layer was pruned to the number of
neurons in the header. Each network is measured three times: directly after
pruning, with the mean of the removed spikes kept as a bias (measured on 10,000 training images), and
after one more epoch with that bias. `volume`
removes the neuron whose removal costs the least log-volume, and `magnitude` the one with the smallest
weights.

"""
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text + "\n".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
