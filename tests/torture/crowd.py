"""Many processes at once: writers of one store and of one run, readers among them, some of them killed."""

import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from torture.warm import Child, Row
from ultralif.data.cache import cached
from ultralif.training import RunConfig, Store
from ultralif.training.checkpoint import Damaged, read_folder, write_folder
from ultralif.training.result import Result
from ultralif.training.store import Finished


def made_up(seed: int) -> Finished:
    config = RunConfig(seed=seed)
    names = {"id": config.id, "finished": time.time(), "status": "done", "dataset": "digits", "mode": "hard"}
    said = {**names, "neuron": "LIF", "timesteps": 1, "seed": seed, "sparsity": 0.0, "accuracy": {}}
    return Finished(config, {"weight": torch.full((4,), float(seed))}, Result.from_dict(said), [])


def writers(base: Path, rng: random.Random, count: int, runs: int) -> Row:
    """Let processes write runs into one store while others read, and kill some of the writers."""
    store = Store(base / "crowd")
    done = base / "crowd-done"
    done.mkdir()

    def write(number: int) -> None:
        for i in range(runs):
            store.write([made_up(number * 10**6 + i)])
            (done / f"{number}-{i}").touch()  # after this it must never be lost

    def read() -> int:
        until, seen = time.monotonic() + 5, 0
        while time.monotonic() < until:
            rows = len(store.rows())
            assert rows >= seen, "rows vanished"
            seen = rows
        return seen

    children = [Child(lambda n=n: write(n)) for n in range(count)]
    readers = [Child(read) for _ in range(2)]
    victims = set(rng.sample(range(count), count // 4))
    ended = []
    for number, child in enumerate(children):
        ended.append(child.killed_after(rng.uniform(0.2, 2)) if number in victims else child.wait())
    ended += [reader.wait() for reader in readers]
    bad = [end.message.strip().splitlines()[-1] for end in ended if end.code not in (0, -signal.SIGKILL)]
    names = [path.name.split("-") for path in done.iterdir()]
    committed = {RunConfig(seed=int(n) * 10**6 + int(i)).id for n, i in names}
    lost = committed - {row.id for row in store.rows()}
    with sqlite3.connect(store.index) as index:
        (sound,) = index.execute("PRAGMA integrity_check").fetchone()
    found = f"{len(committed)} committed, {len(lost)} lost, {len(bad)} errors, integrity {sound}"
    found += "".join(f"; {line[:120]}" for line in bad[:2])
    bar = "0 lost rows, 0 lock errors, integrity ok"
    size = f"{count} writers of {runs} runs, {len(victims)} killed, 2 readers"
    return Row("concurrent writers of a store", size, bar, found, not lost and not bad and sound == "ok")


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
