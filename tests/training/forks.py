"""Processes that die, or that write at the same time: run as ``python forks.py kill|write|begin FOLDER``.

Children are forked from a process that has imported and loaded everything, so that a kill lands in the work
and not before it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from ultralif import RunConfig
from ultralif.training import RunOptions, Store, train_stack
from ultralif.training.result import Result
from ultralif.training.store import Finished, insert

MEMBERS = [
    RunConfig(epochs=3, hidden=(8,), timesteps=4, batch_size=256, **changes)
    for changes in (
        {"neuron": "UltraLIF", "sparsity": 0.01},
        {"neuron": "UltraDPLIF", "anneal": (1.0, 0.2)},
        {"neuron": "AdaLIF"},
        {"neuron": "AdaLIF", "adapt_strength": 3e38, "sparsity": 9e5},  # its loss turns NaN
    )
]
WRITERS, ROWS, ROUNDS = 8, 12, 30


def train(store: Store, checkpoint_seconds: float) -> None:
    train_stack(MEMBERS, store, RunOptions(device="cpu", checkpoint_seconds=checkpoint_seconds))


def fork(work: Callable[[], None]) -> int:
    """Start a child that does the work and ends; return its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def kill(root: Path, wanted: int = 20, seed: int = 0) -> None:
    """Kill training again and again until it is through; print how many kills came and runs ended."""
    chance = np.random.default_rng(seed)
    train(Store(root / "whole"), 60.0)
    began = time.monotonic()
    train(Store(root / "timed"), 0.0)
    length = time.monotonic() - began
    kills = ended = 0
    while kills < wanted:
        store = Store(root / f"killed-{ended}")
        while True:
            child = fork(lambda store=store: train(store, 0.0))
            time.sleep(chance.uniform(0.02, 0.6) * length)
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0
                ended, length = (
                    ended + 1,
                    0.7 * length,
                )  # the machine may be quicker now than when it was timed
                break
            kills, length = kills + 1, 1.05 * length
    print(json.dumps({"kills": kills, "ended": ended}))


def write(root: Path) -> None:
    """Let eight processes write runs at once, all of them to one index."""
    result = {"status": "done", "dataset": "digits", "neuron": "LIF", "timesteps": 1, "mode": "hard"}

    def work(writer: int) -> None:
        store = Store(root)
        for row in range(ROWS):
            config = RunConfig(seed=writer * ROWS + row)
            said = Result.from_dict({**result, "id": config.id, "seed": config.seed})
            store.write([Finished(config, {"w": torch.full((4,), float(config.seed))}, said, [])])

    children = [fork(lambda writer=writer: work(writer)) for writer in range(WRITERS)]
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


def begin(root: Path) -> None:
    """Let eight processes open an index that is not there yet, at the same moment, again and again."""

    def work(store: Store, writer: int, moment: float) -> None:
        while time.monotonic() < moment:
            pass
        with store._open() as index:
            insert(index, [(str(writer), 0.0, "done", "digits", "LIF", 1, 1, 0.0, "{}")])

    for number in range(ROUNDS):
        store, moment = Store(root / str(number)), time.monotonic() + 0.02
        children = [fork(lambda w=w, s=store, m=moment: work(s, w, m)) for w in range(WRITERS)]
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * WRITERS


if __name__ == "__main__":
    torch.set_num_threads(1)  # a process that has threads is not to be forked
    {"kill": kill, "write": write, "begin": begin}[sys.argv[1]](Path(sys.argv[2]))
