"""Measure everything that still needs a GPU, with one command that resumes where it stopped.

    python benchmarks/gpu.py --data FOLDER --out FOLDER --hours 2
    python benchmarks/gpu.py --data FOLDER --out FOLDER --plan  # what is missing

The data folder contains some or all of mnist, fashion-mnist, nmnist, shd and cifar-10-batches-bin. First the
kernels are compared with their definitions and timed. Then the studies share the remaining time; runs that
are already in the repository or in ``--out`` are not trained again. Every part is a command from this folder
or a group of tests. Its output is saved in ``--out``, beside its results.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

HERE = Path(__file__).parent
RESULTS = HERE.parent / "research" / "results"
CIFAR = "cifar-10-batches-bin"
MEMORY = (
    "-m research studies memory --task randman rows nmnist columns permuted pixels --out {out}/memory.jsonl"
)
LACKING = re.compile(r"^lacking: |^still to do: |[1-9]\d* missing|known to be missing: \{")
"""How a study's plan reports unfinished runs."""


class Part(NamedTuple):
    """A command in which ``{out}``, ``{data}`` and ``{minutes}`` stand for the folders and its time."""

    name: str
    command: str
    needs: tuple[str, ...] = ()
    """Required data."""
    plan: str = ""
    """For a study, the command that lists missing runs. Studies are restarted each time and skip finished
    runs."""

    def words(self, given: argparse.Namespace, template: str, minutes: float = 0.0) -> list[str]:
        folders = {"out": given.out, "data": given.data}
        words = template.split()
        return [sys.executable, *(word.format(**folders, minutes=round(minutes, 2)) for word in words)]


PARTS = (
    Part(
        "tests",
        "-m pytest -q -p no:randomly -p no:cacheprovider -p no:benchmark tests/ops/test_gpu.py "
        "tests/training/test_graph.py tests/research/test_memory_study.py",
    ),
    Part("fastpath", "benchmarks/fastpath.py --out {out}/fastpath-h200.json"),
    Part("tuning", "benchmarks/fastpath.py --tune --out {out}/tuning-h200.json"),
    Part("step", "benchmarks/step.py --device cuda --out {out}/step-h200.json"),
    Part(
        "memory-speed",
        "benchmarks/memory_speed.py --device cuda --seconds 300 --out {out}/memory-speed-h200.json",
    ),
    Part(
        "speedrun",
        f"examples/speedrun.py --data {{data}}/{CIFAR} --timesteps 4 --epochs 63 --seeds 5",
        (CIFAR,),
    ),
    Part(
        "board-curve",
        "benchmarks/board_curve.py train --data {data} --out {out}/board-curve --workers 9",
        ("mnist", "fashion-mnist"),
    ),
    Part(
        "board-curve-cifar10",
        "benchmarks/board_curve.py train --datasets cifar10 --data {data} --out {out}/board-curve "
        "--workers 9",
        (CIFAR,),
    ),
    Part(
        "pack",
        "-m research.studies.contrast_data {data} {data}/shd {out}/packed",
        ("mnist", "fashion-mnist", "shd", CIFAR),
    ),
    Part(
        "contrasts",
        "-m research studies contrasts --data {out}/packed --out {out}/contrasts.jsonl --processes 14 "
        "--minutes {minutes}",
        ("mnist", "fashion-mnist", "shd", CIFAR),
        "-m research studies contrasts --out {out}/contrasts.jsonl --plan",
    ),
    Part(
        "released",
        "-m research studies released {out}/released.jsonl.gz --data-dir {data} --runs-dir {out}/runs "
        "--processes 6 --minutes {minutes}",
        ("mnist",),
        "-m research studies released {out}/released.jsonl.gz --data-dir {data} --runs-dir {out}/runs --plan",
    ),
    Part(
        "deep",
        f"-m research studies deep --data cifar10={{data}}/{CIFAR} fashion-mnist={{data}} n-mnist={{data}} "
        "--jobs 4 --out {out}/deep.jsonl --minutes {minutes}",
        (CIFAR, "fashion-mnist", "nmnist"),
        "-m research studies deep --out {out}/deep.jsonl --plan",
    ),
    Part(
        "memory",
        f"{MEMORY} --data {{data}} --processes 4 --minutes {{minutes}}",
        (CIFAR, "mnist", "nmnist"),
        f"{MEMORY} --plan",
    ),
)


def run(part: Part, given: argparse.Namespace, minutes: float) -> None:
    """Run a part; if it is not a study and succeeds, mark it as done."""
    print(f"{part.name} ...", flush=True)
    begun = time.monotonic()
    with (given.out / f"{part.name}.txt").open("a") as log:
        code = subprocess.run(
            part.words(given, part.command, minutes), cwd=HERE.parent, stdout=log, stderr=subprocess.STDOUT
        ).returncode
    if code == 0 and not part.plan:
        (given.out / f"{part.name}.done").touch()
    said = "" if code == 0 else f", exit code {code}: see {part.name}.txt"
    print(f"{part.name}: {time.monotonic() - begun:.0f} s{said}", flush=True)


def lacking(part: Part, given: argparse.Namespace) -> str:
    """Return a line that states what a part is missing, or an empty string if it is done."""
    absent = [name for name in part.needs if not (given.data / name).exists()]
    if absent:
        return f"needs {', '.join(absent)} in {given.data}"
    if not part.plan:
        return "" if (given.out / f"{part.name}.done").exists() else "not run"
    command = part.words(given, part.plan)
    told = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    lines = [line for line in told.stdout.splitlines() if LACKING.search(line)]
    return f"{len(lines)} lines of `python {' '.join(command[1:])}`" if lines else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, required=True, help=f"folder with mnist, fashion-mnist, nmnist, shd and {CIFAR}"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for results and logs; an existing one is resumed"
    )
    parser.add_argument("--hours", type=float, default=12.0, help="start nothing after this time")
    parser.add_argument("--plan", action="store_true", help="list what is missing, and stop")
    given = parser.parse_args()
    if not (given.plan or torch.cuda.is_available()):
        raise SystemExit("torch finds no CUDA device here; --plan lists what is missing")
    given.out, given.data = given.out.resolve(), given.data.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in ("deep.jsonl", "memory.jsonl", "contrasts.jsonl"):
        if not (given.out / name).exists():
            shutil.copyfile(RESULTS / name, given.out / name)
    end = time.monotonic() + 3600 * given.hours
    found = {part: lacking(part, given) for part in PARTS}
    if not given.plan:
        todo = [part for part, said in found.items() if said and not said.startswith("needs")]
        for number, part in enumerate(todo):
            left = (end - time.monotonic()) / 60
            if left > 0:
                share = sum(bool(other.plan) for other in todo[number:]) if part.plan else 1
                run(part, given, left / share)
        found = {part: lacking(part, given) for part in PARTS}
    for part, said in found.items():
        if said:
            print(f"lacking: {part.name}: {said}", flush=True)


if __name__ == "__main__":
    main()
