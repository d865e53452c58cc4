"""Train the zoo's spoken-digit network on a CPU, and count its instructions on a Cortex-M.

    python -m research.studies.contrast_data SETS SHD packed     # pack the data into a folder
    python tools/spoken_zoo.py packed train src/ultralif/zoo     # also writes packed/spoken.npz
    ultralif eval shd/ultraplif-t99 --dataset packed/spoken.npz
    python tools/spoken_zoo.py packed count                      # needs arm-none-eabi-gcc and Unicorn

It repeats a run of ``research/studies/contrasts.py``: UltraPLIF without reset, with the settings chosen on
held-out speakers and the first fresh seed. Batch norm is folded into the weights, so the network is a plain
`ultralif.Network`. ``spoken.npz`` contains the training set and the official test set in the format that the
network reads. ``count`` exports the network to C, replays test samples in an emulator, and writes
``research/results/spoken.json``.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import ultralif as ul
from research import RESULTS
from research.studies.contrast_nets import Cell
from research.studies.contrasts import EPOCHS, TaskData, judge, train
from ultralif.data import register_data
from ultralif.training import RunConfig
from ultralif.training.networks import build_perceptron
from ultralif.training.zoo import add_model, packed, unpacked

NAME = "shd/ultraplif-t99"
CELL = Cell(
    study="network",
    task="spoken",
    method="UltraPLIF, no reset",
    lr=5e-3,
    width=0.3,
    tau=(2.0, 20.0),
    shift=3,
    dropout=0.2,
    seed=1,
)
EXPORT = "--to c --input-max 5 --max-events 530 --bits 16 --clip-membrane"
"""Five neighbouring channels are summed, each with at most one spike per step. The training samples have at
most 526 spikes per step."""
SECONDS = CELL.timesteps / 100
"""Duration of the audio in a sample."""


def write_samples(data: TaskData, path: Path) -> str:
    """Write training and official test samples for ``--dataset``, and return the name of the data."""
    arrays = {}
    for half, name in (("train", "train"), ("official", "test")):
        arrays[f"events_{name}"] = data.arrays[f"{half}.x"]
        arrays[f"y_{name}"] = data.arrays[f"{half}.labels"]
    np.savez_compressed(path, **{name: values.numpy() for name, values in arrays.items()})
    halves = ((arrays[f"events_{name}"], arrays[f"y_{name}"]) for name in ("train", "test"))
    return register_data(*halves, events=True)


@torch.no_grad()
def folded(net: Any) -> dict[str, Tensor]:
    """Return parameters that make an `ultralif.Network` equal to a network with batch norm."""
    found = {f"linears.{len(net.maps)}.{name}": value for name, value in net.head.state_dict().items()}
    for place, (linear, norm, neuron) in enumerate(zip(net.maps, net.norms, net.neurons, strict=True)):
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        found[f"linears.{place}.weight"] = linear.weight * scale.unsqueeze(1)
        found[f"linears.{place}.bias"] = norm.bias - norm.running_mean * scale
        found[f"neurons.{place}.log_eps"] = neuron.log_eps
        found[f"neurons.{place}.logit_leak"] = neuron.leak.logit()
    return {name: value.detach().clone() for name, value in found.items()}


def config_of(dataset: str, hidden: tuple[int, ...]) -> RunConfig:
    """Return the config that builds the network with the library."""
    return RunConfig(
        dataset=dataset,
        neuron="UltraPLIF",
        timesteps=CELL.timesteps,
        seed=CELL.seed,
        epochs=EPOCHS[CELL.task],
        learning_rate=CELL.lr,
        hidden=hidden,
        mode="hard",
        per_neuron=True,
        neuron_options={"reset": "none", "eps": CELL.width},
    )


def build(config: RunConfig, tensors: dict[str, Tensor]) -> nn.Module:
    """Return the network of a config with these parameters, in hard mode."""
    sizes = (tensors["linears.0.weight"].shape[1], *config.hidden, len(tensors["linears.2.weight"]))
    net = build_perceptron(config, sizes)
    net.load_state_dict(tensors)
    ul.set_mode(net, "hard")
    return net.eval()


def make(folder: Path, zoo: Path) -> None:
    """Train the network, and put it into a zoo."""
    data = TaskData(CELL, str(folder), "cpu", None)
    began, busy = time.perf_counter(), time.process_time()
    net: Any = train(CELL, data, record=False).eval()
    times = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - busy}
    ul.set_mode(net, "hard")
    trained = {half: judge(net, data, half)[0] for half in data.tests}
    tensors = folded(net)
    config = config_of(write_samples(data, folder / "spoken.npz"), data.sizes()[1:-1])
    kept = build(config, unpacked(packed(tensors, int8=True)))
    accuracy = {half: judge(kept, data, half)[0] for half in data.tests}
    eps, leak = (torch.cat([getattr(neuron, name) for neuron in net.neurons]) for name in ("eps", "leak"))
    card = {
        "config": config.to_dict(),
        "run": config.id,
        "command": f"python tools/spoken_zoo.py packed train src/ultralif/zoo  # {NAME}",
        "recipe": asdict(CELL),
        "accuracy": {"hard": accuracy["official"]},
        "regenerated_accuracy": accuracy["test"],
        "trained_accuracy": trained["official"],
        "eps": eps.mean().item(),
        "leak": leak.mean().item(),
        "inputs": "99 steps of 10 ms; 140 sums of five neighbouring channels, each at most one spike a step; "
        "channel 0 is left out",
        "note": "Trained on spikes regenerated from the original recordings; accuracy on the official test "
        "set in 10 ms bins. One seed, its last epoch. Nothing was chosen on the test set.",
        "environment": {"device": f"{platform.machine()}, one thread", **times},
    }
    add_model(zoo, NAME, tensors, card, int8=True)
    print(f"{NAME}: trained {trained}, as int8 {accuracy}, {times}")


def output_of(*words: str | Path) -> str:
    """Run a command and return its output."""
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 (our own arguments)
    return done.stdout


def count(folder: Path) -> None:
    """Export the network to C, count its instructions, and write the numbers."""
    with tempfile.TemporaryDirectory() as made:
        out = Path(made) / "net"
        export = [sys.executable, "-m", "ultralif", "export", NAME, *EXPORT.split(), "--json"]
        told = output_of(*export, "--out", out, "--dataset", folder / "spoken.npz")
        report = json.loads(told.splitlines()[-1])
        counted = output_of("make", "-s", "-C", out, "count", f"PYTHON={sys.executable}")
    boards: dict[str, dict[str, int]] = {}
    for line in counted.replace(",", "").splitlines():
        name = line.split()[0].lower().removeprefix("cortex-")
        found = re.findall(r"(\d+) (instructions|bytes of stack)|(flash|RAM) (\d+)", line)
        boards.setdefault(name, {}).update((a or c, int(n or d)) for n, a, c, d in found)
    with np.load(folder / "spoken.npz") as file:
        replayed = file["events_test"][: int(report["self_test"].split()[0])]
    numbers = {
        "network": NAME,
        "shapes": report["shapes"],
        "command": f"ultralif export {NAME} {EXPORT}",
        "seconds_of_audio": SECONDS,
        "samples": len(replayed),
        "events": float(replayed.sum() / len(replayed)),
        **{name: report[name] for name in ("float_percent", "integer_percent", "decides_as_floats")},
        **{name: report[name] for name in ("constant_bytes", "state_bytes")},
        "boards": boards,
    }
    (RESULTS / "spoken.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print(json.dumps(numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("packed", type=Path, help="the folder with packed data")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("train").add_argument("zoo", type=Path, help="the folder to fill")
    actions.add_parser("count")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.action == "train":
        make(given.packed, given.zoo)
    else:
        count(given.packed)


if __name__ == "__main__":
    main()
