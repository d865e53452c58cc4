"""Many processes at once: writers of one store and of one run, readers among them, some of them killed."""

import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from torture.warm import Child, Row
from ultralif.data.cache import cached
from ultralif.training import RunConfig, Store
from ultralif.training.checkpoint import Damaged, read_folder, write_folder
from ultralif.training.result import Result
from ultralif.training.store import Finished, as_row, insert

Write = Callable[[Store, Finished], None]
WRITERS = 32
PAUSE = 2.0
"""Most seconds between two kills."""
NAME = 13
"""Bytes of a run's name and the end of its line."""


def made_up(seed: int) -> Finished:
    config = RunConfig(seed=seed)
    names = {"id": config.id, "finished": time.time(), "status": "done", "dataset": "digits", "mode": "hard"}
    said = {**names, "neuron": "LIF", "timesteps": 1, "seed": seed, "sparsity": 0.0, "accuracy": {}}
    return Finished(config, {"weight": torch.full((4,), float(seed))}, Result.from_dict(said), [])


def whole(store: Store, run: Finished) -> None:
    """Write a run: its folder, and then its row."""
    store.write([run])


def row_alone(store: Store, run: Finished) -> None:
    """Write the row of a run in a transaction of its own, and no folder."""
    with store._open() as index:
        insert(index, [as_row(run.result)])


def writers(base: Path, rng: random.Random, what: str, write: Write, runs: int) -> Row:
    """Let 32 processes write into one store while two read; one is killed now and then, and goes on later."""
    store, done, over = Store(base / what), base / f"{what}-done", base / f"{what}-over"
    done.mkdir()
    store.prepare()

    def work(number: int) -> None:
        path = done / str(number)
        with path.open("ab", buffering=0) as names:  # what it names is committed and must never be lost
            begun = path.stat().st_size // NAME
            names.truncate(begun * NAME)
            for i in range(begun, runs):
                run = made_up(number * 10**6 + i)
                write(store, run)
                names.write(f"{run.config.id}\n".encode())

    def read() -> int:
        seen = readings = 0
        while not over.exists():
            ((rows,),) = store._select("SELECT count(*) FROM runs", ())
            assert rows >= seen, "rows vanished"
            assert len(store.rows(50)) == min(rows, 50) or not rows, "rows cannot be read"
            seen, readings = rows, readings + 1
            time.sleep(0.5)  # the writers need the cores
        return readings

    readers = [Child(read) for _ in range(2)]
    alive = {number: Child(lambda n=number: work(n)) for number in range(WRITERS)}
    kills, ended = 0, []
    while alive:
        number = rng.choice(sorted(alive))
        end = alive.pop(number).killed_after(rng.uniform(0, PAUSE))
        if end.code == -signal.SIGKILL:
            kills += 1
            alive[number] = Child(lambda n=number: work(n))
        else:
            ended.append(end)
    over.touch()
    readings = [reader.wait() for reader in readers]
    bad = [end.message.strip().splitlines()[-1] for end in ended + readings if end.code]
    committed = {name for path in done.iterdir() for name in path.read_text().split()}
    lost = committed - store.finished(committed)
    with sqlite3.connect(store.index) as index:
        (sound,) = index.execute("PRAGMA integrity_check").fetchone()
    found = f"{len(committed):,} committed, {len(lost)} lost, {len(bad)} errors, integrity {sound}; "
    found += f"{sum(int(end.message) for end in readings if not end.code):,} readings"
    found += "".join(f"; {line[:120]}" for line in bad[:2])
    bar = "0 lost rows, 0 lock errors, integrity ok"
    size = f"{WRITERS} writers of {runs:,} rows each, {kills:,} times killed and started again, 2 readers"
    good = not lost and not bad and sound == "ok" and len(committed) == WRITERS * runs
    return Row(f"concurrent writers of {what}", size, bar, found, good)


def one_folder(base: Path, rounds: int) -> Row:
    """Let processes write the same run again and again while others read it."""
    folder = base / "one-folder"

    def write(number: int) -> None:
        for _ in range(rounds):
            write_folder(folder, "model", {"a": torch.full((100,), float(number))}, {"who": number})

    def read() -> str:
        torn = seen = 0
        until = time.monotonic() + 3
        while time.monotonic() < until:
            try:
                found = read_folder(folder)
            except Damaged:
                continue  # between two renames, or replaced while it was read
            seen += 1
            torn += bool((found.tensors()["a"] != found.documents["who"]).any())
        return f"{torn} {seen}"

    children = [Child(lambda n=n: write(n)) for n in range(6)]
    torn, seen = map(int, Child(read).wait().message.split())
    bad = [end for end in (child.wait() for child in children) if end.code]
    good = not bad and not torn and read_folder(folder).documents["who"] in range(6)
    bar = "every reading is one writer's, the last is whole"
    found = f"{seen} readings, {torn} mixed, {len(bad)} errors"
    return Row("concurrent writers of a run", f"6 writers of {rounds}", bar, found, good)


def caches(base: Path, rng: random.Random, rounds: int) -> Row:
    """Let processes make the same cache at once, one of them killed in the middle."""
    bad = 0
    array = np.arange(200_000)

    def build() -> Iterator[tuple[str, np.ndarray]]:
        for part in np.split(array, 20):
            yield "keys", part

    def use(folder: Path) -> None:
        assert (cached(folder, build).arrays["keys"] == array).all()

    for i in range(rounds):
        folder = base / "caches" / str(i)
        children = [Child(lambda folder=folder: use(folder)) for _ in range(16)]
        victim = rng.choice(children)
        ended = [
            child.killed_after(rng.uniform(0, 0.02)) if child is victim else child.wait()
            for child in children
        ]
        bad += sum(end.code not in (0, -signal.SIGKILL) for end in ended)
    bar = "one valid copy, 0 bad readings"
    return Row("processes making one cache", f"{rounds} rounds of 16, 1 killed", bar, f"{bad} bad", not bad)
