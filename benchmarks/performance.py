"""Write docs/results/performance.md from the measurements.

    python benchmarks/performance.py

It reads these files in docs/results: fastpath-h200.json from `fastpath.py`, step-h200.json from `step.py`,
cpu-goals.json from `cpu_goals.py` and performance-cpu.json from `neurons.py`. Results of missing files are
shown as not measured.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results"
SMALL, LARGE, LONG = (30, 128, 64), (30, 128, 4096), (500, 16, 4096)
Row = dict[str, Any]


class Goal(NamedTuple):
    """An upper limit for a measurement on an H200."""

    part: str
    subject: str
    size: tuple[int, int, int]
    most: float
    before: float
    """The measurement at commit 48a3db5."""
    unit: str = "x copy"


GOALS = (
    Goal("called", "UltraLIF", SMALL, 0.7, 1.64, "ms"),
    Goal("called", "UltraDLIF", SMALL, 0.7, 1.67, "ms"),
    Goal("called", "UltraLIF", LARGE, 0.75, 1.76, "ms"),
    Goal("called", "UltraDLIF", LARGE, 0.9, 1.67, "ms"),
    Goal("host", "UltraLIF", SMALL, 0.6, 1.54, "ms"),
    Goal("host", "UltraDLIF", SMALL, 0.6, 1.69, "ms"),
    Goal("device", "UltraLIF", LARGE, 1.6, 2.35),
    Goal("device", "UltraDLIF", LARGE, 2.2, 5.4),
    Goal("device", "UltraLIF", LONG, 1.8, 2.6),
    Goal("device", "UltraDLIF", LONG, 2.5, 9.3),
    Goal("rings", "UltraDLIF", (30, 512, 1024), 2.2, 2.7),
    Goal("rings", "UltraDLIF", (30, 128, 4096), 2.4, 5.0),
    Goal("rings", "UltraDLIF", (30, 32, 16384), 2.2, 4.5),
    Goal("graph", "UltraLIF", SMALL, 10, 25, "us"),
    Goal("graph", "UltraDLIF", SMALL, 14, 32, "us"),
)
AHEAD = {
    ("called", SMALL): 1.04,
    ("called", LARGE): 0.88,
    ("graph", SMALL): 1.29,
    ("device", LARGE): 0.73,
    ("device", LONG): 2.46,
}
"""Where UltraLIF should be 1.2 times as fast as SpikingJelly's LIF on an H200, and the number at 48a3db5."""
HALF = {
    ("UltraLIF", LARGE): 0.86,
    ("UltraDLIF", LARGE): 0.95,
    ("UltraLIF", LONG): 0.92,
    ("UltraDLIF", LONG): 0.93,
}
"""Where bfloat16 should take no longer than float32 on an H200, and the number at 48a3db5."""
STACKED = {1: ((8, 24.0), (15, 10.4)), 30: ((3, 4.8), (10, 6.8))}
"""Goals and numbers at 48a3db5 for each T: multiples of the floor, and one by one over stacked."""


def read(name: str) -> Row:
    """Return a result file, or an empty dictionary if there is none."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else {}


def size_of(row: Row) -> tuple[int, int, int]:
    return row["time"], row["batch"], row["features"]


def spell(size: tuple[int, ...]) -> str:
    return "T{} B{} N{}".format(*size)


def line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def judged(where: str, goal: str, before: str, now: str | None, reached: bool) -> str:
    """Return a row of the goal table."""
    word = "" if now is None else "yes" if reached else "**no**"
    return line(where, goal, before, now or "not measured", word)


def gpu_goals(rows: list[Row]) -> Iterator[str]:
    """Yield the fast-path goals."""
    for goal in GOALS:
        found = [
            row
            for row in rows
            if (row["part"], row["subject"], row.get("dtype")) == (goal.part, goal.subject, "float32")
            and size_of(row) == goal.size
        ]
        where = f"H200, {goal.subject}, {spell(goal.size)}, {goal.part}"
        space = "" if goal.unit == "x copy" else " "
        value = {"ms": 1, "us": 1000}.get(goal.unit, 0) * found[0]["ms"] if found else 0
        value = found[0]["copies"] if found and goal.unit == "x copy" else value
        now = f"{value:.3g}{space}{goal.unit}" if found else None
        most, before = (f"{number:.3g}{space}{goal.unit}" for number in (goal.most, goal.before))
        yield judged(where, f"<= {most}", before, now, value <= goal.most)


def gpu_ratios(rows: list[Row]) -> Iterator[str]:
    """Yield the goals that compare two fast-path rows."""
    times = {(row["part"], row["subject"], size_of(row), row["dtype"]): row["ms"] for row in rows}
    for (part, size), before in AHEAD.items():
        peer, ours = (times.get((part, name, size, "float32")) for name in ("SpikingJelly LIF", "UltraLIF"))
        ratio = peer / ours if peer and ours else 0.0
        where = f"H200, SpikingJelly LIF / UltraLIF, {spell(size)}, {part}"
        yield judged(where, ">= 1.2", f"{before}", f"{ratio:.3g}" if ratio else None, ratio >= 1.2)
    for (name, size), before in HALF.items():
        half, full = (times.get(("device", name, size, dtype)) for dtype in ("bfloat16", "float32"))
        ratio = half / full if half and full else 0.0
        where = f"H200, {name}, {spell(size)}, device, bfloat16 / float32"
        yield judged(where, "<= 1", f"{before}", f"{ratio:.3g}" if ratio else None, ratio <= 1)


def stacked_goals(steps: list[Row]) -> Iterator[str]:
    """Yield the goals for the stacked training step."""
    for timesteps, ((most, floor), (least, ratio)) in STACKED.items():
        row = next((row for row in steps if row["timesteps"] == timesteps), {})
        where = f"H200, stacked step of 18 variants, T={timesteps}"
        over, gain = row.get("over_floor", 0.0), row.get("one_by_one_over_stacked", 0.0)
        now = f"{over:.3g}x" if over else None
        yield judged(f"{where}, over the floor", f"<= {most}x", f"{floor}x", now, over <= most)
        now = f"{gain:.3g}x" if gain else None
        yield judged(f"{where}, one by one over stacked", f">= {least}x", f"{ratio}x", now, gain >= least)


def cpu_goals(found: Row) -> Iterator[str]:
    """Yield the goals for one CPU thread."""
    if not found:
        return
    where = f"CPU, one thread, {spell(found['layer'])}"
    before = {"UltraLIF / copy": "4.0", "UltraDLIF / copy": "5.1", "UltraLIF / SpikingJelly LIF": "0.28"}
    for name, goal in found["goals"].items():
        yield judged(
            f"{where}, {name}",
            f"<= {goal['at most']}",
            before.get(name, ""),
            f"{goal['is']}",
            goal["is"] <= goal["at most"],
        )
    for dtype in ("bfloat16 / float32", "float16 / float32"):
        for name, value in found[dtype].items():
            yield judged(f"{where}, {name}, {dtype}", "<= 1", "1.3", f"{value}", value <= 1)
    for name, value in found["T=1000 / T=10"].items():
        yield judged(
            f"CPU, one thread, {name}, a step at T=1000 / at T=10", "<= 1.2", "", f"{value}", value <= 1.2
        )


def all_rows(rows: list[Row]) -> Iterator[str]:
    """Yield the table of all measurements in a file."""
    copies = {
        (row["part"], size_of(row), row["dtype"]): row["ms"] for row in rows if row["subject"] == "copy"
    }
    yield line("part", "layer", "T", "B", "N", "dtype", "ms", "quartiles", "x copy")
    yield "|---" * 9 + "|"
    for row in rows:
        copy = copies.get((row["part"], size_of(row), row["dtype"]))
        over = "-" if copy is None else f"{row['ms'] / copy:.2f}"
        spread = f"{row['low']:.4g} to {row['high']:.4g}"
        yield line(row["part"], row["subject"], *size_of(row), row["dtype"], f"{row['ms']:.4g}", spread, over)


def machine(found: Row) -> str:
    known = found["machine"]
    versions = (f"{name} {known[name]}" for name in known if name not in ("device", "threads", "system"))
    return f"{known['device']}, {', '.join(versions)}."


def origin(found: Row) -> str:
    """Return the date and the commit of a file, if they are recorded."""
    return f"{found.get('date', 'without a date')} at {found.get('commit', 'an unknown commit')}"


def page(fast: Row, step: Row, cpu: Row) -> list[str]:
    """Return the page's lines."""
    timed = [row for row in fast["rows"] if "low" in row]
    return [
        "# How fast neurons are: measured",
        "",
        "[Why it is fast](../performance.md) discusses these numbers, and [What limits each"
        " kernel](kernels.md#how-it-is-measured) describes how they are measured. This page is written by"
        " `python benchmarks/performance.py`.",
        "",
        "![time of a layer, in multiples of a plain copy](../images/front/speed.png)",
        "",
        "## Goals",
        "",
        "Times are for forward and backward, with learned constants. *Before* refers to commit 48a3db5. On"
        f" the H200, all layers were measured in one run ({origin(fast)}) and the stacked step in another"
        f" ({origin(step)}). On the CPU, times are medians of seven processes of `cpu_goals.py` on a quiet"
        " machine; a single run, below, is up to 15 % slower.",
        "",
        line("where", "goal", "before", "now", "reached"),
        "|---|--:|--:|--:|---|",
        *gpu_goals(timed),
        *gpu_ratios(timed),
        *stacked_goals(step.get("steps", [])),
        *cpu_goals(read("cpu-goals.json")),
        "",
        "[What limits each kernel](kernels.md#the-limits) explains the missed goals.",
        "",
        "## All measurements: H200",
        "",
        f"{machine(fast)} `python benchmarks/fastpath.py`, {origin(fast)}.",
        "",
        *all_rows(timed),
        "",
        "## All measurements: CPU",
        "",
        f"{machine(cpu)} `python {cpu['command']}`, {origin(cpu)}, with all peers.",
        "",
        *all_rows(cpu["rows"]),
        "",
    ]


def main() -> None:
    fast, step, cpu = (read(f"{name}.json") for name in ("fastpath-h200", "step-h200", "performance-cpu"))
    (RESULTS / "performance.md").write_text("\n".join(page(fast, step, cpu)))


if __name__ == "__main__":
    main()
