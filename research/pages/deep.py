"""Fill in the tables of research/docs/deep.md from the results of the study, the speedrun and the trial.

python -m research studies deep_page
"""

import json
import re
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

from research import DOCS, RESULTS
from research.paper.statistics import interval, paired

PAGE = DOCS / "deep.md"
TRIAL = {
    "relu": "ReLU network",
    "LIF": "LIF, slope 10",
    "LIF 4": "LIF, slope 4",
    "LIF 2": "LIF, slope 2",
    "LIF width": "LIF, learned slope",
    "UltraLIF hard": "UltraLIF, binary throughout",
    "UltraLIF late": "UltraLIF, soft then binary",
    "SoftLIF hard": "SoftLIF, binary throughout",
    "SoftLIF late": "SoftLIF, soft then binary",
    "UltraDLIF late": "UltraDLIF centred, soft then binary",
}


def lines(name: str) -> list[dict[str, Any]]:
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = [f"| {' | '.join(map(str, row))} |" for row in (header, ["---"] * len(header), *rows)]
    return "\n".join(body)


def summary(values: Sequence[float]) -> tuple[str, int]:
    return str(interval(dict(enumerate(values)))), len(values)


def trial() -> str:
    found: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for row in lines("deep-trial.jsonl"):
        if row["name"] in TRIAL:
            found.setdefault((row["T"], row["epochs"], TRIAL[row["name"]]), []).append(row)
    rows = []
    for (steps, epochs, name), runs in found.items():
        accuracy, seeds = summary([run.get("hard", run["soft"]) for run in runs])
        seconds = f"{mean(run['seconds'] for run in runs):.0f}"
        rows.append((steps, epochs, name, accuracy, seeds, seconds))
    rows.sort(key=lambda row: (row[0], row[1], row[3]))
    return table(("T", "epochs", "neuron and training", "binary %", "seeds", "seconds"), rows)


def speedrun() -> str:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in lines("speedrun.jsonl"):
        recipe = row["recipe"]
        if not row["holdout"]:
            name = {"spikingjelly": "SpikingJelly's LIF"}.get(recipe["neuron"], recipe["neuron"])
            key = recipe["timesteps"], recipe["epochs"], recipe["widths"], name, row["device"]
            found.setdefault(key, []).append(row)
    rows = []
    for (steps, epochs, widths, neuron, device), runs in sorted(found.items()):
        accuracy, seeds = summary([run["accuracy"] for run in runs])
        seconds, warmup = mean(run["seconds"] for run in runs), max(run["warmup_seconds"] for run in runs)
        measured = accuracy, seeds, f"{seconds:.1f}", f"{warmup:.0f}"
        rows.append((steps, epochs, widths, neuron, *measured, device))
    header = ("T", "epochs", "widths", "neuron", "test %", "seeds", "seconds", "compilation, s", "machine")
    return table(header, rows) if rows else "Not measured yet: `results/` contains no speedrun."


def heldout() -> str:
    columns = ("timesteps", "epochs", "widths", "eps", "lr", "cutout")
    rows = []
    for row in lines("speedrun-heldout.jsonl"):
        recipe, changed = row["recipe"], row["variant"].items()
        others = ", ".join(f"{name} {value}" for name, value in changed if name not in columns)
        step = "recorded" if recipe.get("graph") else "launched"
        measured = f"{row['accuracy']:.2f}", "-" if row.get("shared") else f"{row['seconds']:.0f}"
        rows.append((*(recipe[name] for name in columns), others, step, *measured))
    rows.sort(key=lambda row: (*row[:2], -float(row[-2])))
    return table((*columns, "besides", "step", "held-out %", "seconds"), rows)


def study(rows: Iterable[dict[str, Any]] | None = None) -> str:
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in lines("deep.jsonl") if rows is None else rows:
        cell = row["cell"]
        if not cell["held"]:
            layers = sum(map(len, cell["stages"]))
            key = cell["study"], cell["dataset"], cell["timesteps"], layers, row["base"]["optimizer"]
            found.setdefault((*key, cell["method"], cell["lr"], cell["value"]), []).append(row["accuracy"])
    ranked = sorted(found.items(), key=lambda pair: (pair[0][0] == "depth", pair[0][1:5], -mean(pair[1])))
    rows = [(*key[1:], *summary(values)) for key, values in ranked]
    header = ("data", "T", "convolutions", "optimizer", "method", "rate", "width", "binary %", "seeds")
    return table(header, rows) if rows else "Not measured yet: `results/` contains no run of the study."


def tuning() -> str:
    """Return held-out accuracies, with a row for each method and width and a column for each rate."""
    found: dict[tuple[str, float], dict[float, str]] = {}
    for row in lines("deep.jsonl"):
        cell = row["cell"]
        if cell["held"]:
            by_rate = found.setdefault((cell["method"], cell["value"]), {})
            by_rate[cell["lr"]] = f"{row['accuracy']:.2f}"
    rates = sorted({rate for by_rate in found.values() for rate in by_rate})
    order = list(dict.fromkeys(method for method, _ in found))
    keys = sorted(found, key=lambda key: (order.index(key[0]), key[1]))
    rows = [(*key, *(found[key].get(rate, "-") for rate in rates)) for key in keys]
    return table(("method", "width", *(f"rate {rate:g}" for rate in rates)), rows)


def leads() -> str:
    """Return UltraLIF's lead at T=1, paired by seed, with a 95 % interval."""
    found: dict[str, dict[int, float]] = {}
    for row in lines("deep.jsonl"):
        cell = row["cell"]
        if (cell["study"], cell["timesteps"]) == ("T", 1):
            found.setdefault(cell["method"], {})[cell["seed"]] = row["accuracy"]
    ours = found.pop("UltraLIF", {})
    rows = []
    for name, theirs in found.items():
        if lead := paired(ours, theirs):
            ends = f"{lead.low:+.2f} to {lead.high:+.2f}"
            rows.append((name, f"{lead.mean:+.2f}", ends, lead.seeds))
    return table(("UltraLIF is ahead of", "by points", "95 % interval", "seeds"), rows)


def gradient() -> str:
    path = RESULTS / "deep-gradient.json"
    if not path.exists():
        return "Not measured yet."
    found = json.loads(path.read_text())
    rows = []
    for name, seeds in found["cosines"].items():
        if not name.startswith("|"):
            layers = [mean(values) for values in zip(*seeds, strict=True)]
            rows.append((name, *(f"{value:.2f}" for value in layers)))
    return table(("derivative", *range(1, found["depth"] + 1)), rows)


PARTS = {
    "trial": trial,
    "speedrun": speedrun,
    "heldout": heldout,
    "study": study,
    "tuning": tuning,
    "leads": leads,
    "gradient": gradient,
}


def filled(page: str) -> str:
    """Return the page with the text between each pair of markers updated."""
    for name, make in PARTS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        page, count = re.subn(pattern, lambda m, make=make: f"{m[1]}{make()}\n{m[2]}", page, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE} must contain the part {name!r} exactly once")
    return page


def write_page() -> str:
    """Write the tables into the page."""
    PAGE.write_text(filled(PAGE.read_text()))
    return str(PAGE)
