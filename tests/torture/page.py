"""The page of results, docs/results/torture.md, made of the rows in docs/results/torture.json."""

import json
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torture.warm import Row

ROWS = Path(__file__).parents[2] / "docs" / "results" / "torture.json"
PAGE = ROWS.with_suffix(".md")

ELSEWHERE = """
## What else there is, and what there is not

- Hostile downloads (web pages, cut and stalled bodies, redirects, wrong digests) are tested by `make test`,
  in `tests/data/test_fetch.py`; hostile names and values in reports in `tests/report`; exported C under
  sanitizers in `tests/export/test_c.py`.
- Seconds depend on the load: a line with a high one was measured while the two cores had as many processes
  that wanted to run. Ray's seconds are counted from a loss; the start of the cluster is not among them.
- A rank of torchrun is killed only right after a new checkpoint appears, not at other moments of a step.
- Not reached: a network that is called with NaN or Inf should raise, naming layer and step. It does not look:
  of soft spikes NaN comes out for that sample, and a binary neuron does not fire. Every reader refuses such
  values, so none comes from a dataset; to look at each batch would cost time in every step.
- Temperatures below 0.1, the least that is learned by default, are not among the extreme currents.
- Out of memory and 100 kills on a GPU: not run. The same code halves a stack there, on
  `torch.OutOfMemoryError`.
- The soak misses its bar, but no leak was found. A second process, on machine B at 9b42513, did the same
  rounds and noted more. From round 60 to round 2,195 its memory in use stayed the same: what malloc had
  given out within 5 KiB, but for one block of 1.8 MiB, and the blocks of Python's objects, which go up and
  down with garbage collection, between 868,597 and 873,567. Its resident memory went from 295.1 to 297.2
  MiB, 1.8 MiB of it at once, by round 240. That block is Python's table of interned strings, read from the
  process's memory: a round adds about 72 strings that soon go, and a full table is made anew, first twice
  as large, then of the same size. When large tables are freed, glibc raises the size from which it returns
  blocks to the system, and keeps more for later. A third process filled that table six times on purpose,
  with 8 rounds after each: what malloc kept rose from 1.0 to 7.3 MiB and ended at 6.8; what it had given
  out grew by the table's 1.8 MiB alone.
- The soak's line above is of resident memory only. The soak also kept a sample of each round, 120 bytes,
  which is 0.3 of its 2.46 MiB/h; now it keeps one in ten seconds, and its line will say what is in use.
  That the rest is what glibc keeps is inferred, not measured: it grew by 4.3 MiB between the ends, and a
  steady growth at its slope makes 2.8. No soak of 90 minutes was run since, nor one of three hours or of a
  day.
- The writers of an index write rows alone; those of a store write a folder with each.
- Power failures are replayed from a record of every change, under a model of a disk that loses and tears
  whatever was not flushed; no machine was switched off.
- Archives are unpacked by the Python that runs this; other versions are not tried.
"""


def record(row: Row, part: str, seconds: float) -> dict[str, Any]:
    """Return a row with its part and time, and with the machine, the commit and the day that it is of."""
    import torch

    import ultralif

    where = f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, "
    where += f"torch {torch.__version__}, ultralif {ultralif.__version__}"
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    about = {
        "part": part,
        "where": where,
        "when": when,
        "commit": _commit(),
        "load": round(os.getloadavg()[0]),
    }
    return {**row._asdict(), "seconds": round(seconds, 1), **about}


def _commit() -> str:
    """Return the commit that is tried, if this is a clone and git is there."""
    if not shutil.which("git"):
        return ""
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(words, cwd=ROWS.parent, capture_output=True, text=True).stdout.strip()


def known(path: Path = ROWS) -> dict[str, dict[str, Any]]:
    """Return the rows of a file by the names of their tests."""
    return {row["test"]: row for row in json.loads(path.read_text())} if path.exists() else {}


def save(rows: dict[str, dict[str, Any]], path: Path = ROWS) -> None:
    """Write rows to a file, and the page if they are the repository's own."""
    path.write_text(json.dumps(list(rows.values()), indent=1, ensure_ascii=False) + "\n")
    if path == ROWS:
        PAGE.write_text(page(list(rows.values())))


def page(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    reached = sum(row["reached"] for row in rows)
    machines = {where: chr(ord("A") + i) for i, where in enumerate(dict.fromkeys(r["where"] for r in rows))}
    days = sorted(row["when"] for row in rows)
    lines = [
        "# Hard times",
        "",
        f"`make torture`: {reached} of these {len(rows)} bars are reached, each in its last run; in all "
        f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes of work, from {days[0]} to {days[-1]} UTC.",
        "`python tests/torture --only PART` measures a part again; this page is made from",
        "`torture.json` beside it. The load is that at the end of the test, in processes that wanted to run;",
        "load and commit are left open where they were not noted. Machines, all shared with other work:",
        "",
        *(f"- {letter}: {where}" for where, letter in machines.items()),
        "",
        "| test | size | bar | found | reached | s | part | on | load | UTC | commit |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(_cells(row, machines[row['where']]))} |" for row in rows),
    ]
    return "\n".join(lines) + "\n" + ELSEWHERE


def _cells(row: dict[str, Any], machine: str) -> list[str]:
    """Return a line of the table, each cell as one line of text."""
    values = [row["test"], row["size"], row["bar"], row["found"], "yes" if row["reached"] else "**no**"]
    values += [f"{row['seconds']:.0f}", row["part"], machine, str(row.get("load", "")), row["when"]]
    values += [row.get("commit", "")]
    return [" ".join(value.replace("|", "/").split()) for value in values]
