"""How often hidden and output neurons spike in the paper's study of the temperature, as its author has it.

    python benchmarks/released.py ablation.jsonl.gz --stages ablation --seeds 1 --known --runs-dir RUNS
    python benchmarks/ablation_rates.py RUNS

The archive of results has the rate of hidden neurons alone, like the paper's other tables; the published
rates of this study seem to be those of all spiking neurons. Writes results/ablation-rates.json.
"""

import argparse
import json
from pathlib import Path

from ultralif.paper.grids import CONSTANT, key_of
from ultralif.training.store import Store

OUT = Path(__file__).parents[1] / "results" / "ablation-rates.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of runs that the first command has made")
    rows = {}
    for result in Store(parser.parse_args().runs).rows():
        key = key_of(result.config)
        if key is not None and key.encoding == CONSTANT:
            hidden, output = result.own.spike_rates
            rows[key.label] = {"hidden": round(hidden or 0.0, 4), "output": round(output or 0.0, 4)}
    OUT.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")
    print(f"{len(rows)} networks in {OUT}")


if __name__ == "__main__":
    main()
