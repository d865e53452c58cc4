"""Train one network as in the author's released code.

    python -m research studies reading UltraDLIF --dataset mnist --timesteps 1
    python -m research studies reading UltraPLIF --reading ablation

The neurons are plain PyTorch, so training is slower than with the library's own. The results of all runs in
these readings are in research/results.
"""

import argparse
from pathlib import Path

from research.readings.presets import READINGS, reading_config
from ultralif.training import train


def main() -> None:
    """Train a network and print its accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("neuron", choices=READINGS["released"][1])
    parser.add_argument("--reading", choices=READINGS, default="released")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--encoding", help="an encoding other than the reading's, such as rate")
    parser.add_argument("--timesteps", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--runs-dir", type=Path)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    places = {name: given.pop(name) for name in ("device", "data_dir", "runs_dir") if name in given}
    result = train(reading_config(given.pop("reading"), given.pop("neuron"), **given), **places)
    print(f"{result!r}, best test epoch {result.by_epoch.best}")


if __name__ == "__main__":
    main()
