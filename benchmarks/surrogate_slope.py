"""Compare slopes of LIF's default surrogate, the scaled arctangent, on samples held out from training.

    ULTRALIF_DATA=/path/to/data python benchmarks/surrogate_slope.py

The test sets are not used. Finished runs are kept in ``--runs-dir``, so the command can be repeated.
"""

import argparse
import json
import platform
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import ultralif as ul
from ultralif.data.user_data import register_data
from ultralif.training import Store, plan, run_local
from ultralif.training.config import PRESETS

RESULT = Path(__file__).parents[1] / "docs" / "results" / "surrogate-slope.json"
SLOPES = (0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = range(1, 6)
T_VALUE = 2.776
"""Student's t for a 95 % interval of five differences."""


def some_mnist() -> str:
    """Register 4,000 MNIST training images; the images passed as a test set are not used."""
    train = ul.data.load("mnist", timesteps=1).train
    x, y = train.batch(list(range(4100))), train.labels[:4100]
    return register_data((x[:4000], y[:4000]), (x[4000:], y[4000:]), title="4,000 images of MNIST")


def tasks() -> dict[str, ul.RunConfig]:
    """Return one config per network; only the seed and the slope are varied."""
    mlp: dict[str, Any] = {"timesteps": 10, "learning_rate": 0.01, "validation": 0.25, "neuron": "LIF"}
    deep = {**PRESETS["digits"], "validation": 0.25, "neuron": "LIF"}
    return {
        "digits, two layers of 64, T=10": ul.RunConfig(hidden=(64, 64), epochs=40, **mlp),
        "MNIST, 4,000 images, two layers of 128, T=10": ul.RunConfig(
            dataset=some_mnist(), hidden=(128, 128), epochs=20, **mlp
        ),
        "digits, five convolutions, T=4": ul.RunConfig(**deep),
    }


def main() -> None:
    """Train 75 networks, in about half an hour on two busy cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs-dir", default="runs")
    store = Store(parser.parse_args().runs_dir)
    found: dict[str, Any] = {"machine": platform.machine(), "seeds": len(SEEDS)}
    for task, base in tasks().items():
        wanted = {
            slope: [base.with_(seed=seed, neuron_options={"surrogate_slope": slope}) for seed in SEEDS]
            for slope in SLOPES
        }
        for result in run_local(plan([one for some in wanted.values() for one in some], store), store):
            print(task, result.id, result.validation, flush=True)
        held_out = {
            slope: [store.read(one.id).result.by_mode["hard"].validation or 0.0 for one in some]
            for slope, some in wanted.items()
        }
        found[task] = {}
        for slope, values in held_out.items():
            gains = [value - at_two for value, at_two in zip(values, held_out[2.0], strict=True)]
            found[task][f"{slope:g}"] = {
                "held_out_percent": [round(value, 2) for value in values],
                "mean": round(mean(values), 2),
                "gain_over_2": [round(mean(gains), 2), round(T_VALUE * stdev(gains) / len(gains) ** 0.5, 2)],
            }
        RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
