"""Fill the tables of docs/results/growth.md from growth-*.json beside it, and simulate a cluster.

python benchmarks/growth_page.py
"""

import heapq
import json
import random
import re
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
SOURCES = {"cpu": "CPU", "h200": "H200"}
UNITS = {
    "networks": ("networks in a stack", "network-samples/s", lambda v, base: v * base["batch"]),
    "processes": ("processes", "network-samples/s of all", lambda v, base: base["networks"] * base["batch"]),
    "timesteps": (
        "time steps T",
        "network-sample-steps/s",
        lambda v, base: v * base["networks"] * base["batch"],
    ),
    "width": ("hidden neurons", "neuron-samples/s", lambda v, base: v * base["networks"] * base["batch"]),
    "samples": ("samples in memory", "network-samples/s", lambda v, base: base["networks"] * base["batch"]),
}
RUNS, GPUS, EPOCHS, SAMPLES, TIMES = 100_000, 64, 100, 60_000, (1, 10, 30)
ASSUMED = {
    "days between two GPU losses": 10.0,
    "seconds until a lost GPU is back": 300.0,
    "seconds between checkpoints": 60.0,
    "seconds to load the data and evaluate a stack": 10.0,
}


def table(axis: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """Return one axis as Markdown, with a row for each value and two columns for each machine."""
    title, unit, work = UNITS[axis]
    rates: dict[str, dict[int, tuple[float, float]]] = {}
    for name, growth in found.items():
        points = [point for point in growth["points"] if point["axis"] == axis]
        rates[name] = {
            p["value"]: (p["step_seconds"], work(p["value"], growth["base"]) / p["step_seconds"])
            for p in points
        }
    heads = [f"{SOURCES[name]}, ms per step | {SOURCES[name]}, {unit}" for name in rates]
    lines = [f"| {title} | " + " | ".join(heads) + " |", "|---|" + "--:|--:|" * len(rates)]
    for value in sorted({value for column in rates.values() for value in column}):
        cells = [_cells(column.get(value)) for column in rates.values()]
        lines.append(f"| {value:,} | " + " | ".join(cells) + " |")
    for name, column in rates.items():
        lines += ["", f"{SOURCES[name]}: {knee({value: rate for value, (_, rate) in column.items()})}"]
    return lines


def _cells(point: tuple[float, float] | None) -> str:
    return "- | -" if point is None else f"{1e3 * point[0]:,.2f} | {point[1]:,.0f}"


def knee(rates: dict[int, float]) -> str:
    """State the value above which doubling it raises the rate by less than a fifth."""
    if len(rates) < 2:
        return "not measured."
    values = sorted(rates)
    first, best = values[0], max(values, key=lambda value: rates[value])
    if max(rates.values()) < 1.3 * min(rates.values()):
        return "the rate hardly changes."
    most = f"The highest rate is at {best:,}, {rates[best] / rates[first]:.1f} times the first row's rate."
    for low, high in pairwise(values):
        if (rates[high] / rates[low]) ** (1 / _doublings(low, high)) < 1.2:
            return f"at {low:,} or more, doubling raises the rate by less than a fifth. {most}"
    return f"the rate grows down to the last row. {most}"


def _doublings(low: int, high: int) -> float:
    return log2(high / low)


def simulate(growth: dict[str, Any], seed: int = 0) -> dict[str, float]:
    """Simulate a sweep of RUNS on GPUS devices with the measured speed and occasional losses."""
    steps = {(p["axis"], p["value"]): p["step_seconds"] for p in growth["points"]}
    sizes = [value for axis, value in steps if axis == "networks" and value <= 256]
    members = max(sizes, key=lambda m: m / steps["networks", m])
    base = growth["base"]
    count = EPOCHS * -(-SAMPLES // base["batch"])
    stacks = []
    for timesteps in TIMES:
        factor = steps["timesteps", timesteps] / steps["timesteps", base["timesteps"]]
        seconds = count * steps["networks", members] * factor
        stacks += [seconds] * -(-RUNS // (members * len(TIMES)))
    stacks.sort(reverse=True)
    rng = random.Random(seed)  # noqa: S311 (it draws losses, not secrets)
    rate = 1 / (ASSUMED["days between two GPU losses"] * 86400)
    free = [growth["costs"]["start_seconds"]] * GPUS
    heapq.heapify(free)
    losses, busy = 0, 0.0
    for seconds in stacks:
        began = heapq.heappop(free)
        left, now = seconds + ASSUMED["seconds to load the data and evaluate a stack"], began
        while (until := rng.expovariate(rate)) < left:
            losses += 1
            repeated = rng.uniform(0, ASSUMED["seconds between checkpoints"])
            now += until + ASSUMED["seconds until a lost GPU is back"]
            left = left - until + min(repeated, until)
        busy += seconds
        heapq.heappush(free, now + left)
    end = max(free)
    return {
        "networks in a stack": members,
        "stacks": len(stacks),
        "longest stack, hours": max(stacks) / 3600,
        "devices lost": losses,
        "hours until all runs are finished": end / 3600,
        "device-hours": GPUS * end / 3600,
        "share of the devices' time spent in training steps, %": 100 * busy / (GPUS * end),
        "driver time spent on the index, minutes": RUNS * growth["costs"]["index_seconds_a_run"] / 60,
    }


def estimate(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the simulation for each measured machine as Markdown."""
    results = {name: simulate(growth) for name, growth in found.items()}
    lines = ["| | " + " | ".join(f"{GPUS} times {_device(found[name])}" for name in results) + " |"]
    lines += ["|---|" + "--:|" * len(results)]
    for key in next(iter(results.values())):
        lines.append(f"| {key} | " + " | ".join(f"{result[key]:,.1f}" for result in results.values()) + " |")
    return lines


def _device(growth: dict[str, Any]) -> str:
    machine = growth["machine"]
    return f"{machine['device']} ({machine['cores']} cores)"


def main() -> None:
    paths = {name: DOCS / "results" / f"growth-{name}.json" for name in SOURCES}
    found = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    page = DOCS / "results" / "growth.md"
    text = page.read_text()
    parts = {axis: table(axis, found) for axis in UNITS}
    parts["cluster"] = estimate(found)
    parts["assumed"] = [f"- {value:g} {what}" for what, value in ASSUMED.items()]
    for name, lines in parts.items():
        block = f"<!-- {name} -->\n\n" + "\n".join(lines) + f"\n\n<!-- end {name} -->"
        pattern = rf"<!-- {name} -->.*?<!-- end {name} -->"
        text = re.sub(pattern, lambda _, block=block: block, text, flags=re.S)
    page.write_text(text)


if __name__ == "__main__":
    main()
