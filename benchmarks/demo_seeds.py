"""Train the demo's two neurons (examples/digits.py) with five seeds each; write accuracies and rates.

python benchmarks/demo_seeds.py
"""

import json
import platform
import tempfile
from pathlib import Path
from statistics import mean

import ultralif as ul
from ultralif.training.config import PRESETS

RESULT = Path(__file__).parents[1] / "docs" / "results" / "demo-seeds.json"


def main() -> None:
    """Train ten runs, which takes about ten minutes on two busy cores."""
    found: dict[str, object] = {"machine": platform.machine()}
    for neuron in ("UltraLIF", "LIF"):
        config = ul.RunConfig(**PRESETS["digits"], neuron=neuron)
        with tempfile.TemporaryDirectory() as folder:
            results = [ul.train(config.with_(seed=s), runs_dir=folder, progress=False) for s in range(42, 47)]
        hard = [result.by_mode["hard"].accuracy or 0.0 for result in results]
        found[neuron] = {"hard_percent": [round(value, 2) for value in hard], "mean": round(mean(hard), 2)}
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
