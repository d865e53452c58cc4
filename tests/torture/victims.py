"""Processes that are killed, robbed of their disk, and told wrong times; what they leave is compared."""

import errno
import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torture.warm import Child, Faults, Row, done, files_of, lanes, run
from ultralif.cli import main
from ultralif.errors import JobError
from ultralif.training import RunConfig, RunOptions, Store, grid, plan, run_local, train_stack
from ultralif.training.checkpoint import Damaged, read_folder

TINY = RunConfig(timesteps=1, hidden=(8,), epochs=3)
SHORT = TINY.with_(epochs=1)
DIVERGING = TINY.with_(learning_rate=900.0, optimizer="sgd", neuron="UltraPLIF", sparsity=9e5, seed=1)
MADE_ANEW = ("path", "seconds", "finished", "environment")


def train(folder: Path, config: RunConfig = TINY) -> None:
    """Train one network, with a checkpoint after every step."""
    train_stack([config], Store(folder), RunOptions(checkpoint_seconds=0))


def sweep(folder: Path) -> None:
    """Train two stacks, in one of which a member diverges."""
    configs = grid(TINY, ["UltraLIF", "LIF"], [1], [0.0, 0.1], [1])
    configs += [DIVERGING, DIVERGING.with_(sparsity=0.0)]
    store = Store(folder)
    for _ in run_local(plan(configs, store), store, RunOptions(checkpoint_seconds=0)):
        pass


def runs_of(folder: Path) -> dict[str, Any]:
    """Return all that the runs of a folder say, but for times, and every byte of their parameters."""
    store = Store(folder)
    found: dict[str, Any] = {}
    for row in store.rows():
        run_ = store.read(row.id)
        said = {key: value for key, value in row.to_dict().items() if key not in MADE_ANEW}
        found[row.id] = (said, run_.contents.file, run_.history)
    return found


def sigkill(base: Path, rng: random.Random, kills: dict[str, int]) -> Iterator[Row]:
    """Kill training, sweep and export at random moments, and let each go on to its end."""
    works: dict[str, Callable[[Path], None]] = {"training": train, "sweep": sweep}
    for name, work in works.items():
        whole = base / name
        began = time.monotonic()
        expected = run(lambda work=work, whole=whole: work(whole))
        longest = (time.monotonic() - began) / 6  # moments that a slow or busy machine also gets through
        assert expected.code == 0, expected.message
        reference, same, rounds, count, complaints = runs_of(whole), 0, 0, 0, []
        while count < kills[name]:
            folder = base / f"{name}-{rounds}"
            killed, ended = _until_done(lambda work=work, folder=folder: work(folder), rng, longest)
            complaints += [] if ended.code == 0 else [ended.message]
            count, rounds = count + killed, rounds + 1
            same += ended.code == 0 and runs_of(folder) == reference
            shutil.rmtree(folder)
        lost = sum(said["status"] == "diverged" for said, _, _ in reference.values())
        assert lost == (name == "sweep"), f"{lost} of {name} diverged"
        size = f"{count:,} kills over {rounds} runs" + (", each with a member that diverges" if lost else "")
        bar = "weights, numbers and histories bit-identical to the uninterrupted run, 100 %"
        yield Row(f"SIGKILL in {name}", size, bar, f"{same}/{rounds} identical", same == rounds)
    yield _killed_exports(base, rng, kills["export"])


def _until_done(work: Callable[[], object], rng: random.Random, longest: float) -> tuple[int, Any]:
    """Start a work again and again until it ends by itself; return how often it was killed."""
    killed = 0
    while True:
        ended = Child(work).killed_after(rng.uniform(0, longest))
        if ended.code != -9:
            return killed, ended
        killed += 1
        longest *= 1.02  # a slow machine must get through as well


def _killed_exports(base: Path, rng: random.Random, kills: int) -> Row:
    (name,) = runs_of(base / "training")
    source = str(base / "training" / name)
    first = ["export", source, "--to", "nir", "--out", str(base / "export"), "--mode", "tropical"]
    began = time.monotonic()
    ended = run(lambda: quiet(first))
    longest = 1.1 * (time.monotonic() - began)
    assert ended.code == 0, ended.message
    count = rounds = good = 0
    while count < kills:
        kind = rng.choice(("c", "nir"))
        out = base / f"export-{rounds}"
        words = ["export", source, "--to", kind, "--out", str(out), "--mode", "tropical"]
        ended = Child(lambda words=words: quiet(words)).killed_after(rng.uniform(0, longest))
        count, rounds = count + (ended.code == -9), rounds + 1
        if out.exists() and any(out.iterdir()):
            whole = run(lambda words=words, out=out: quiet([*words[:5], str(out) + "-again", *words[6:]]))
            good += whole.code == 0 and set(files_of(out)) == set(files_of(Path(f"{out}-again")))
        else:
            good += run(lambda words=words: quiet(words)).code == 0
    bar = "the folder is whole or not there, and the same command does it then"
    return Row(
        "SIGKILL in export", f"{count} kills over {rounds} exports", bar, f"{good}/{rounds}", good == rounds
    )


def quiet(words: list[str]) -> None:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    if code:
        raise JobError(said.getvalue())


def disk(base: Path, faults: Faults, most: int) -> Iterator[Row]:
    """Let the disk be full, or fail, from every change on that a training makes."""
    ended = run(lambda: _changes(base / "short", faults))
    most = min(most, int(ended.message))
    reference = runs_of(base / "short")
    for name, number, for_good in (("full", errno.ENOSPC, True), ("failing once", errno.EIO, False)):
        clear = same = tried = 0
        said: list[str] = []
        for change in range(most):
            folder = base / f"disk-{number}-{change}"

            def work(
                folder: Path = folder, change: int = change, number: int = number, for_good: bool = for_good
            ) -> None:
                faults.fail(change, number, for_good=for_good)
                train(folder, SHORT)

            ended = run(work)
            tried += 1
            named = ended.code == 0 or str(base) in ended.message or "could not" in ended.message
            clear += ended.is_clear and named
            if not (ended.is_clear and named):
                said.append(f"change {change}: {ended.message.strip().splitlines()[-1][:200]}")
            same += run(lambda folder=folder: train_again(folder)).code == 0 and runs_of(folder) == reference
            shutil.rmtree(folder, ignore_errors=True)
        found = f"{clear}/{tried} clear, {same}/{tried} finish identically later" + "".join(
            f"; {s}" for s in said[:2]
        )
        bar = "a message that names the place, no traceback, nothing lost"
        yield Row(f"disk {name} at the k-th change", f"k < {most}", bar, found, clear == same == tried)
    yield from _small_disk(base)


def _changes(folder: Path, faults: Faults) -> int:
    """Return how often an undisturbed training changes the disk."""
    faults.fail(-1, 0, for_good=False)
    train(folder, SHORT)
    return faults.changes()


def train_again(folder: Path) -> None:
    """Finish a training if it is not finished."""
    if not Store(folder).finished([SHORT.id]):
        train(folder, SHORT)


def _small_disk(base: Path) -> Iterator[Row]:
    """Train on a disk of a few kilobytes, then make room; no row comes of it where nothing may be mounted."""
    place = base / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        return
    try:
        ended = run(lambda: train(place / "runs"))
        clear = ended.code == 1 and str(place) in ended.message
        subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)
        later = run(lambda: train(place / "runs"))
        same = later.code == 0 and runs_of(place / "runs") == runs_of(base / "training")
        bar = "a message with path and bytes; finishes identically when there is room"
        found = ended.message.replace(str(place), "DISK")
        yield Row("a real disk of 64 KiB", "1", bar, found, clear and same)
    finally:
        subprocess.run(["umount", str(place)], check=False)


def clock(base: Path, faults: Faults, rng: random.Random, rounds: int) -> Row:
    """Let the clock jump by years, forward and back, whenever it is read."""
    reference = runs_of(base / "training")
    same = 0
    for i in range(rounds):
        folder = base / f"clock-{i}"

        def work(folder: Path = folder) -> None:
            faults.jump(rng.randrange(-20, 20) * 365 * 24 * 3600 + 1)
            train(folder)

        seconds = rng.random()
        killed = Child(work).killed_after(seconds)
        ended = run(work) if killed.code == -9 else killed
        same += ended.code == 0 and runs_of(folder) == reference
    bar = "the same runs, bit for bit"
    return Row(
        "clock jumps of up to 20 years",
        f"{rounds} runs, some killed",
        bar,
        f"{same}/{rounds}",
        same == rounds,
    )


def damaged_checkpoints(base: Path, rng: random.Random, count: int) -> Row:
    """Flip bits of, and cut, the files of the newest checkpoint; training must go on from the one before."""
    folder = base / "flipped"
    (ended,) = (_until_stopped(folder),)
    assert ended.code == 143, ended.message
    expected = runs_of(base / "training")
    kept = base / "flipped-kept"
    shutil.copytree(folder, kept)
    sound = read_folder(max(kept.glob(".training/*/[0-9]*")))

    def damage(i: int) -> tuple[bool, bool, bool]:
        """Damage the checkpoint, go on; tell whether it was silent, as it should be, and the end the same."""
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        newest = max(folder.glob(".training/*/[0-9]*"))
        victim = rng.choice(sorted(newest.iterdir()))
        data = bytearray(victim.read_bytes())
        if i % 2:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            del data[rng.randrange(len(data)) :]
        victim.write_bytes(data)
        try:
            same = read_folder(newest) == sound  # as when a bit of the manifest's own remarks is another
        except Damaged:
            same = False
        ended = done(lambda: notes_of(folder))
        quietly = "older checkpoint" not in ended.message
        return quietly and not same, quietly and same, ended.code == 0 and runs_of(folder) == expected

    counts = lanes(lambda _: [*map(sum, zip(*map(damage, range(count)), strict=True))], 1)
    ((silent, harmless, good),) = counts  # of one child: it stays warm
    bar = "0 silent loads, and the end is bit-identical"
    said = f"{silent} silent, {good:,}/{count:,} identical; {harmless} changed nothing that is read"
    size = f"{count // 2:,} flips, {count - count // 2:,} cuts"
    name = "bit flips and cuts of the newest checkpoint"
    return Row(name, size, bar, said, good == count and not silent)


def _until_stopped(folder: Path) -> Any:
    calls = iter(range(10**6))
    return run(
        lambda: train_stack(
            [TINY],
            Store(folder),
            RunOptions(checkpoint_seconds=0, stopping=lambda: 143 if next(calls) == 20 else 0),
        )
    )


def notes_of(folder: Path) -> str:
    """Go on, and return what was said."""
    said: list[str] = []
    train_stack(
        [TINY],
        Store(folder),
        RunOptions(checkpoint_seconds=60, report=lambda p: said.append(p.note) if p.note else None),
    )
    return json.dumps(said)
