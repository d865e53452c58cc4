"""Take a network from soft training to plain C, and check that the C code agrees with PyTorch."""

import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

import ultralif as ul
from ultralif import export

TIMESTEPS = 10


def percent(answers: Tensor, labels: Tensor) -> float:
    return 100 * (answers == labels).float().mean().item()


def run_c(folder: Path, x: Tensor) -> Tensor:
    """Build the model with the system's compiler, run its self-test, and classify [T, B, *input]."""
    subprocess.run(["make", "-s", "-C", folder, "test"], check=True)
    counts = x.flatten(2).transpose(0, 1).contiguous().byte().numpy().tobytes()  # one byte per count
    done = subprocess.run([folder / "model", str(len(x))], input=counts, capture_output=True, check=True)
    return torch.tensor([int(line.split()[0]) for line in done.stdout.splitlines()])


def main(folder: Path) -> dict[str, float]:
    config = ul.RunConfig(
        neuron="UltraDLIF", timesteps=TIMESTEPS, epochs=40, learning_rate=1e-2, hidden=(32,)
    )
    net = ul.load(ul.train(config, runs_dir=folder / "runs").path)
    digits = ul.data.load("digits")
    (train_x, _), *_ = ul.data.Loader(digits.train, 1000, TIMESTEPS).epoch(0)
    x, labels = next(ul.data.Loader(digits.test, 360, TIMESTEPS, shuffle=False).epoch(0))

    found = {"soft": percent(net(x).argmax(1), labels)}
    net = export.calibrate(net, train_x, to="tropical")  # only adds and compares; thresholds adjusted
    found["tropical"] = percent(net(x).argmax(1), labels)
    integer = export.quantize(net, mode="tropical", timesteps=TIMESTEPS)
    simulated = integer.run(x)
    found["integers"] = percent(simulated.scores.argmax(1), labels)
    size = export.to_c(integer, folder / "model", recorded=x[:, :8], title="Digits")
    answers = run_c(folder / "model", x)
    found["C"] = percent(answers, labels)

    for name, value in found.items():
        print(f"{name:9} {value:5.1f} % correct")
    print(f"{size.rom} bytes of constants, {size.ram} of state")
    additions = integer.additions(x, simulated) / len(labels)
    print(f"{additions:,.0f} additions per digit, no multiplication; dense: {TIMESTEPS * (64 * 32 + 320):,}")
    assert torch.equal(answers, simulated.scores.argmax(1))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
