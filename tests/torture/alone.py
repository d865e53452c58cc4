"""Tests that need a process of their own, started by __main__.py: an ordinary user, and a long day.

python alone.py PART FOLDER SEED AMOUNT prints a row of the table as JSON.
"""

import contextlib
import ctypes
import gc
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]

from ultralif.cli import main as ultralif  # noqa: E402 (the path comes first)

NOBODY = 65534
QUICK = ["--epochs", "1", "--timesteps", "1", "--hidden", "4", "--batch-size", "600", "--quiet"]


def call(*words: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it said on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = ultralif(words)
    return code, err.getvalue()


def attempts(store: Path, out: Path) -> list[list[str]]:
    """Return commands that read a store, and that write to it or elsewhere."""
    (run,) = [path.name for path in store.glob("[0-9a-f]*") if path.is_dir()] or ["ec41a8a59bcc"]
    at = ["--runs-dir", str(store)]
    return [
        ["runs", "list", *at],
        ["runs", "show", run, *at],
        ["eval", run, *at],
        ["report", "--inside", "0", "--out", str(out / "page.html"), *at],
        ["export", run, "--to", "c", "--mode", "tropical", "--out", str(out / "c"), *at],
        ["export", run, "--to", "nir", "--mode", "hard", "--out", str(out / "nir"), *at],
        ["analyze", "prune", run, "--out", str(out / "net"), *at],
        ["analyze", "boundary", "2-3-2", "--resolution", "8", "--out", str(out / "cut.png")],
        ["data", "show", "digits", "--out", str(out / "digit.png")],
        ["runs", "export", "--out", str(out / "runs.csv"), *at],
        ["train", *QUICK, "--seed", "7", *at],
        ["train", *QUICK, *at],
        ["sweep", *QUICK, "--neurons", "LIF", *at],
        ["runs", "rebuild", *at],
        ["runs", "rm", run, "--yes", *at],
    ]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def ordinary_user(base: Path) -> dict[str, Any]:
    """Work in folders that may be read only, or not at all, without the rights of root."""
    os.environ["ULTRALIF_CACHE"] = str(base / "cache")
    base.chmod(0o755)
    stores = {name: base / name / "runs" for name in ("warm", "readable", "closed")}
    for store in stores.values():
        store.parent.mkdir()
        assert call("train", *QUICK, "--runs-dir", str(store))[0] == 0
    (base / "warm" / "out").mkdir()
    for words in attempts(stores["warm"], base / "warm" / "out"):
        call(*words)  # all that is imported is imported now: an ordinary user may not see root's Python
    forbidden = base / "forbidden"
    forbidden.mkdir(mode=0o555)
    for path in [base / "readable", *(base / "readable").rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = snapshot(base / "readable")
    os.setresgid(NOBODY, NOBODY, 0)
    os.setresuid(NOBODY, NOBODY, 0)  # which also asks as such
    tried, bad, done = 0, [], 0
    for name in ("readable", "closed"):
        for words in attempts(stores["readable"], forbidden):
            given = [word.replace("/readable/", f"/{name}/") for word in words]
            try:
                code, err = call(*given)
            except Exception as error:
                code, err = 70, repr(error)
            tried, done = tried + 1, done + (code == 0)
            if code not in (0, 1, 2) or (code and err.count("\n") != 1):
                bad.append(f"{name}, {' '.join(given[:3])}: {code} {err[-150:]}")
    os.setresuid(0, 0, 0)
    os.setresgid(0, 0, 0)
    same = snapshot(base / "readable") == before and not any(forbidden.iterdir())
    bar = "done or refused in one line; nothing is changed, made or removed"
    found = f"{tried - len(bad)}/{tried} ({done} done), {'nothing changed' if same else 'something changed'}"
    found += "".join(f"; {line}" for line in bad[:3])
    return _row("read-only folders, an ordinary user", f"{tried} commands", bar, found, same and not bad)


def soak(base: Path, seconds: float) -> dict[str, Any]:
    """Train, evaluate, list, report and remove without end; memory and descriptors must not grow.

    The same eight runs come again and again: their parameters must be the same bytes each time.
    """
    began, cycle, bad, different = time.monotonic(), 0, 0, 0
    samples: list[Held] = []
    first: dict[str, bytes] = {}
    at = ["--runs-dir", str(base / "runs")]
    while time.monotonic() - began < seconds:
        for neuron in ("UltraLIF", "UltraDLIF"):
            words = ["train", *QUICK, "--neuron", neuron, "--seed", str(cycle % 4), *at]
            bad += call(*words)[0] != 0
        runs = sorted(path for path in (base / "runs").glob("[0-9a-f]*") if path.is_dir())
        for run in runs:
            content = (run / "model.safetensors").read_bytes()
            different += first.setdefault(run.name, content) != content
        bad += call("eval", runs[-1].name, *at)[0] != 0
        bad += call("runs", "list", *at)[0] != 0
        page = ["--inside", "1", "--samples", "1", "--out", str(base / "page.html")]
        bad += call("report", *page, *at)[0] != 0
        for run in runs:
            bad += call("runs", "rm", run.name, "--yes", *at)[0] != 0
        if (now := time.monotonic() - began) >= 10 * len(samples):  # not each round: a sample is memory too
            samples.append(_held(now))
        cycle += 1
    warm = samples[len(samples) // 4 :]
    slope = _slope([(each.seconds / 3600, each.resident) for each in warm])
    start, end = warm[0], warm[-1]
    leaked = end.handles - start.handles
    size = f"{seconds / 60:.0f} minutes, {cycle} rounds, {2 * cycle} trainings of {len(first)} runs"
    found = f"{slope:+.2f} MiB/h after warm-up, from {start.resident:.1f} to {end.resident:.1f} MiB; "
    found += (
        f"in use {end.given - start.given:+.2f} MiB of malloc's and {end.blocks - start.blocks:+d} blocks "
    )
    found += f"of Python's; {leaked} more descriptors; {different} results differ; {bad} failures"
    bar = "below 1 MiB/h after warm-up, 0 leaked descriptors, the same results, 0 failures"
    good = slope < 1 and leaked <= 0 and not bad and not different
    return _row("soak", size, bar, found, good)


class Held(NamedTuple):
    """What a process holds at a time."""

    seconds: float
    resident: float
    """MiB, with those that malloc keeps for later."""
    given: float
    """MiB that malloc has given out."""
    blocks: int
    """Pieces of memory that Python's objects are in."""
    handles: int


class _Mallinfo(ctypes.Structure):
    """What glibc's mallinfo2 returns; of its ten sizes, hblkhd and uordblks are memory in use."""

    _fields_ = tuple(
        (name, ctypes.c_size_t) for name in ("a", "b", "c", "d", "hblkhd", "f", "g", "uordblks", "i", "j")
    )


def _held(seconds: float) -> Held:
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    handles = len(list(Path("/proc/self/fd").iterdir()))
    resident, given = pages * os.sysconf("SC_PAGESIZE"), info.uordblks + info.hblkhd
    return Held(seconds, resident / 2**20, given / 2**20, sys.getallocatedblocks(), handles)


def _slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the line that fits points best."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((a - x) ** 2 for a, _ in points)
    return sum((a - x) * (b - y) for a, b in points) / spread if spread else 0.0


def _row(*values: Any) -> dict[str, Any]:
    return dict(zip(("test", "size", "bar", "found", "reached"), values, strict=True))


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    part = ordinary_user(folder) if sys.argv[1] == "readonly" else soak(folder, float(sys.argv[4]))
    print(json.dumps(part))
