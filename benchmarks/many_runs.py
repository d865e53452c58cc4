"""Measure commands on a store of 10,000 runs: ``python benchmarks/many_runs.py``.

Each row has a goal, and a row that misses it is marked. Seconds are processor time, because other programs on
the machine disturb it least.
"""

import argparse
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from ultralif import RunConfig
from ultralif.training.store import Finished, Store

GOALS = {("runs", "list"): (2.0, 150), ("runs", "table"): (3.0, 250), ("report",): (20.0, 1000)}
"""Goals for each command, in seconds and MiB."""

MEASURED = """
import re, sys, time
from pathlib import Path
from ultralif.cli import main
main(sys.argv[1:])
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(time.process_time(), peak, file=sys.stderr)
"""
"""Run a command; print its seconds and its peak memory in KiB, as reported by Linux."""


def fill(folder: Path, count: int) -> None:
    """Train one run, and store copies of it with other seeds."""
    config = RunConfig(epochs=20, timesteps=2, neuron="LIF")
    line = f"ultralif train --epochs 20 --timesteps 2 --neuron LIF --model mlp --runs-dir {folder / 'one'}"
    subprocess.run([sys.executable, "-m", *line.split(), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    run = Store(folder / "one").read(config.id)
    for start in range(0, count, 1000):
        configs = [config.with_(seed=seed) for seed in range(start, min(start + 1000, count))]
        results = [replace(run.result, id=each.id, seed=each.seed) for each in configs]
        tensors = run.contents.tensors()
        finished = [Finished(c, tensors, r, run.history) for c, r in zip(configs, results, strict=True)]
        Store(folder / "many").write(finished)


def measure(command: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """Return a command's seconds and MiB."""
    out = ("--out", str(folder / "report.html")) if command == ("report",) else ()
    words = [*command, "--runs-dir", str(folder / "many"), *out]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True, cwd=folder
    )
    seconds, kibibytes = done.stderr.splitlines()[-1].split()
    return float(seconds), int(kibibytes) / 1024


def main() -> int:
    """Print the table; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    memory = Path("/dev/shm")  # noqa: S108 (waiting for a disk ten thousand times takes minutes)
    rows = []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        fill(Path(name), arguments.runs)
        for command, (seconds, mebibytes) in GOALS.items():
            took, held = measure(command, Path(name))
            missed = took > seconds or held > mebibytes
            print(
                f"{' '.join(command):12} {took:6.1f} s (goal {seconds:g}), {held:5.0f} MiB (goal {mebibytes})"
                + "  MISSED" * missed
            )
            rows.append({"command": " ".join(command), "cpu_seconds": took, "mebibytes": held})
    if arguments.json:
        machine = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
        arguments.json.write_text(
            json.dumps({"runs": arguments.runs, "machine": machine, "rows": rows}, indent=1) + "\n"
        )
    return int(
        any(
            r["cpu_seconds"] > g[0] or r["mebibytes"] > g[1]
            for r, g in zip(rows, GOALS.values(), strict=True)
        )
    )


if __name__ == "__main__":
    sys.exit(main())
