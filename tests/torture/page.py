"""The page of results, docs/results/torture.md, generated from docs/results/torture.json."""

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
## Tested elsewhere

- `tests/data/test_fetch.py` tests hostile downloads, such as web pages in place of files, connections
  that break or stall, redirects and wrong digests.
- `tests/report` tests hostile names and values in reports.
- `tests/export/test_c.py` runs exported C under sanitizers.

## Limits of these tests

- Times depend on the machine's load. Ray's times are measured from the loss of a node and do not include
  cluster start-up.
- A torchrun rank is killed only right after a new checkpoint appears, not at other moments of a step.
- Calling a network with NaN or Inf should raise an error that names the layer and the step. It does not: soft
  spikes become NaN for that sample, and a binary neuron does not fire. Every reader refuses such values, so
  they cannot come from a dataset. Checking every batch would slow down every step.
- The extreme currents are not combined with temperatures below 0.1, the default lower bound of a
  learned temperature.
- Running out of memory and 100 kills were not tested on a GPU. The same code halves a stack there when it
  catches `torch.OutOfMemoryError`.
- Index writers write only rows. Store writers also write a folder for each row.
- Power failures are replayed from a record of every change. The simulated disk loses or tears
  everything that was not flushed. No machine was switched off.
- Archives are unpacked by the Python version that runs the tests; other versions were not tried.

## The soak test

The soak test misses its target, but no leak was found. A second process, on machine B at 9b42513, repeated
the rounds and took more measurements:

| from round 60 to round 2,195 | change |
|---|---|
| memory allocated by malloc, without one block of 1.8 MiB | within 5 KiB |
| memory blocks of Python objects | between 868,597 and 873,567 |
| resident memory | from 295.1 to 297.2 MiB |

That one block, which was allocated by round 240, accounts for most of the growth. It is Python's table of
interned strings: every round adds about 72 short-lived strings, and a full table is replaced by a new one.
When large tables are freed, glibc raises its limit for returning memory to the system and keeps more of it. A
third process filled the table six times on purpose. The memory that glibc kept rose from 1.0 to 7.3 MiB, and
the allocated memory grew only by the table's 1.8 MiB.

The row above counts resident memory only. The soak's own records, 120 bytes per round, account for 0.3 of the
2.46 MiB/h. It now records one sample every ten seconds, and the next run will report the allocated memory.
The rest is probably memory that glibc keeps, but this was not measured: resident memory grew by 4.3 MiB from
start to end, whereas steady growth at the fitted slope would give 2.8 MiB. No further 90-minute soak was run,
nor one of three hours or a day.
"""


def record(row: Row, part: str, seconds: float) -> dict[str, Any]:
    """Return a row with its part and time, and with the machine, the commit and the date."""
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
    """Return the tested commit, if this is a clone and git is available."""
    if not shutil.which("git"):
        return ""
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(words, cwd=ROWS.parent, capture_output=True, text=True).stdout.strip()


def known(path: Path = ROWS) -> dict[str, dict[str, Any]]:
    """Return the rows of a file by test name."""
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
        "# Crashes, full disks and damaged files",
        "",
        "This page shows how UltraLIF behaves when processes are killed, disks fill up, files are",
        f"damaged or many processes write at once. `make torture` runs everything. {reached} of the",
        f"{len(rows)} tests passed in their last run. Together they took "
        f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes, from {days[0]} to {days[-1]} UTC.",
        "",
        "`python tests/torture --only PART` repeats a part. The page is generated from `torture.json`. The",
        "column *load* is the load average at the end of a test. All machines were shared with other work:",
        "",
        *(f"- {letter}: {where}" for where, letter in machines.items()),
        "",
        "| test | size | bar | found | reached | s | part | on | load | UTC | commit |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(_cells(row, machines[row['where']]))} |" for row in rows),
    ]
    return "\n".join(lines) + "\n" + ELSEWHERE


def _cells(row: dict[str, Any], machine: str) -> list[str]:
    """Return one row of the table, with each cell on a single line."""
    values = [row["test"], row["size"], row["bar"], row["found"], "yes" if row["reached"] else "**no**"]
    values += [f"{row['seconds']:.0f}", row["part"], machine, str(row.get("load", "")), row["when"]]
    values += [row.get("commit", "")]
    return [" ".join(value.replace("|", "/").split()) for value in values]
