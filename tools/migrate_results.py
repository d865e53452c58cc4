"""Bring a file of results of 0.1.0 up to date: give every row its config, and say what was never recorded.

    python tools/migrate_results.py old.jsonl.gz results/paper.jsonl.gz

Rows of 0.1.0 have the hash of all 45 fields of a config in place of the config. The paper's runs are known,
so that the hash can be looked up; a row that is none of them is named and left out. Such a row has neither
accuracy by epoch nor the constants threshold, sharpness and slope: they are null, which means unknown.
"""

import argparse
from pathlib import Path
from typing import Any

from ultralif.files import gunzip, parse_json, read_bytes
from ultralif.names import BASELINES
from ultralif.paper import archive
from ultralif.paper.grids import SEED, cells
from ultralif.training.baseline import FIRST_FIELDS
from ultralif.training.config import RunConfig
from ultralif.training.identity import document_id, first_document
from ultralif.training.result import ByEpoch, Constants, ModeResult, Operations, Result

SEEDS = 20
"""The most seeds, from the paper's on, that a file of 0.1.0 could name."""


def first_ids() -> dict[str, RunConfig]:
    """Return the paper's runs by their names in 0.1.0."""
    found = {}
    for _, config in cells("all"):
        for seed in range(SEED, SEED + SEEDS):
            fields = {name: getattr(config, name) for name in FIRST_FIELDS} | {"seed": seed}
            found[document_id(first_document(fields, config.neuron_options))] = config.with_(seed=seed)
    return found


def migrated(row: dict[str, Any], config: RunConfig) -> Result:
    """Return a row of 0.1.0 as a result; its name stays."""
    by_mode = {
        mode: ModeResult(
            accuracy,
            row["spike_rate"].get(mode),
            operations=Operations(row["macs"][mode], row["acs"][mode])
            if mode in row.get("macs", {})
            else None,
        )
        for mode, accuracy in row["accuracy"].items()
    }
    eps = row.get("history_eps")
    return Result(
        id=row["id"],
        status="done",
        dataset=config.dataset,
        neuron=config.neuron,
        timesteps=config.timesteps,
        seed=config.seed,
        sparsity=config.sparsity,
        mode=config.mode or ("hard" if config.neuron in BASELINES else "soft"),
        by_mode=by_mode,
        constants=Constants(eps=row["eps"], leak=row["leak"]),
        by_epoch=ByEpoch(eps=None if eps is None else tuple(eps)),
        config=config.to_dict(),
        epochs=config.epochs,
        seconds=row.get("seconds"),
        stacked=row.get("stacked"),
    )


def main() -> None:
    """Migrate a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path, help="a file of results of 0.1.0")
    parser.add_argument("new", type=Path, help="the file to write")
    given = parser.parse_args()
    text = gunzip(read_bytes(given.old, archive.MOST_PACKED), str(given.old), archive.MOST_BYTES)
    rows = [parse_json(line, f"a line of {given.old}") for line in text.splitlines()]
    configs = first_ids()
    step_ms: dict[str, dict[str, float]] = {}
    results = []
    for row in rows:
        if row["id"] == archive.TIMING:
            step_ms = row["step_ms"]
        elif row["id"] in configs:
            results.append(migrated(row, configs[row["id"]]))
        else:
            print(f"left out: {row['id']} is not a run of the paper")
    count = archive.write(given.new, results, step_ms)
    print(f"{count} of {len(rows) - bool(step_ms)} runs in {given.new}")


if __name__ == "__main__":
    main()
