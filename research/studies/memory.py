"""Compare resets on tasks that need memory, and measure how long each one remembers.

    python -m research studies memory --minutes 10   # resumes; randman only
    python -m research studies memory --task nmnist columns --data FOLDER --processes 8
    python -m research studies memory --plan                             # what is done and what is missing
    python -m research studies memory_page                               # tables of research/docs/memory.md

Every finished run is stored as one line of the ``--out`` file. Learning rate, time constants, temperature and
ceiling, or learning rate and surrogate width, are chosen for each method and task on a held-out fifth of the
training samples. The chosen setting is trained with five seeds on all training samples and tested after the
last epoch. Networks have one hidden layer and a linear readout of its mean spike. For pixels they have three
layers with batch norm, and for columns of CIFAR-10 six convolutions and one dense layer. Training starts with
soft spikes and switches to binary spikes after three fifths of the epochs. For pixels, and for LIF and PLIF,
spikes are binary throughout.
"""

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from research import RESULTS
from research.studies.memory_nets import METHODS, MemoryCell
from research.studies.memory_tasks import TASKS, grid, measure
from research.studies.workers import end_with_parent

SEEDS = range(5)
Row = dict[str, Any]


def key(row: Row) -> MemoryCell:
    """Return the cell described by a line of results."""
    return MemoryCell(
        **{name: tuple(row[name]) if name == "time_constants" else row[name] for name in MemoryCell._fields}
    )


def todo(
    task: str, rows: list[Row], methods: Iterable[str], seeds: Iterable[int] = SEEDS
) -> Iterator[MemoryCell]:
    """Yield the missing runs, all methods in turn; later runs depend on the results of earlier ones."""
    done = {key(row): row for row in rows}
    grids = [grid(task, method) for method in methods]
    chosen = [max(g, key=lambda cell: done[cell]["hard"]) for g in grids if all(cell in done for cell in g)]
    last = (best._replace(seed=seed, held=False) for seed in seeds for best in chosen)
    for cell in chain(*zip_longest(*grids), last):
        if cell is not None and cell not in done:
            yield cell


def finished(path: Path) -> list[Row]:
    """Return the results already stored in the file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def worker() -> ProcessPoolExecutor:
    """Start a separate process for training, because a GPU error makes a process unusable."""
    return ProcessPoolExecutor(1, get_context("spawn"), end_with_parent)


def work(args: argparse.Namespace) -> None:
    """Train the missing runs, several at a time, until the time limit.

    A failed run is retried in a new process without recording its step. If it fails again, it is skipped.
    """
    began, begun, idle = time.perf_counter(), set[MemoryCell](), [worker() for _ in range(args.processes)]
    running = dict[Future[Row], tuple[MemoryCell, ProcessPoolExecutor, bool]]()

    def start(cell: MemoryCell, by: ProcessPoolExecutor, record: bool) -> None:
        future = by.submit(measure, cell, args.data, args.device, args.most, record=record)
        running[future] = cell, by, record

    with args.out.open("a") as file:
        while True:
            rows = finished(args.out)
            lacking = (
                cell for task in args.task for cell in todo(task, rows, args.methods, range(args.seeds))
            )
            waiting = [cell for cell in lacking if cell not in begun]
            if time.perf_counter() - began < 60 * args.minutes:
                for cell in waiting[: len(idle)]:
                    begun.add(cell)
                    start(cell, idle.pop(), record=args.device == "cuda")
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, by, recorded = running.pop(future)
                if error := future.exception():
                    print(f"{'again' if recorded else 'left out'}: {cell}: {error!r}", flush=True)
                    by.shutdown(wait=False)
                    by = worker()
                    if recorded:
                        start(cell, by, record=False)
                        continue
                else:
                    line = json.dumps(future.result())
                    print(line, flush=True)
                    file.write(line + "\n")
                    file.flush()
                idle.append(by)
    for one in idle:
        one.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, nargs="+", default=["randman"])
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS))
    parser.add_argument("--data", help="a folder to search for the dataset first")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no new run after this time")
    parser.add_argument("--processes", type=int, default=1, help="number of runs at once")
    parser.add_argument("--out", type=Path, default=RESULTS / "memory.jsonl")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--most", type=int, help="use only the first samples, for a quick trial")
    parser.add_argument("--plan", action="store_true")
    args = parser.parse_args()
    if not args.plan:
        work(args)
        return
    for task in TASKS:
        rows = finished(args.out)
        done = sum(row["task"] == task for row in rows)
        print(f"{task}: {done} runs done, at least {len(list(todo(task, rows, args.methods)))} missing")


if __name__ == "__main__":
    main()
