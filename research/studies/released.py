"""Train the paper's tables as in the author's code, and the runs for our own studies.

    python -m research studies released results/released.jsonl.gz --data-dir data --minutes 8
    python -m research studies released results/released.jsonl.gz --plan

Stacks of many networks are trained in order of priority: T=1, 10 and 30 on every dataset on this machine, the
studies in `research.studies.grids`, the temperature study, deeper networks, the sparsity penalty, and the
tables as written. ``tuned`` trains the settings that ``tuning`` found best on held-out data, once they are
known.

Several stacks run at once. On a GPU, first start NVIDIA's multi-process service (nvidia-cuda-mps-control -d),
so that they share it. On a GPU, each kind of neuron is first trained alone for one epoch, so that the
processes share the compilation of kernels. Runs in the results file, in results/ and in the runs folder are
not trained again. When time runs out, unfinished training is saved and resumed by the next call. The
results file is rewritten after every stack. A GPU is optional; without one, training takes hours.
"""

import argparse
import multiprocessing
import os
import queue
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from research import RESULTS
from research.paper import archive
from research.paper.grids import cells
from research.paper.published import DATASETS, TIMESTEPS
from research.readings import perceptrons
from research.readings.neurons import READING_NEURONS
from research.readings.perceptrons import register_units
from research.studies.grids import SEARCH, SMALL, STUDIES, tuned
from research.studies.workers import end_with_parent
from ultralif.data import available
from ultralif.errors import InputError
from ultralif.training import (
    Interrupted,
    Progress,
    Result,
    RunConfig,
    RunOptions,
    Store,
    plan,
    run_local,
)

SLOW = {*perceptrons.__all__, *(neuron.__name__ for neuron in READING_NEURONS)}
STATIC = ("mnist", "fashion-mnist", "cifar10")
EVENTS = ("n-mnist", "shd", "dvs-gesture")
LARGEST = 80
"""Maximum number of runs per seed in a stack; a tuning stack has 72."""
KNOWN = [RESULTS / f"{name}.jsonl.gz" for name in ("paper", "studies", "open-readings")]
TINY: dict[str, Any] = {"epochs": 2, "batch_size": 512}
"""Config fields for a quick trial."""

register_units()  # registered here because the training processes import this file


def stages(rows: Iterable[Result]) -> dict[str, list[RunConfig]]:
    """Return the runs of each stage with the first seed, in order of priority.

    Args:
        rows: all existing results; the tuning results decide the settings of ``tuned``.
    """
    released = [config for name in DATASETS for _, config in cells(f"released-{name}")]
    penalized = [config for _, config in cells("released-sparsity")]
    deep = [config for _, config in cells("released-depth")]
    studies = {name: [config for _, config in study()] for name, study in STUDIES.items()}
    chosen = [config for _, config in tuned(rows)]
    found = {f"t{t}": _of(released, t, STATIC) for t in TIMESTEPS}
    found |= {f"t{t}-events": _of(released, t, EVENTS) for t in TIMESTEPS}
    found |= {"tuning-t1": _of(studies["tuning"], 1), "tuned-t1": _of(chosen, 1)}
    found |= {
        f"{name}-t{t}": _of(studies[name], t)
        for name in ("factorial", "one-at-a-time", "open-readings")
        for t in (1, 10)
    }
    found |= {"ablation": [config for _, config in cells("released-ablation")]}
    found |= {"depth": _of(deep, 1, STATIC)}
    found |= {f"penalty-t{t}": _of(penalized, t, STATIC) for t in (1, 10)}
    found |= {"tuning-t10": _of(studies["tuning"], 10), "tuned-t10": _of(chosen, 10)}
    found |= {"penalty-t30": _of(penalized, 30, STATIC), "depth-events": _of(deep, 1, EVENTS)}
    found |= {f"penalty-t{t}-events": _of(penalized, t, EVENTS) for t in TIMESTEPS}
    return found | {"written": [config for name in DATASETS for _, config in cells(f"{name}-sparsity")]}


def _of(runs: Sequence[RunConfig], timesteps: int, datasets: Sequence[str] = ()) -> list[RunConfig]:
    return [run for run in runs if run.timesteps == timesteps and (not datasets or run.dataset in datasets)]


def plan_stacks(given: argparse.Namespace, store: Store, rows: Sequence[Result]) -> list[list[RunConfig]]:
    """Return the stacks still to be trained, in order of priority, and print what is left out."""
    wanted, known = stages(rows), {result.id for result in rows}
    names = given.stages or list(wanted)
    for name in names:
        if name not in wanted:
            raise SystemExit(f"stage {name!r} is not one of {', '.join(wanted)}")
    here = {name: available(name, given.data_dir) for name in (*DATASETS, SMALL)}
    absent = [name for name, is_here in here.items() if not is_here]
    print(f"datasets not on this machine: {', '.join(absent) or 'none'}", flush=True)
    stacks: list[list[RunConfig]] = []
    for name in names:
        runs = [
            config.with_(seed=config.seed + i, **(TINY if given.tiny else {}))
            for i in range(given.seeds if not name.startswith("tuning") else 1)
            for config in wanted[name]
            if here[config.dataset] and (not given.datasets or config.dataset in given.datasets)
        ]
        left = [run for run in runs if run.id not in known]
        part = [
            stack  # the research neurons have no kernels and would slow down the other neurons in a stack
            for alone in (False, True)
            for stack in plan(
                [run for run in left if (run.neuron in SLOW) == alone],
                store,
                largest=LARGEST,
                seeds=given.together,
            )
        ]
        part.sort(key=len, reverse=True)  # longest first
        members = ", ".join(str(len(stack)) for stack in part)
        print(
            f"{name}: {sum(map(len, part))} of {len(runs)} runs left, in stacks of {members or 'none'}",
            flush=True,
        )
        stacks += part
    return stacks


def one_of_each_kind(stacks: Sequence[Sequence[RunConfig]]) -> list[list[RunConfig]]:
    """Return one-epoch stacks of one neuron each, which compile the kernels needed by all other stacks."""
    found: dict[tuple[Any, ...], list[RunConfig]] = {}
    for stack in stacks:
        parts: dict[str, list[RunConfig]] = {}
        for run in stack:
            parts.setdefault(run.neuron, []).append(run.with_(epochs=1, learning_rate=1e-3))
        for name, part in parts.items():
            first = part[0]
            found.setdefault((name, first.timesteps, first.hidden, first.readout, len(part)), part)
    return list(found.values())


def work(first: int, tasks: Any, reports: Any, given: argparse.Namespace, deadline: float) -> None:
    """Train stacks until the queue is empty or time runs out.

    Args:
        first: the number of stacks trained only to compile their kernels.
        tasks: the queue of stacks with their numbers, ending with None for every worker.
        reports: the queue for progress messages.
        given: the command's arguments.
        deadline: the time at which to stop.
    """
    end_with_parent()
    torch.set_num_threads(1)
    kept, scratch = Store(given.runs_dir), Store(given.runs_dir / "compiled")
    while time.time() < deadline and (task := tasks.get()) is not None:
        number, stack = task
        began = time.time()

        def tell(progress: Progress, number: int = number, began: float = began) -> None:
            is_told = progress.epoch in (1, 10) or progress.epoch % 25 == 0
            if progress.note or (is_told and number >= first):
                took = time.time() - began
                note = progress.note or f"loss {progress.loss:.3f}, accuracy {progress.accuracy:.2f} %"
                reports.put(("note", number, f"epoch {progress.epoch} after {took:.1f} s: {note}"))

        options = RunOptions(
            device=given.device,
            data_dir=given.data_dir,
            report=tell,
            stopping=lambda: int(time.time() > deadline),
            checkpoint_seconds=1e6,
        )
        try:
            for _ in run_local([stack], scratch if number < first else kept, options):
                pass
            reports.put(("compiled" if number < first else "done", number, f"{time.time() - began:.0f} s"))
        except Interrupted as stop:
            reports.put(("stopped", number, str(stop)))
        except Exception:
            reports.put(("failed", number, traceback.format_exc()))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def named(stack: Sequence[RunConfig]) -> str:
    """Describe a stack in words."""
    first = stack[0]
    seeds = sorted({run.seed for run in stack})
    depth = f", {len(first.hidden)} layers" if len(first.hidden) > 1 else ""
    return f"{first.dataset} T={first.timesteps}{depth}: {len(stack)} runs of seeds {seeds[0]} to {seeds[-1]}"


def train(
    given: argparse.Namespace,
    stacks: list[list[RunConfig]],
    before: dict[str, Result],
    store: Store,
    deadline: float,
) -> None:
    """Train stacks in several processes and write the results file after each."""
    began = time.time()
    context = multiprocessing.get_context("spawn")
    parts = one_of_each_kind(stacks) if torch.cuda.is_available() and given.device != "cpu" else []
    stacks = parts + stacks
    tasks, reports = context.Queue(), context.Queue()
    workers = [
        context.Process(target=work, args=(len(parts), tasks, reports, given, deadline), daemon=True)
        for _ in range(min(given.processes, len(stacks)))
    ]
    # As arguments, the stacks would fill a pipe and make each worker wait for the one before, hence a queue.
    for task in (*enumerate(stacks), *(None for _ in workers)):
        tasks.put(task)
    for worker in workers:
        worker.start()
    while True:
        running = any(worker.is_alive() for worker in workers)
        try:
            kind, number, text = reports.get(timeout=1)
        except queue.Empty:
            if not running:
                break
            continue
        print(f"[{time.time() - began:4.0f} s] {kind}: {named(stacks[number])}: {text}", flush=True)
        if kind == "done":
            save(given.out, before, store)
    for worker in workers:
        worker.join()
    tasks.cancel_join_thread()  # later messages are not read once time is up


def save(out: Path, before: dict[str, Result], store: Store) -> int:
    """Write all existing runs."""
    out.parent.mkdir(parents=True, exist_ok=True)
    return archive.write(out, (before | {result.id: result for result in store.rows()}).values())


def main() -> None:
    """Train, and print what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path, help="the results file; existing results are kept")
    parser.add_argument("--plan", action="store_true", help="print what is missing, and train nothing")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time, print the rest")
    parser.add_argument("--stages", nargs="*", help="train only these stages, in this order")
    parser.add_argument("--datasets", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, starting with 42")
    parser.add_argument("--together", type=int, default=5, help="number of seeds per stack")
    parser.add_argument("--processes", type=int, default=6, help="number of stacks at once")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or the GPU if there is one")
    parser.add_argument("--data-dir", type=Path, help="a folder to search for the data first")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs-released"), help="folder for the runs")
    parser.add_argument(
        "--known", type=Path, nargs="*", default=KNOWN, help="do not train the runs in these files again"
    )
    parser.add_argument("--tiny", action="store_true", help="a quick trial with two epochs")
    given = parser.parse_args()
    if given.tiny:
        SEARCH.update(TINY)
    os.environ.setdefault("ULTRALIF_CACHE", str(given.runs_dir / "cache"))
    deadline = time.time() + 60 * given.minutes
    try:
        known, before = (
            {r.id: r for path in paths if path.exists() for r in archive.read(path).results}
            for paths in (given.known, [given.out])
        )
        store, tried = Store(given.runs_dir), set[str]()
        while True:
            rows = known | before | {result.id: result for result in store.rows()}
            left = plan_stacks(given, store, list(rows.values()))
            stacks = [stack for stack in left if not tried & {run.id for run in stack}]
            if given.plan or not stacks or time.time() > deadline:
                break
            tried |= {run.id for stack in stacks for run in stack}
            train(given, stacks, before, store, deadline)
            print(f"{save(given.out, before, store)} runs in {given.out}", flush=True)
    except InputError as error:
        sys.exit(str(error))
    for stack in left:
        print(f"still to do: {named(stack)}", flush=True)


if __name__ == "__main__":
    main()
