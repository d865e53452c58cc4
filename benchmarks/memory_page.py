"""Tables and figure of docs/memory.md, from what `memory` and `memory_speed` have measured.

python benchmarks/memory_page.py
"""

import json
import math
import re
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

import ultralif as ul

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent)]
from memory_nets import METHODS  # noqa: E402
from memory_tasks import TASKS  # noqa: E402


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results of all tasks as a table."""
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
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
        kept = statistics.mean(row["memory"] for row in found)
        cells += [f"{kept:.2f}", f"{-1 / kept:.1f}"]
        lines.append(f"| {task} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def speeds(name: str) -> str:
    """Return the times of `memory_speed`, steps beside chunks, in milliseconds."""
    path = ROOT / "docs" / "results" / f"memory-speed-{name}.json"
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    kind = "graph_us" if name == "h200" else "eager_us"
    rows = {
        tuple(row[n] for n in ("time", "batch", "neurons", "reset", "way")): row
        for row in found["rows"]
        if not row["count"]
    }
    lines = [
        f"Forward and backward, {found['machine']['device']}"
        + (", as a recorded graph:" if name == "h200" else ", one thread:"),
        "",
        "| T | B | neurons | reset | steps, ms | chunks, ms | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for (*layer, way), row in rows.items():
        if way == "steps" and (*layer, "chunks") in rows:
            a, b = row[kind] / 1000, rows[*layer, "chunks"][kind] / 1000
            lines.append(f"| {' | '.join(map(str, layer))} | {a:.2f} | {b:.2f} | {a / b:.1f} |")
    return "\n".join(lines) + "\n"


def figure(path: Path) -> None:
    """Draw how much of a membrane is left after a number of steps, for each reset, under noise."""
    import matplotlib.pyplot as plt

    current = 0.3 * torch.randn(60, 64, 32, generator=torch.Generator().manual_seed(0))
    drawn = {
        "none, c = 30": ul.UltraLIF(reset="none", leak=math.exp(-0.2 / 30)),
        "none, c = 10": ul.UltraLIF(reset="none", leak=math.exp(-0.2 / 10)),
        "saturate at 0.6, c = 30": ul.UltraLIF(reset="saturate", v_sat=0.6, leak=math.exp(-0.2 / 30)),
        "subtract, c = 30": ul.UltraLIF(reset="subtract", leak=math.exp(-0.2 / 30)),
        "zero, leak 0.9 (the paper)": ul.UltraLIF(),
        "LIF, leak 0.9": ul.LIF(mode="soft"),
    }
    plt.figure(figsize=(6, 3.5))
    for label, neuron in drawn.items():
        x = current - (0.2 * math.log(30) if "c = " in label else 0.0)
        first = torch.zeros(64, 32, requires_grad=True)
        state, left = neuron.state_type(first), [1.0]
        for step in x:
            _, state = neuron.step(step, state)
            (slope,) = torch.autograd.grad(state.v.sum(), first, retain_graph=True)
            left.append(max(1e-8, float(slope.abs().mean())))
        plt.semilogy(left, label=label)
    plt.ylim(1e-4, 1.5)
    plt.xlabel("steps n")
    plt.ylabel("mean |dV(n) / dV(0)|")
    plt.legend(fontsize=8)
    plt.tight_layout()
    plt.savefig(path, dpi=110)


def fill(rows: list[dict[str, Any]]) -> None:
    """Write tables and figure of the page."""
    page = ROOT / "docs" / "memory.md"
    text = page.read_text()
    speed = "\n".join(filter(None, (speeds("h200"), speeds("cpu"))))
    for name, block in (("speed", speed), ("table", table(rows) + "\n")):
        pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
        text = re.sub(pattern, lambda _, n=name, b=block: f"<!-- {n} -->\n{b}<!-- end -->", text, flags=re.S)
    page.write_text(text)
    figure(ROOT / "docs" / "images" / "memory.png")


if __name__ == "__main__":
    fill([json.loads(line) for line in (ROOT / "results" / "memory.jsonl").read_text().splitlines()])
