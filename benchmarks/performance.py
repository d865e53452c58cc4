"""Turn the results of `neurons.py` into docs/results/performance.md and docs/images/performance.png.

    python benchmarks/performance.py

It reads performance-cpu.json and performance-h200.json in docs/results, as far as these are there.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"
SMALL, LARGE, LONG, CPU = (30, 128, 64), (30, 128, 4096), (500, 16, 4096), (30, 128, 1024)
ULTRA = ("UltraLIF", "UltraDLIF")


class Results:
    """The rows of one file."""

    def __init__(self, path: Path) -> None:
        document = json.loads(path.read_text()) if path.exists() else {"rows": [], "machine": {}}
        self.document, self.rows = document, document["rows"]

    def find(self, part: str, subject: str, size: tuple[int, ...], dtype: str = "float32") -> dict | None:
        for row in self.rows:
            shape = (row["time"], row["batch"], row["features"])
            if (row["part"], row["subject"], shape, row["dtype"]) == (part, subject, size, dtype):
                return row
        return None

    def ms(self, *key: object, **more: object) -> float | None:
        row = self.find(*key, **more)
        return None if row is None else row["ms"]


class Verdict(NamedTuple):
    """What was found for one goal."""

    goal: str
    where: str
    found: str
    reached: bool | None
    binds: str = ""


def ratio(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or bottom is None else top / bottom


def judge(
    goal: str, where: str, value: float | None, fits: Callable[[float], bool], unit: str, binds: str = ""
) -> Verdict:
    """Compare a number with its goal; None was not measured."""
    if value is None:
        return Verdict(goal, where, "not measured", None)
    shown = f"{value:.1f}{unit}" if value >= 1 else f"{value:.2f}{unit}"
    return Verdict(goal, where, shown, fits(value), "" if fits(value) else binds)


BYTES = "bytes: currents are read three times"
INSTRUCTIONS = "instructions: exponentials, logarithm, divisions"
LAUNCHES = "launches: twelve of one number each, for the learned temperature"


def gpu_goals(r: Results) -> Iterator[Verdict]:
    for name in ULTRA:
        for size in (LARGE, LONG):
            ours, half = r.ms("device", name, size), r.ms("device", name, size, dtype="bfloat16")
            where = f"{name}, {spell(size)}"
            value = ratio(ours, r.ms("device", "copy", size))
            yield judge(
                "1. GPU, large: <= 1.5x copy in float32", where, value, lambda v: v <= 1.5, "x", BYTES
            )
            yield judge(
                "1. GPU, large: bfloat16 no slower than float32",
                where,
                ratio(half, ours),
                lambda v: v <= 1,
                "x",
            )
        for size in (SMALL, LARGE, LONG):
            ours, where = r.ms("layer", name, size), f"{name}, {spell(size)}, called from Python"
            value = ratio(r.ms("layer", "SpikingJelly LIF", size), ours)
            yield judge("2. GPU: >= 1.2x SpikingJelly's LIF", where, value, lambda v: v >= 1.2, "x", LAUNCHES)
            value = ratio(r.ms("layer", f"{name} loop", size), ours)
            yield judge("2. GPU: >= 10x the plain loop", where, value, lambda v: v >= 10, "x", LAUNCHES)
        value = ratio(r.ms("in a graph", "SpikingJelly LIF", SMALL), r.ms("in a graph", name, SMALL))
        where = f"{name}, {spell(SMALL)}, in a CUDA graph"
        yield judge("2. GPU: >= 1.2x SpikingJelly's LIF", where, value, lambda v: v >= 1.2, "x", LAUNCHES)
        yield kept(r, name, SMALL, f"{name}, {spell(SMALL)}")
    for name in (*ULTRA, "PLIF", "LIF"):
        value = r.ms("in a graph", name, SMALL)
        micro = None if value is None else 1e3 * value
        where = f"{name}, {spell(SMALL)}"
        yield judge("4. GPU, in a CUDA graph: <= 15 us", where, micro, lambda v: v <= 15, " us", LAUNCHES)
    for name in (*ULTRA, "LIF"):
        value = ratio(r.ms("host", name, SMALL), r.ms("host", "SpikingJelly LIF", SMALL))
        goal, where = "7. GPU, host overhead: <= 1.5x SpikingJelly's LIF", f"{name}, {spell(SMALL)}"
        yield judge(goal, where, value, lambda v: v <= 1.5, "x", LAUNCHES)


def kept(r: Results, name: str, size: tuple[int, ...], where: str) -> Verdict:
    row = r.find("layer", name, size)
    value = None if row is None else row["kept"]
    return judge("3. nothing kept beyond input and output", where, value, lambda v: v < 0.05, " B")


def cpu_goals(r: Results) -> Iterator[Verdict]:
    for name in ULTRA:
        ours = r.ms("layer", name, CPU)
        where = f"{name}, {spell(CPU)}, one thread"
        for goal, other, fits in (
            ("5. CPU: >= 4x as fast as SpikingJelly's LIF", "SpikingJelly LIF", lambda v: v >= 4),
            ("5. CPU: >= 6x the plain loop", f"{name} loop", lambda v: v >= 6),
        ):
            yield judge(goal, where, ratio(r.ms("layer", other, CPU), ours), fits, "x", INSTRUCTIONS)
        value = ratio(ours, r.ms("layer", "copy", CPU))
        yield judge("5. CPU: <= 3x copy", where, value, lambda v: v <= 3, "x", INSTRUCTIONS)
        yield kept(r, name, CPU, where)


def growth_goals(r: Results, device: str) -> Iterator[Verdict]:
    for part, axis in (("growth in T", "T=10 to 1000"), ("growth in N", "N=1024 to 65536")):
        for name in ULTRA:
            costs = [x["ns_per_step"] for x in r.rows if x["part"] == part and x["subject"] == name]
            value = max(costs) / min(costs) if costs else None
            goal = "6. time of a step flat within 20 %"
            yield judge(
                goal, f"{name}, {axis}, {device}", value, lambda v: v <= 1.2, "x", GROWTH[device, part]
            )


GROWTH = {
    ("CPU", "growth in T"): "one more integration where a trace outgrows the cache; at T=10, the call itself",
    ("CPU", "growth in N"): "rings above 2048 neurons are cut into parts that overlap",
    ("H200", "growth in T"): "rings above 1024 neurons take a launch for every 30 steps",
    ("H200", "growth in N"): "rings above 1024 neurons are cut into parts that overlap",
}


def spell(size: tuple[int, ...]) -> str:
    return "T{} B{} N{}".format(*size)


def goal_table(verdicts: list[Verdict]) -> Iterator[str]:
    yield "| goal | where | found | reached | what binds |\n|---|---|---|---|---|"
    for v in verdicts:
        word = {None: "-", True: "yes", False: "**no**"}[v.reached]
        yield f"| {v.goal} | {v.where} | {v.found} | {word} | {v.binds} |"


def layer_table(r: Results) -> Iterator[str]:
    yield "| part | layer | T | B | N | dtype | ms | quartiles | ns a step | x copy | kept B |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in r.rows:
        size = (row["time"], row["batch"], row["features"])
        over = ratio(row["ms"], r.ms(row["part"], "copy", size, dtype=row["dtype"]))
        cells = [row["part"], row["subject"], *size, row["dtype"], f"{row['ms']:.4g}"]
        cells += [f"{row['low']:.4g} to {row['high']:.4g}", f"{row['ns_per_step']:.3g}"]
        cells += ["-" if over is None else f"{over:.2f}", f"{row['kept']:.1f}"]
        yield "| " + " | ".join(map(str, cells)) + " |"


def machine(r: Results) -> str:
    known = r.document["machine"]
    versions = ", ".join(
        f"{name} {known[name]}" for name in known if name not in ("device", "threads", "system")
    )
    when = r.document.get("date", "")
    return f"{known['device']}, {versions}. `python {r.document['command']}` {when}".strip()


def color(subject: str) -> str:
    return "black" if subject == "copy" else "#b0b0b0" if " " in subject else "#3f51b5"


def draw(results: dict[str, Results]) -> None:
    """Draw the time of a step for every subject, one panel a machine."""
    panels = [(name, r, CPU if name == "CPU" else LARGE) for name, r in results.items() if r.rows]
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 4.6), squeeze=False)
    for axis, (name, r, size) in zip(axes[0], panels, strict=True):
        if r.find("layer", "copy", size) is None:
            size = SMALL
        rows = [
            row
            for row in r.rows
            if row["part"] == "layer"
            and row["dtype"] == "float32"
            and (row["time"], row["batch"], row["features"]) == size
            and not row["subject"].endswith("rate")
        ]
        rows.sort(key=lambda row: -row["ns_per_step"])
        colors = [color(row["subject"]) for row in rows]
        axis.barh([row["subject"] for row in rows], [row["ns_per_step"] for row in rows], color=colors)
        for i, row in enumerate(rows):
            axis.text(row["ns_per_step"], i, f" {row['ns_per_step']:.3g}", va="center", fontsize=8)
        axis.set_xlim(right=1.15 * max(row["ns_per_step"] for row in rows))
        axis.set_xlabel("ns a step, forward and backward")
        axis.set_title(f"{name}, {spell(size)}, float32", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(DOCS / "images" / "performance.png", dpi=140)


GOALS = (  # part, subject, time, batch, features, dtype, most, a number in the row, before
    ("called", "UltraLIF", 30, 128, 64, "float32", 2.0, "copies", 4.7),
    ("called", "UltraDLIF", 30, 128, 64, "float32", 2.0, "copies", 4.8),
    ("called", "UltraLIF", 30, 128, 4096, "float32", 2.0, "copies", 4.8),
    ("called", "UltraDLIF", 30, 128, 4096, "float32", 2.4, "copies", 4.5),
    ("host", "UltraLIF", 30, 128, 64, "float32", 1.7, "copies", 4.3),
    ("host", "UltraDLIF", 30, 128, 64, "float32", 1.7, "copies", 4.8),
    ("device", "UltraLIF", 30, 128, 4096, "float32", 1.6, "copies", 2.35),
    ("device", "UltraDLIF", 30, 128, 4096, "float32", 2.2, "copies", 5.4),
    ("device", "UltraLIF", 500, 16, 4096, "float32", 1.8, "copies", 2.6),
    ("device", "UltraDLIF", 500, 16, 4096, "float32", 2.5, "copies", 9.3),
    ("rings", "UltraDLIF", 30, 512, 1024, "float32", 2.2, "copies", 2.7),
    ("rings", "UltraDLIF", 30, 128, 4096, "float32", 2.4, "copies", 5.0),
    ("graph", "UltraLIF", 30, 128, 64, "float32", 0.010, "ms", 0.025),
    ("graph", "UltraDLIF", 30, 128, 64, "float32", 0.014, "ms", 0.032),
)
"""The goals that `fastpath.py` measures, with the H200's number at 48a3db5."""


def fast_table(path: Path) -> list[str]:
    """Return every goal of the fast path with its number before and now."""
    document = json.loads(path.read_text()) if path.exists() else {"rows": []}
    names = ("part", "subject", "time", "batch", "features", "dtype")
    found = {tuple(row.get(name) for name in names): row for row in document["rows"]}
    lines = ["| where | goal | before | now | reached |", "|---|--:|--:|--:|---|"]
    for *key, most, kind, before in GOALS:
        row = found.get(tuple(key))
        unit, scale = ("x copy", 1) if kind == "copies" else (" us", 1000)
        now = "not measured" if row is None else f"{scale * row[kind]:.3g}{unit}"
        reached = "" if row is None else "yes" if row[kind] <= most else "no"
        where = f"{key[1]}, {spell(tuple(key[2:5]))}, {key[0]}"
        lines.append(
            f"| {where} | {scale * most:.3g}{unit} | {scale * before:.3g}{unit} | {now} | {reached} |"
        )
    return [*lines, *stacked_goals(path.with_name("step-h200.json"))]


STACKED = {1: ((8, 24.0), (15, 10.4)), 30: ((3, 4.8), (10, 6.8))}
"""For each T goal and number at 48a3db5: times the floor, and one by one over stacked."""


def stacked_goals(path: Path) -> list[str]:
    """Return the goals of the stacked step, which `step.py` measures."""
    lines = []
    for row in json.loads(path.read_text())["steps"] if path.exists() else []:
        (most, floor), (least, ratio) = STACKED[row["timesteps"]]
        where = f"stacked step of 18 variants, T={row['timesteps']}"
        now, gain = row["over_floor"], row["one_by_one_over_stacked"]
        lines += [
            f"| {where} | {most}x floor | {floor}x | {now:.3g}x | {'yes' if now <= most else 'no'} |",
            f"| {where}, one by one over stacked | {least}x | {ratio}x | {gain:.3g}x | "
            f"{'yes' if gain >= least else 'no'} |",
        ]
    return lines


def main() -> None:
    folder = DOCS / "results"
    cpu, h200 = Results(folder / "performance-cpu.json"), Results(folder / "performance-h200.json")
    verdicts = [*gpu_goals(h200), *cpu_goals(cpu), *growth_goals(cpu, "CPU"), *growth_goals(h200, "H200")]
    verdicts.sort(key=lambda verdict: verdict.goal)
    by = "Made by `python benchmarks/performance.py`."
    text = ["# How fast neurons are: measured", ""]
    text += [
        f"[What it means, and how it is measured](../performance.md). {by}",
        "",
    ]
    text += ["![time of a step](../images/performance.png)", "", "## Goals", "", *goal_table(verdicts)]
    text += ["", "## The fast path on an H200", "", "By `benchmarks/fastpath.py`; before: commit 48a3db5."]
    text += ["", *fast_table(folder / "fastpath-h200.json")]
    for name, r in (("CPU", cpu), ("H200", h200)):
        if r.rows:
            text += ["", f"## All measurements: {name}", "", machine(r), ""]
            text += [*(f"- {note}" for note in r.document["notes"]), "", *layer_table(r)]
    (folder / "performance.md").write_text("\n".join(text) + "\n")
    draw({"CPU": cpu, "H200": h200})


if __name__ == "__main__":
    main()
