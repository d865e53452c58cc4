"""Processes that are killed just before each change that they make to the disk, one after the other."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from torture.victims import SHORT, quiet, runs_of, train
from torture.warm import Faults, Row, files_of, run
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


def every_change(base: Path, faults: Faults, few: int) -> Iterator[Row]:
    """Kill each work before each of its changes, then let it be done."""
    bar = "never half a file; the same command then ends as if nothing had been, bit for bit"
    for name, (prepare, work, is_right) in works(base).items():
        counted = run(lambda p=prepare, w=work: _counted(base / "counted", p, w, faults))
        assert counted.code == 0, counted.message
        count = int(counted.message)
        killed = same = 0
        bad: list[str] = []
        for change in range(0, count, few):
            folder = base / "killed"
            prepare(folder)

            def dies(folder: Path = folder, work: Callable = work, change: int = change) -> None:
                faults.kill(change)
                work(folder)

            ended = run(dies)
            killed += ended.code == -9
            again = run(lambda work=work, folder=folder: work(folder))
            right = again.code == 0 and is_right(folder)
            same += right
            if not right:
                bad.append(f"change {change}: {(again.message.strip() or 'differs').splitlines()[-1][:120]}")
            shutil.rmtree(folder, ignore_errors=True)
        tried = len(range(0, count, few))
        found = f"{same}/{tried} as they should be" + "".join(f"; {line}" for line in bad[:3])
        yield Row(f"SIGKILL before every change of {name}", f"{killed} kills", bar, found, same == tried)


def _counted(folder: Path, prepare: Callable, work: Callable, faults: Faults) -> int:
    prepare(folder)
    faults.count()
    work(folder)
    count = faults.changes()
    shutil.rmtree(folder)
    return count
