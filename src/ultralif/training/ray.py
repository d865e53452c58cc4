"""The part of a Ray sweep that runs on the workers: one stack per task."""

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ultralif.errors import InputError, JobError, is_out_of_memory, need
from ultralif.training.config import RunConfig
from ultralif.training.loop import train_stack
from ultralif.training.progress import Interrupted, Progress, RunOptions
from ultralif.training.result import Result
from ultralif.training.store import TRAINING, Busy, Finished, Store
from ultralif.training.sweep import halves

__all__ = ["PATIENCE", "PAUSE", "Board", "Order", "Outcome", "StackTask", "run_ray", "train_task"]


PAUSE = 0.2
"""Seconds between two checks of the cluster."""
PATIENCE = 60.0
"""Seconds to wait for a free node, and for a lost worker to release its stack."""


class _Folders(Store):
    """A worker's store: it writes the run folders and leaves the index to the driver."""

    def write(self, runs: Iterable[Finished], aside: Path | None = None) -> None:
        """Write the folders of finished runs."""
        self.write_folders(runs, aside)


class Order(NamedTuple):
    """A worker's settings."""

    root: Path
    token: str
    device: str
    data_dir: Path | None
    checkpoint_seconds: float


class Outcome(NamedTuple):
    """A task's outcome: ``done``, ``stopped``, ``too large``, ``bad input``, ``failed`` or ``lost``."""

    kind: str
    message: str = ""


@dataclass
class StackTask:
    """An unfinished stack, and its number in the plan."""

    number: int
    stack: list[RunConfig]
    crashes: int = 0


class Board:
    """The actor that collects the workers' progress and tells them whether to stop."""

    def __init__(self) -> None:
        self.news: list[Progress] = []
        self.code = 0

    def tell(self, progress: Progress) -> None:
        """Receive a stack's progress."""
        self.news.append(progress)

    def take(self) -> list[Progress]:
        """Return the messages since the last call."""
        news, self.news = self.news, []
        return news

    def stop(self, code: int) -> None:
        """Ask all workers to stop."""
        self.code = code

    def stopping(self) -> int:
        """Return 0, or the exit code to stop with."""
        return self.code


def train_task(task: StackTask, order: Order, board: Any) -> Outcome:
    """Train a stack on a worker; an error is returned as a message for the user."""
    ray = need("ray", "ray")
    store, asked = _Folders(order.root), _asking(ray, board)
    try:
        if not (order.root / order.token).exists():
            raise InputError(
                f"{order.root} on node {os.uname().nodename} is not the folder that the driver sees; use "
                "--runs-dir to choose one that all nodes share"
            )
        if asked():
            return Outcome("stopped")
        options = RunOptions(
            device=order.device,
            data_dir=order.data_dir,
            report=board.tell.remote,
            stopping=asked,
            checkpoint_seconds=order.checkpoint_seconds,
        )
        _patiently(lambda: train_stack(task.stack, store, options.numbered(task.number)))
    except Interrupted:
        return Outcome("stopped")
    except InputError as error:
        return Outcome("bad input", str(error))
    except JobError as error:
        return Outcome("failed", str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(task.stack) > 1:
            return Outcome("too large")
        return Outcome("failed", f"{task.stack[0].id} alone does not fit on the device; choose smaller sizes")
    return Outcome("done")


def _patiently(work: Callable[[], object]) -> None:
    """Run a function whose lock a dying process may still hold."""
    began = time.monotonic()
    while True:
        try:
            work()
            return
        except Busy:
            if time.monotonic() - began > PATIENCE:
                raise
            time.sleep(PAUSE)


def _asking(ray: Any, board: Any) -> Callable[[], int]:
    """Return a function that asks the board once a second whether to stop."""
    code, last = 0, -1.0

    def asked() -> int:
        nonlocal code, last
        now = time.monotonic()
        if now - last > 1.0:
            with suppress(ray.exceptions.RayError):
                code = ray.get(board.stopping.remote(), timeout=10)
            last = time.monotonic()
        return code

    return asked


CRASHES = 10
"""The maximum number of times that a stack may lose its worker without finishing an epoch."""
STALE = 90 * 24 * 3600
"""Age in seconds at which a driver's token is considered left behind by a killed driver."""
OBJECTS = 100 << 20
"""Size of Ray's shared memory in bytes if we start Ray; only progress reports pass through it."""


def run_ray(
    stacks: Sequence[Sequence[RunConfig]],
    store: Store,
    options: RunOptions | None = None,
    *,
    address: str = "local",
    cpus: int = 1,
) -> Iterator[Result]:
    """Train stacks as Ray tasks and yield results as they arrive, identical to those of `run_local`.

    Args:
        stacks: see `ultralif.training.plan`.
        store: the store that receives the runs; all nodes must see its folder under the same path.
        options: as for `run_local`; device ``auto`` uses the GPUs of the cluster if it has any.
        address: the address of the cluster; ``local`` starts Ray on this machine.
        cpus: the number of cores for a stack that is not on a GPU; a stack on a GPU has the GPU to itself.
    """
    options = options or RunOptions()
    if cpus < 1:
        raise InputError(f"cpus must be at least 1, got {cpus}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address == "local":  # Ray asks for no password, so an instance that we start must stay on 127.0.0.1
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    ray = need("ray", "ray")
    store = Store(store.root.resolve())
    with _connected(ray, address), _token(store) as token:
        needed = _resources(ray, cpus, options.device)
        on_gpu = bool(needed.get("GPU"))
        place = "cuda" if on_gpu else "cpu"
        order = Order(store.root, token, place, options.data_dir, options.checkpoint_seconds)
        board = _remote(ray, Board, num_cpus=0, max_restarts=-1, max_task_retries=-1).remote()
        train = _remote(ray, train_task, num_cpus=0 if on_gpu else cpus, num_gpus=int(on_gpu), max_retries=0)
        tasks = [StackTask(number, list(stack)) for number, stack in enumerate(stacks)]
        tasks.sort(key=_work, reverse=True)  # so that no long stack is left until the end
        yield from _drive(
            ray, lambda task: train.remote(task, order, board), board, tasks, store, needed, options
        )


def _drive(
    ray: Any,
    submit: Callable[[StackTask], Any],
    board: Any,
    tasks: list[StackTask],
    store: Store,
    needed: dict[str, float],
    options: RunOptions,
) -> Iterator[Result]:
    """Submit tasks until all are done; resubmit a lost task, and split one that is too large into halves."""
    running: dict[Any, StackTask] = {}
    report = options.report
    failures: list[Outcome] = []
    code, with_room = 0, time.monotonic()
    while tasks or running:
        for task in tasks:
            if store.adopt(
                [config.id for config in task.stack]
            ):  # if an earlier driver was killed before doing so
                yield from _results(store, task, report)
            else:
                running[submit(task)] = task
        tasks = []
        code = code or options.stopping()
        if code:
            board.stop.remote(code)
        _pass_on(ray, board, running, report)
        for ref in ray.wait(list(running), timeout=PAUSE)[0] if running else ():
            task = running.pop(ref)
            outcome = _outcome(ray, ref, task)
            if outcome.kind == "done":
                yield from _gathered(store, task, report)
            elif outcome.kind in ("bad input", "failed"):
                failures.append(outcome)
            elif not code:
                tasks += _again(task, outcome, report)
        with_room = time.monotonic() if _has_room(ray, needed) else with_room
        if time.monotonic() - with_room > PATIENCE:
            raise JobError(
                f"no node of the cluster has {needed} any more; add one. The same command resumes from here"
            )
    if failures:
        raise (InputError if failures[0].kind == "bad input" else JobError)(failures[0].message)
    if code:
        raise Interrupted("stopped; everything is saved. The same command resumes from there", code)


def _work(task: StackTask) -> int:
    """Estimate the amount of computation in a stack."""
    shared = task.stack[0]
    return shared.epochs * shared.timesteps * sum(shared.hidden) * len(task.stack)


def _outcome(ray: Any, ref: Any, task: StackTask) -> Outcome:
    """Return a task's outcome; a task without one is lost."""
    try:
        outcome: Outcome = ray.get(ref)
        return outcome
    except ray.exceptions.RayTaskError as error:
        return Outcome("failed", f"stack {task.number + 1} failed on its worker: {error.cause!r}")
    except ray.exceptions.RayError as error:
        task.crashes += 1
        if task.crashes >= CRASHES:
            return Outcome(
                "failed", f"stack {task.number + 1} lost its worker {CRASHES} times in a row ({error})"
            )
        return Outcome("lost")


def _again(task: StackTask, outcome: Outcome, report: Callable[[Progress], None]) -> list[StackTask]:
    """Return the tasks to submit in place of an unfinished one, and report it."""
    members = len(task.stack)
    if outcome.kind == "too large":
        note = f"{members} networks do not fit on the device together; they are trained in two halves"
        again = [StackTask(task.number, half) for half in halves(task.stack)]
    else:
        note = f"stack {task.number + 1} lost its worker; it resumes from its last checkpoint"
        again = [task]
    report(Progress(members, 0, task.stack[0].epochs, None, None, note, task.number))
    return again


def _gathered(store: Store, task: StackTask, report: Callable[[Progress], None]) -> Iterator[Result]:
    """Add a stack's runs to the index after a worker has finished it, and yield their results."""
    if not store.adopt([config.id for config in task.stack]):
        raise JobError(
            f"a worker finished stack {task.number + 1}, but its runs are incomplete in {store.root}; check "
            "the disk that the nodes share"
        )
    yield from _results(store, task, report)


def _results(store: Store, task: StackTask, report: Callable[[Progress], None]) -> Iterator[Result]:
    epochs = task.stack[0].epochs
    report(Progress(len(task.stack), epochs, epochs, None, None, stack=task.number))
    yield from store.rows(runs=[config.id for config in task.stack])


def _pass_on(ray: Any, board: Any, running: dict[Any, StackTask], report: Callable[[Progress], None]) -> None:
    """Pass on the workers' progress."""
    by_number = {task.number: task for task in running.values()}
    with suppress(ray.exceptions.RayError):
        for progress in ray.get(board.take.remote(), timeout=10):
            if progress.stack in by_number:
                if progress.note is None:
                    by_number[progress.stack].crashes = 0
                report(progress)


def _resources(ray: Any, cpus: int, device: str) -> dict[str, float]:
    """Return the resources that a stack needs; raise an error if no node has them."""
    there = ray.cluster_resources()
    if device.startswith("cuda") or (device == "auto" and there.get("GPU")):
        needed = {"GPU": 1.0}
    else:
        needed = {"CPU": float(cpus)}
    if not _has_room(ray, needed):
        found = {name: there.get(name, 0.0) for name in ("CPU", "GPU")}
        raise InputError(
            f"no node of the cluster has {needed}, and the whole cluster has {found}; request less"
        )
    return needed


def _has_room(ray: Any, needed: dict[str, float]) -> bool:
    return any(
        all(node["Resources"].get(name, 0.0) >= count for name, count in needed.items())
        for node in ray.nodes()
        if node["Alive"]
    )


def _remote(ray: Any, target: Any, **options: Any) -> Any:
    if isinstance(target, type):  # on the driver's node, which would be lost together with the driver
        strategies = need("ray.util.scheduling_strategies", "ray")
        here = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(here, soft=True)
    return ray.remote(**options)(target)


@contextmanager
def _token(store: Store) -> Iterator[str]:
    """Put a file into the runs folder, so that workers can check that they see the same folder."""
    token = f"{TRAINING}/ray-{uuid.uuid4().hex}"
    store.prepare()  # otherwise a killed driver leaves folders without an index
    folder = store.root / TRAINING
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in folder.glob("ray-*"):  # left by a killed driver
        with suppress(FileNotFoundError):  # another driver may be faster
            if time.time() - left.stat().st_mtime > STALE:
                left.unlink()
    (store.root / token).touch()
    try:
        yield token
    finally:
        (store.root / token).unlink(missing_ok=True)


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Join a cluster or start one on this machine, without letting Ray take over the signals."""
    on_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if on_main else None
    own = {"include_dashboard": False, "object_store_memory": OBJECTS} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(
            f"ray {address!r} cannot be reached ({str(error).splitlines()[0]}); pass the address of a "
            "running cluster, such as 10.0.0.1:6379, or none"
        ) from error
    finally:
        if on_main:
            signal.signal(signal.SIGTERM, before)
    try:
        found = ray.nodes()[0]["NodeManagerAddress"]
        if address == "local" and found != "127.0.0.1":
            raise JobError(
                f"Ray listens on {found}, where others can reach it without a password; import ray after "
                "ultralif's sweep begins, or set RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 before you import it"
            )
        yield
    finally:
        ray.shutdown()
