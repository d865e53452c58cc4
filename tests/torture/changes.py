"""Processes that are killed just before each change that they make to the disk, one after the other."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from torture.victims import SHORT, quiet, runs_of, train
from torture.warm import Faults, Row, files_of, lanes, run
from ultralif.training import RunOptions, Store, grid, plan, run_local

OFTEN = RunOptions(checkpoint_seconds=0)


class Work(NamedTuple):
    """Something to be killed: how its folder begins, the work, and whether what it left is right."""

    prepare: Callable[[Path], None]
    work: Callable[[Path], None]
    is_right: Callable[[Path], bool]


def sweep(folder: Path) -> None:
    """Train two stacks of two networks."""
    store = Store(folder)
    configs = grid(SHORT, ["UltraLIF", "LIF"], [1, 2], [0.0], [1])
    for _ in run_local(plan(configs, store), store, OFTEN):
        pass


def works(base: Path) -> dict[str, Work]:
    """Return everything that is killed, with what it should leave."""
    for name, work in (("train", lambda f: train(f, SHORT)), ("sweep", sweep)):
        assert run(lambda work=work, name=name: work(base / f"every-{name}")).code == 0
    one, four = base / "every-train", base / "every-sweep"
    trained, swept = runs_of(one), runs_of(four)
    (name,) = trained

    def copied(folder: Path) -> None:
        shutil.copytree(four, folder)
        (folder / "index.sqlite").unlink()

    def export(form: str) -> Work:
        words = ["export", str(one / name), "--to", form, "--mode", "tropical", "--out"]
        assert run(lambda: quiet([*words, str(base / f"every-{form}")])).code == 0
        whole = set(files_of(base / f"every-{form}"))
        return Work(
            Path.mkdir,
            lambda folder: None if (folder / "out").exists() else quiet([*words, str(folder / "out")]),
            lambda folder: set(files_of(folder / "out")) == whole,
        )

    page = ["report", "--runs-dir", str(four), "--inside", "0", "--out"]
    table = ["runs", "export", "--runs-dir", str(four), "--out"]
    return {
        "train": Work(lambda _: None, lambda f: train(f, SHORT), lambda f: runs_of(f) == trained),
        "sweep": Work(lambda _: None, sweep, lambda f: runs_of(f) == swept),
        "rebuild": Work(copied, lambda f: Store(f).rebuild() and None, lambda f: _rows(f) == _rows(four)),
        "export to C": export("c"),
        "export to NIR": export("nir"),
        "report": Work(
            Path.mkdir,
            lambda folder: quiet([*page, str(folder / "page.html")]),
            lambda folder: b"</html>" in (folder / "page.html").read_bytes()[-20:],
        ),
        "runs export": Work(
            Path.mkdir,
            lambda folder: quiet([*table, str(folder / "runs.csv")]),
            lambda folder: (folder / "runs.csv").read_text().count("\n") == 5,
        ),
    }


def _rows(folder: Path) -> list[str]:
    return sorted(runs_of(folder))


def every_change(base: Path, faults: Faults, few: int, processes: int) -> Iterator[Row]:
    """Kill each work before each of its changes, then let it be done."""
    bar = "never half a file; the same command then ends as if nothing had been, bit for bit"
    for name, work in works(base).items():
        counted = run(lambda work=work: _counted(base / "counted", work, faults))
        assert counted.code == 0, counted.message
        tried = range(0, int(counted.message), few)

        def share(lane: int, work: Work = work, tried: range = tried) -> list[tuple[bool, str]]:
            return [_killed(base / f"killed-{lane}", work, faults, k) for k in tried[lane::processes]]

        found = [result for part in lanes(share, processes) for result in part]
        bad = [complaint for _, complaint in found if complaint]
        said = f"{len(found) - len(bad)}/{len(found)} as they should be" + "".join(f"; {b}" for b in bad[:3])
        kills = sum(killed for killed, _ in found)
        yield Row(f"SIGKILL before every change of {name}", f"{kills} kills", bar, said, not bad)


def _killed(folder: Path, work: Work, faults: Faults, change: int) -> tuple[bool, str]:
    """Kill a work before a change, do it again, and tell whether it was killed and what is wrong then."""

    def dies() -> None:
        faults.kill(change)
        work.work(folder)

    work.prepare(folder)
    ended = run(dies)
    again = run(lambda: work.work(folder))
    right = again.code == 0 and work.is_right(folder)
    shutil.rmtree(folder, ignore_errors=True)
    why = (again.message.strip() or "differs").splitlines()[-1][:120]
    return ended.code == -9, "" if right else f"change {change}: {why}"


def _counted(folder: Path, work: Work, faults: Faults) -> int:
    work.prepare(folder)
    faults.count()
    work.work(folder)
    count = faults.changes()
    shutil.rmtree(folder)
    return count
