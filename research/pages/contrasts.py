"""Write research/docs/contrasts.md, and the answers on research/README.md, from the rows of `contrasts`."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from research import DOCS, RESULTS, ROOT
from research.paper.statistics import Interval, interval, paired
from research.studies.contrasts import Plan

__all__ = ["Runs", "answers", "fill", "read_runs", "write_pages"]

PAGES = (DOCS / "contrasts.md", ROOT / "research" / "README.md")
TASKS = {
    ("spoken", 99): "SHD, 99 steps of 10 ms",
    ("clothes", 1): "vgg5 on Fashion-MNIST, T=1",
    ("clothes", 4): "vgg5 on Fashion-MNIST, T=4",
}
OTHER_TASKS = {("pictures", 1): "six convolutions on CIFAR-10, T=1"}
"""Tasks of the shares that the main contrast does not have."""
SHARES = (0.3, 0.7, 0.9)
SEEDS = 8
"""Seeds of the main contrast, fixed before any run."""
BEST = "UltraPLIF, no reset"
Row = dict[str, Any]
Group = tuple[str, str, int, str, float, float]


class Runs:
    """The finished runs: accuracies on the test set by seed, and what was chosen on held-out samples."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = [row for row in rows if "error" not in row]
        self.found: dict[Group, dict[int, Row]] = {}
        self.tried: dict[Group, list[Row]] = {}
        for row in self.rows:
            cell = row["cell"]
            group = tuple(cell[name] for name in ("study", "task", "timesteps", "method", "soft", "penalty"))
            if cell["held"]:
                self.tried.setdefault(group, []).append(row)
            else:
                self.found.setdefault(group, {})[cell["seed"]] = row

    def scores(self, *group: Any, test: str = "official") -> dict[int, float]:
        """Return accuracies by seed on the official test set where there is one, else on the only one."""
        found = self.found.get(_group(*group), {})
        return {seed: row[test if test in row else "test"] for seed, row in sorted(found.items())}

    def chosen(self, *group: Any) -> Row:
        """Return the held-out run that decided the setting."""
        return max(self.tried[_group(*group)], key=lambda row: row["held"])

    def energy(self, task: str, timesteps: int, method: str) -> dict[int, list[tuple[float, float]]]:
        """Return, by seed, additions and accuracy of the six penalties."""
        points: dict[int, list[tuple[float, float]]] = {}
        for group, by_seed in self.found.items():
            if group[:4] == ("energy", task, timesteps, method):
                for seed, row in by_seed.items():
                    half = "official" if "official" in row else "test"
                    points.setdefault(seed, []).append((row[f"{half} additions"], row[half]))
        return points


def _group(
    study: str, task: str, timesteps: int, method: str, soft: float = 0.0, penalty: float = 0.0
) -> Group:
    return study, task, timesteps, method, soft, penalty


def read_runs(path: Path = RESULTS / "contrasts.jsonl") -> Runs:
    """Return the committed runs."""
    return Runs(json.loads(line) for line in path.read_text().splitlines())


def _table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """Return a table; the columns of its head are separated by bars."""
    rule = "|" + "---|" * (head.count("|") + 1)
    return "\n".join([f"| {head} |", rule, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def _n(value: Interval | None) -> str:
    return "not run" if value is None else f"{value.signed} (n = {value.seeds})"


def _gain(runs: Runs, task: str, timesteps: int, method: str, share: float) -> Interval | None:
    place = ("shares", task, timesteps, method)
    return paired(runs.scores(*place, share), runs.scores(*place, 0.0))


def _average(runs: Runs, tasks: Iterable[tuple[str, int]]) -> Interval | None:
    """Return the main contrast, averaged over tasks within each seed."""
    parts = []
    for task in tasks:
        ours, base = (runs.scores("shares", *task, "UltraLIF", share) for share in (0.7, 0.0))
        parts.append({seed: ours[seed] - base[seed] for seed in ours.keys() & base.keys()})
    seeds = sorted(set.intersection(*map(set, parts)))
    return interval({seed: sum(part[seed] for part in parts) / len(parts) for seed in seeds})


def _judged(value: Interval) -> str:
    """Return what was to be said of an interval, by the rule fixed before any run."""
    if value.low > 0.5:
        return "the soft phase helps by more than half a point"
    words = "a gain of half a point is refuted" if value.high < 0.5 else "half a point is not excluded"
    if value.low > 0:
        return f"the soft phase helps; {words}"
    return f"{'the soft phase costs accuracy' if value.high < 0 else 'no effect is shown'}; {words}"


def main_contrast(runs: Runs) -> str:
    """Answer the one question that was fixed before any run."""
    rows = [(TASKS[task], _n(_gain(runs, *task, "UltraLIF", 0.7))) for task in TASKS]
    done = [task for task in TASKS if (g := _gain(runs, *task, "UltraLIF", 0.7)) and g.seeds == SEEDS]
    for name, tasks in (("the three tasks", list(TASKS)), (f"the {len(done)} complete tasks", done)):
        value = _average(runs, tasks)
        if value is not None and (name == "the three tasks" or len(done) < len(TASKS)):
            rows.append((f"**mean of {name}**", f"**{_n(value)}**: {_judged(value)}"))
    note = "" if len(done) == len(TASKS) else _unfinished(runs)
    return _table("task | binary accuracy, soft share 0.7 minus 0", rows) + note


def _unfinished(runs: Runs) -> str:
    value = _average(runs, TASKS)
    count = 0 if value is None else value.seeds
    return (
        f"\n\n**The planned contrast is not complete**: its third task has {count} of {SEEDS} seeds. Until "
        "it is, the means above are interim results."
    )


def shares(runs: Runs) -> str:
    """Show what each share of soft epochs adds for each neuron."""
    rows = []
    for task, name in (TASKS | OTHER_TASKS).items():
        for method in ("UltraLIF", "SoftLIF", "LIF"):
            base = interval(runs.scores("shares", *task, method, 0.0))
            if base is not None:
                gains = [_n(_gain(runs, *task, method, share)) for share in SHARES]
                rows.append((name, method, f"{base} (n = {base.seeds})", *gains))
    return _table("task | neuron | binary throughout | 0.3 minus 0 | 0.7 minus 0 | 0.9 minus 0", rows)


def network(runs: Runs) -> str:
    """Compare the spoken-digit networks."""
    rows = []
    groups = [group for group in runs.found if group[0].startswith("network")]
    for group in sorted(groups, key=lambda g: -sum(runs.scores(*g).values()) / len(runs.scores(*g))):
        cell, ours = runs.chosen(*group)["cell"], runs.scores(*group)
        own, regenerated = interval(ours), interval(runs.scores(*group, test="test"))
        over = paired(runs.scores("network", "spoken", 99, BEST), ours)
        setting = f"{cell['lr']:g}, {cell['width']:g}, {cell['tau'][0]:g} to {cell['tau'][1]:g}"
        lead = "-" if group[3] == BEST else "-" if over is None or over.half is None else over.signed
        rows.append((group[3], len(runs.tried[group]), setting, own, regenerated, lead, len(ours)))
    head = "network | settings tried | rate, width, time constants | official test set | regenerated test set"
    return _table(f"{head} | {BEST} minus this | n", rows)


def versions(runs: Runs) -> str:
    """Say how far the two test sets are apart for the same networks."""
    rows = [row for row in runs.rows if "official" in row]
    by_row = {place: row["official"] - row["test"] for place, row in enumerate(rows)}
    value = interval(by_row)
    assert value is not None
    far = max(map(abs, by_row.values()))
    return (
        f"Over {len(rows)} networks trained on regenerated spikes, accuracy on the official test set (10 ms "
        f"bins) minus accuracy on the regenerated one is {value.signed} points on average; one network "
        f"differs by at most {far:.2f}."
    )


def edge(runs: Runs) -> str:
    """Compare the spoken-digit networks, and the shares, with rates up to 0.1 and three held-out seeds."""
    rows = []
    groups = [group for group in runs.found if group[0].startswith("edge of ")]
    ours = runs.scores("edge of network", "spoken", 99, BEST)
    for group in sorted(groups, key=lambda g: (g[0], g[1], -_mean(runs.scores(*g)))):
        study, task, timesteps, method, soft, _ = group
        cell = next(iter(runs.found[group].values()))["cell"]
        before = runs.scores(study.removeprefix("edge of "), *group[1:])
        theirs = ours if study == "edge of network" else runs.scores(*group[:4], 0.0)
        is_base = method == BEST if study == "edge of network" else soft == 0
        lead = paired(ours, runs.scores(*group)) if theirs is ours else paired(runs.scores(*group), theirs)
        name = method if study == "edge of network" else f"{method}, soft share {soft:g}"
        setting, after = f"{cell['lr']:g}, {cell['width']:g}", interval(runs.scores(*group))
        shown = "-" if is_base else _n(lead)
        rows.append((TASKS[task, timesteps], name, f"{_mean(before):.2f}", setting, after, shown))
    head = "task | network | before, mean | rate, width now | test accuracy now | difference"
    return _table(head, rows)


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values)


def memory(runs: Runs) -> str:
    """Compare neurons without reset on permuted pixels, 196 of them."""
    return _memory(runs, "permuted", 196)


def long_memory(runs: Runs) -> str:
    """Compare them on all 784 pixels."""
    return _memory(runs, "long", 784)


def _memory(runs: Runs, task: str, timesteps: int) -> str:
    rows = []
    ours = runs.scores("memory", task, timesteps, BEST)
    groups = [group for group in runs.found if group[:2] == ("memory", task)]
    for group in sorted(groups, key=lambda g: -sum(runs.scores(*g).values())):
        cell, theirs = runs.chosen(*group)["cell"], runs.scores(*group)
        lead = "-" if group[3] == BEST else _n(paired(ours, theirs))
        setting = f"{cell['lr']:g}, {cell['width']:g}, {cell['tau'][0]:g} to {cell['tau'][1]:g}"
        rows.append((group[3], setting, interval(theirs), lead, len(theirs)))
    return _table(f"neuron | rate, width, time constants | test accuracy | {BEST} minus this | n", rows)


def _front(points: list[tuple[float, float]], level: float) -> float:
    """Return the best accuracy at no more additions, linear between the points of the front."""
    front: list[tuple[float, float]] = []
    for at, accuracy in sorted(points):
        front.append((at, max(accuracy, front[-1][1] if front else accuracy)))
    below = max(point for point in front if point[0] <= level)
    above = min((point for point in front if point[0] > level), default=below)
    share = (level - below[0]) / (above[0] - below[0]) if above != below else 0.0
    return below[1] + share * (above[1] - below[1])


def at_equal_energy(runs: Runs, task: str, timesteps: int, ours: str, theirs: str) -> Interval | None:
    """Return the difference at equal additions: a mean of five levels that both reach, paired by seed."""
    mine, other = (runs.energy(task, timesteps, method) for method in (ours, theirs))
    found = {}
    for seed in mine.keys() & other.keys():
        low = max(min(points)[0] for points in (mine[seed], other[seed]))
        high = min(max(points)[0] for points in (mine[seed], other[seed]))
        levels = [low + (high - low) * place / 4 for place in range(5)]
        found[seed] = sum(_front(mine[seed], at) - _front(other[seed], at) for at in levels) / 5
    return interval(dict(sorted(found.items())))


def energy(runs: Runs) -> str:
    """Compare neurons with the same penalties at equal additions."""
    rows = []
    for task, timesteps in (("digits", 1), ("words", 1), ("digits", 10), ("words", 10)):
        name = {"digits": "MNIST, 4,000 images", "words": "SHD"}[task]
        for ours in ("UltraLIF", "UltraPLIF"):
            differences = [at_equal_energy(runs, task, timesteps, ours, r) for r in ("PLIF", "SoftLIF")]
            sure = [d for d in differences if d is not None]
            words = "refuted" if any(d.high < 0.3 for d in sure) else "open"
            words = "holds" if sure and all(d.low > 0.3 for d in sure) else words
            rows.append((name, timesteps, ours, *(_n(d) for d in differences), words))
    return _table("task | T | neuron | minus PLIF | minus SoftLIF | 0.3 points above both", rows)


def lacking(runs: Runs) -> str:
    """List the runs that are missing."""
    counts: dict[str, int] = {}
    for cell in Plan(runs.rows).missing():
        name = f"{cell.study}, {cell.task} at T={cell.timesteps}"
        counts[name] = counts.get(name, 0) + 1
    listed = "; ".join(f"{name}: {count}" for name, count in counts.items())
    return f"{len(runs.rows):,} runs are done. Missing, as far as is known: {listed or 'nothing'}."


def answers(runs: Runs) -> str:
    """Return the findings for the first page, each with its interval."""
    spoken, clothes = (_gain(runs, *task, "UltraLIF", 0.7) for task in list(TASKS)[:2])
    main = _average(runs, TASKS)
    whole = main is not None and main.seeds == SEEDS
    value = main if whole else _average(runs, list(TASKS)[:2])
    best = interval(runs.scores("network", "spoken", 99, BEST))
    soft = paired(
        runs.scores("network", "spoken", 99, BEST),
        runs.scores("network", "spoken", 99, "SoftLIF, no reset"),
    )
    gate, additive, psn = (
        paired(runs.scores("memory", "permuted", 196, BEST), runs.scores("memory", "permuted", 196, rival))
        for rival in ("UltraPLIF, frozen gate", "PLIF, no reset", "masked PSN")
    )
    pictures, lif = _gain(runs, "pictures", 1, "UltraLIF", 0.7), _gain(runs, "pictures", 1, "LIF", 0.3)
    assert value and spoken and clothes and best and soft and gate and additive and psn and pictures and lif
    worst = at_equal_energy(runs, "words", 10, "UltraPLIF", "PLIF")
    state = (
        "complete" if whole else f"interim: {0 if main is None else main.seeds} of 8 seeds of its third task"
    )
    return "\n".join(
        (
            "- **Does the exact-gradient phase help? Not measurably on average.** Preregistered contrast "
            f"({state}), UltraLIF with soft spikes for 0.7 of the epochs minus binary throughout: "
            f"{value.signed} points; {_judged(value)}. By task: SHD {spoken.signed}, vgg5 at T=1 "
            f"{clothes.signed}. In a secondary comparison, six convolutions and 6,500 images of CIFAR-10, "
            f"it adds {pictures.signed} to UltraLIF. There a shorter soft phase adds {lif.signed} to LIF, so "
            "that the gain does not need a log-sum-exp.",
            f"- **Spoken digits.** UltraPLIF without reset reaches {best} % on the official SHD test set, "
            f"{soft.signed} over SoftLIF without reset, tuned alike. It is trained binary throughout.",
            "- **Memory.** On permuted pixels UltraPLIF without reset leads the best leaky neuron without "
            f"reset by {additive.signed}. With its input-dependent gate frozen at the mean it loses "
            f"{gate.signed[1:]} points, as it should if the gate is the cause. A masked parallel neuron, "
            "which has a weight for every pair of steps, is far ahead of all: UltraPLIF has "
            f"{psn.signed} over it.",
            "- **Energy.** At equal additions and with the same penalties, no Ultra neuron is 0.3 points "
            "above both controls anywhere; on SHD at T=10 UltraPLIF is "
            f"{worst.signed if worst else '?'} against PLIF.",
        )
    )


PARTS = {
    "main": main_contrast,
    "shares": shares,
    "network": network,
    "versions": versions,
    "edge": edge,
    "memory": memory,
    "long-memory": long_memory,
    "energy": energy,
    "lacking": lacking,
    "answers": answers,
}


def fill(page: str, runs: Runs) -> str:
    """Return a page with every part made anew."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{PARTS[found[1]](runs)}\n<!-- end -->"

    names = "|".join(PARTS)
    return re.sub(rf"<!-- ({names}) -->\n(?:(?!<!-- end -->).*\n)*<!-- end -->", made, page)


def write_pages() -> str:
    """Fill both pages and return what was written."""
    runs = read_runs()
    for page in PAGES:
        page.write_text(fill(page.read_text(), runs))
    return f"{len(runs.rows)} runs in {', '.join(str(page) for page in PAGES)}"
