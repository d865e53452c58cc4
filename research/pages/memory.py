"""Write the tables of research/docs/memory.md and the figure of docs/memory.md.

python -m research studies memory_page
"""

import json
import math
import re
import statistics
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

import ultralif as ul
from research import DOCS, RESULTS, ROOT
from research.paper.statistics import interval
from research.studies.memory_nets import METHODS
from research.studies.memory_tasks import TASKS
from ultralif.report import new_figure, save_figure

Row = dict[str, Any]
COLORS = ("#0072B2", "#56B4E9", "#009E73", "#80868F", "#E69F00", "#D55E00")


def table(rows: list[Row]) -> str:
    """Return the results on all tasks as a table."""
    lines = [
        "| task | reset or neuron | seeds | hard | soft | tropical | mean log abs(dV/dV) | steps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, method in product(TASKS, METHODS):
        found = [row for row in rows if (row["task"], row["method"], row["held"]) == (task, method, False)]
        if not found:
            continue
        cells = [str(len(found))]
        for name in ("hard", "soft", "tropical"):
            values = [row[name] for row in found if name in row]
            over = interval(dict(enumerate(values)))
            spread = f" ± {over.half:.1f}" if over and over.half is not None else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
        kept = statistics.mean(row["memory"] for row in found)
        cells += [f"{kept:.2f}", f"{-1 / kept:.1f}"]
        lines.append(f"| {task} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def speeds(name: str) -> str:
    """Return the times measured by `memory_speed` in milliseconds, for steps and for chunks."""
    path = ROOT / "docs" / "results" / f"memory-speed-{name}.json"
    found = json.loads(path.read_text())
    clocks = {"graph_us": "in a graph", "eager_us": "from Python"} if name == "h200" else {"eager_us": "CPU"}
    heads = [f"{clock}: steps, ms | chunks, ms | ratio" for clock in clocks.values()]
    lines = [
        f"Forward and backward, {found['machine']['device']}{'' if name == 'h200' else ', one thread'}:",
        "",
        f"| T | B | neurons | reset | {' | '.join(heads)} |",
        "|" + "---|" * (4 + 3 * len(clocks)),
    ]
    for layer, steps, chunks in pairs(found["rows"]):
        cells = [*map(str, layer)]
        for clock in clocks:
            a, b = steps[clock] / 1000, chunks[clock] / 1000
            cells += [f"{a:.2f}", f"{b:.2f}", f"{a / b:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rounding() -> str:
    """Return the float32 errors measured by `memory_error`, and the number of Newton sweeps."""
    found = json.loads((ROOT / "docs" / "results" / "memory-error.json").read_text())
    lines = ["| time constant, steps | step by step | in parallel |", "|---|---|---|"]
    for row in found["errors"]:
        lines.append(f"| {row['time_constant']:,} | {row['steps']:.0e} | {row['parallel']:.0e} |")
    sweeps = [row["sweeps"] for row in found["sweeps"]]
    lengths = [row["steps"] for row in found["sweeps"]]
    lines += [
        "",
        f"Newton's method, used for the other resets with soft spikes, needs {min(sweeps)} to {max(sweeps)} "
        f"sweeps for {min(lengths)} to {max(lengths):,} steps.",
    ]
    return "\n".join(lines) + "\n"


def pairs(rows: list[Row]) -> Iterator[tuple[tuple[Any, ...], Row, Row]]:
    """Yield the layers measured both ways: time, batch, neurons and reset, then steps and chunks."""
    by_way = {
        (*(row[n] for n in ("time", "batch", "neurons", "reset")), row["way"]): row
        for row in rows
        if not row["count"]
    }
    for (*layer, way), row in by_way.items():
        if way == "steps" and (*layer, "chunks") in by_way:
            yield tuple(layer), row, by_way[*layer, "chunks"]


def figure(path: Path) -> None:
    """Draw the remaining influence of a membrane after some steps, for each reset."""
    current = 0.3 * torch.randn(60, 64, 32, generator=torch.Generator().manual_seed(0))
    slow, fast = math.exp(-0.2 / 30), math.exp(-0.2 / 10)
    drawn = {
        "no reset, time constant 30": ul.UltraLIF(reset="none", leak=slow),
        "no reset, time constant 10": ul.UltraLIF(reset="none", leak=fast),
        "saturating, time constant 30": ul.UltraLIF(reset="saturate", v_sat=0.6, leak=slow),
        "LIF, reset to zero": ul.LIF(mode="soft", surrogate="sigmoid", surrogate_slope=10.0),
        "subtracting, time constant 30": ul.UltraLIF(reset="subtract", leak=slow),
        "reset to zero, as in the paper": ul.UltraLIF(),
    }
    drawing, axes = new_figure(1, width=4.6, height=3.6)
    axis = axes[0, 0]
    for (label, neuron), color in zip(drawn.items(), COLORS, strict=True):
        x = current - (0.2 * math.log(30) if "constant" in label else 0.0)
        first = torch.zeros(64, 32, requires_grad=True)
        state, left = neuron.state_type(first), [1.0]
        for step in x:
            _, state = neuron.step(step, state)
            (slope,) = torch.autograd.grad(state.v.sum(), first, retain_graph=True)
            left.append(max(1e-8, float(slope.abs().mean())))
        axis.semilogy(left, label=label, color=color, lw=2)
    axis.set_ylim(1e-4, 1.5)
    axis.set_yticks([1, 0.1, 0.01, 0.001, 0.0001], ["all", "1/10", "1/100", "1/1000", "1/10000"])
    axis.set_xlabel("time steps later")
    axis.set_ylabel("influence that is left")
    drawing.legend(loc="outside upper center", fontsize=9, frameon=False)
    save_figure(drawing, path)


def write_page() -> str:
    """Write the tables and the figure of the page."""
    rows = [json.loads(line) for line in (RESULTS / "memory.jsonl").read_text().splitlines()]
    page = DOCS / "memory.md"
    text = page.read_text()
    speed = "\n".join(filter(None, (speeds("h200"), speeds("cpu"))))
    blocks = {"speed": speed, "table": table(rows) + "\n", "rounding": rounding()}
    for name, block in blocks.items():
        pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
        text = re.sub(pattern, lambda _, n=name, b=block: f"<!-- {n} -->\n{b}<!-- end -->", text, flags=re.S)
    page.write_text(text)
    figure(ROOT / "docs" / "images" / "memory.png")
    return str(page)
