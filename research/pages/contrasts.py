"""Write research/docs/contrasts.md and the answers in research/README.md from the results of `contrasts`."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from research import DOCS, RESULTS, ROOT
from research.paper.statistics import Interval, interval, paired
from research.studies.contrasts import Plan

__all__ = ["Runs", "answers", "average", "fill", "read_runs", "write_pages"]

PAGES = (DOCS / "contrasts.md", ROOT / "research" / "README.md")
TASKS = {
    ("spoken", 99): "SHD, 99 steps of 10 ms",
    ("clothes", 1): "vgg5 on Fashion-MNIST, T=1",
    ("clothes", 4): "vgg5 on Fashion-MNIST, T=4",
}
OTHER_TASKS = {("pictures", 1): "six convolutions on CIFAR-10, T=1"}
"""Tasks in ``shares`` that are not part of the main contrast."""
SHARES = (0.3, 0.7, 0.9)
SEEDS = 8
"""Number of seeds for the main contrast, fixed before any run."""
BEST, FROZEN, PARALLEL = "UltraPLIF, no reset", "UltraPLIF, frozen gate", "masked PSN"
Row = dict[str, Any]
Group = tuple[str, str, int, str, float, float]


class Runs:
    """The finished runs: test accuracies by seed, and the settings chosen on held-out samples."""

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
        """Return accuracies by seed on the official test set, or on the only test set."""
        found = self.found.get(_group(*group), {})
        return {seed: row[test if test in row else "test"] for seed, row in sorted(found.items())}

    def chosen(self, *group: Any) -> Row:
        """Return the held-out run that determined the setting."""
        return max(self.tried[_group(*group)], key=lambda row: row["held"])

    def energy(self, task: str, timesteps: int, method: str) -> dict[int, list[tuple[float, float]]]:
        """Return the number of additions and the accuracy for each of the six penalties, by seed."""
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
    """Return a Markdown table; ``head`` separates the columns with bars."""
    rule = "|" + "---|" * (head.count("|") + 1)
    return "\n".join([f"| {head} |", rule, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def _n(value: Interval | None) -> str:
    return "not run" if value is None else f"{value.signed} (n = {value.seeds})"


def _gain(
    runs: Runs, task: str, timesteps: int, method: str, share: float = 0.7, study: str = "shares"
) -> Interval | None:
    place = (study, task, timesteps, method)
    return paired(runs.scores(*place, share), runs.scores(*place, 0.0))


def average(
    runs: Runs, tasks: Iterable[tuple[str, int]], method: str = "UltraLIF", study: str = "shares"
) -> Interval | None:
    """Return the gain from a soft share of 0.7, averaged over tasks within each seed."""
    parts = []
    for task in tasks:
        ours, base = (runs.scores(study, *task, method, share) for share in (0.7, 0.0))
        parts.append({seed: ours[seed] - base[seed] for seed in ours.keys() & base.keys()})
    seeds = sorted(set.intersection(*map(set, parts)))
    return interval({seed: fmean(part[seed] for part in parts) for seed in seeds})


def _judged(value: Interval) -> str:
    """Return the conclusion from an interval, by the rule fixed before any run."""
    if value.low > 0.5:
        return "the soft phase helps by more than half a point"
    words = "a gain of half a point is refuted" if value.high < 0.5 else "half a point is not excluded"
    if value.low > 0:
        return f"the soft phase helps; {words}"
    return f"{'the soft phase costs accuracy' if value.high < 0 else 'no effect is shown'}; {words}"


def main_contrast(runs: Runs) -> str:
    """Answer the only question that was fixed before any run."""
    rows = [(TASKS[task], _n(_gain(runs, *task, "UltraLIF", 0.7))) for task in TASKS]
    done = [task for task in TASKS if (g := _gain(runs, *task, "UltraLIF", 0.7)) and g.seeds == SEEDS]
    for name, tasks in (("the three tasks", list(TASKS)), (f"the {len(done)} complete tasks", done)):
        value = average(runs, tasks)
        if value is not None and (name == "the three tasks" or len(done) < len(TASKS)):
            rows.append((f"**mean of {name}**", f"**{_n(value)}**: {_judged(value)}"))
    note = "" if len(done) == len(TASKS) else _unfinished(runs)
    return _table("task | binary accuracy, soft share 0.7 minus 0", rows) + note


def _unfinished(runs: Runs) -> str:
    value = average(runs, TASKS)
    count = 0 if value is None else value.seeds
    return (
        f"\n\n**The planned contrast is not complete**: its third task has {count} of {SEEDS} seeds. Until "
        "it is, the means above are interim results."
    )


def shares(runs: Runs) -> str:
    """Show each neuron's gain from each soft share."""
    rows = []
    for task, name in (TASKS | OTHER_TASKS).items():
        for method in ("UltraLIF", "SoftLIF", "LIF"):
            base = interval(runs.scores("shares", *task, method, 0.0))
            if base is not None:
                gains = [_n(_gain(runs, *task, method, share)) for share in SHARES]
                rows.append((name, method, f"{base} (n = {base.seeds})", *gains))
    return _table("task | neuron | binary throughout | 0.3 minus 0 | 0.7 minus 0 | 0.9 minus 0", rows)


def network(runs: Runs) -> str:
    """Compare each spoken-digit network with UltraPLIF in the same wiring."""
    rows = []
    groups = [group for group in runs.found if group[0].startswith("network")]
    for group in sorted(groups, key=lambda g: -fmean(runs.scores(*g).values())):
        study, task, _, method, *_ = group
        own, regenerated = interval(runs.scores(*group)), interval(runs.scores(*group, test="test"))
        best = BEST + study.removeprefix("network")
        lead = "-" if method == best else _n(_lead(runs, method, best, study, task))
        name = method if task == "spoken" else f"{method}, 512 neurons a layer"
        rows.append((name, len(runs.tried[group]), _setting(_cell(runs, *group)), own, regenerated, lead))
    head = "network | settings tried | rate, width, time constants | official test set | regenerated test set"
    return _table(f"{head} | {BEST}, with the same wiring, minus this", rows)


def _lead(
    runs: Runs, rival: str, best: str = BEST, study: str = "network", task: str = "spoken", steps: int = 99
) -> Interval | None:
    return paired(runs.scores(study, task, steps, best), runs.scores(study, task, steps, rival))


def versions(runs: Runs) -> str:
    """Report the difference between the two test sets for the same networks."""
    rows = [row for row in runs.rows if "official" in row]
    by_row = {place: row["official"] - row["test"] for place, row in enumerate(rows)}
    value = interval(by_row)
    assert value is not None
    far = max(map(abs, by_row.values()))
    return (
        f"Over {len(rows)} networks trained on regenerated spikes, the accuracy on the official test set "
        f"(10 ms bins) minus that on the regenerated one is {value.signed} points on average. The largest "
        f"difference for one network is {far:.2f}."
    )


def board(_: Runs) -> str:
    """Show the cost of the zoo's network on a Cortex-M."""
    found = json.loads((RESULTS / "spoken.json").read_text())
    rows = []
    for name, heading in {"m0plus": "Cortex-M0+", "m3": "Cortex-M3", "m4": "Cortex-M4"}.items():
        one = found["boards"][name]
        each = one["instructions"] / 1e6
        per_second = f"{each / found['seconds_of_audio']:.1f}"
        rows.append((heading, f"{each:.1f}", per_second, f"{one['flash'] / 1000:.0f}", f"{one['RAM']:,}"))
    head = "core | million instructions per digit | per second of audio | flash, kB | RAM, bytes"
    return (
        f"On the official test set, the network reaches {found['float_percent']:.2f} % in floating point and "
        f"{found['integer_percent']:.2f} % with integers; the two agree on {found['decides_as_floats']}. "
        f"Instructions are the mean of {found['samples']} test samples with {found['events']:,.0f} events "
        f"on average.\n\n"
        f"{_table(head, rows)}"
    )


def edge_of_shares(runs: Runs) -> str:
    """Compare soft shares 0.7 and 0 in the planned grid and the wider grid."""
    rows = []
    for method in ("UltraLIF", "SoftLIF", "LIF"):
        for task, name in TASKS.items():
            place = ("edge of shares", *task, method)
            scores = [runs.scores(*place, share) for share in (0.0, 0.7)]
            wide = paired(scores[1], scores[0])
            if wide is None:
                continue
            rates = " and ".join(f"{_cell(runs, *place, share)['lr']:g}" for share in (0.0, 0.7))
            levels = (interval(each) for each in scores)
            rows.append((method, name, rates, *levels, _n(_gain(runs, *task, method, 0.7)), _n(wide)))
        before, after = (average(runs, TASKS, method, study) for study in ("shares", "edge of shares"))
        rows.append((method, "**mean of the three tasks**", "", "", "", _n(before), f"**{_n(after)}**"))
    head = "neuron | task | rates chosen for 0 and 0.7 | binary throughout | soft share 0.7"
    return _table(f"{head} | 0.7 minus 0, planned grid | 0.7 minus 0, rates up to 0.1", rows)


def edge_of_network(runs: Runs) -> str:
    """Compare the spoken-digit networks in the first grid and the wider grid."""
    rows = []
    study = "edge of network"
    for method in _ranked(runs, study, "spoken", 99):
        place = ("spoken", 99, method)
        first, now = (interval(runs.scores(name, *place)) for name in ("network", study))
        leads = [_n(_lead(runs, method, study=name)) for name in ("network", study)]
        setting = _setting(_cell(runs, study, *place))
        rows.append((method, first, now, setting, *(["-", "-"] if method == BEST else leads)))
    head = "network | rates up to 0.01 | rates up to 0.1 | rate, width, time constants in the wider grid"
    return _table(f"{head} | {BEST} minus this, rates up to 0.01 | rates up to 0.1", rows)


def _cell(runs: Runs, *group: Any) -> Row:
    """Return a cell that was trained with fresh seeds."""
    cell: Row = next(iter(runs.found[_group(*group)].values()))["cell"]
    return cell


def _setting(cell: Row) -> str:
    return f"{cell['lr']:g}, {cell['width']:g}, {cell['tau'][0]:g} to {cell['tau'][1]:g}"


def _ranked(runs: Runs, study: str, task: str, timesteps: int) -> list[str]:
    """Return the methods of a study with test results, the best first."""
    methods = [group[3] for group in runs.found if group[:3] == (study, task, timesteps)]
    return sorted(methods, key=lambda method: -fmean(runs.scores(study, task, timesteps, method).values()))


def memory(runs: Runs) -> str:
    """Compare neurons without reset on 196 permuted pixels."""
    return _memory(runs, "permuted", 196)


def long_memory(runs: Runs) -> str:
    """Compare neurons without reset on all 784 permuted pixels."""
    return _memory(runs, "long", 784)


def _memory(runs: Runs, task: str, timesteps: int) -> str:
    rows = []
    for method in _ranked(runs, "memory", task, timesteps):
        place = ("memory", task, timesteps, method)
        own, lead = interval(runs.scores(*place)), _lead(runs, method, BEST, *place[:3])
        rows.append((method, _setting(_cell(runs, *place)), own, "-" if method == BEST else _n(lead)))
    return _table(f"neuron | rate, width, time constants | test accuracy | {BEST} minus this", rows)


def _front(points: list[tuple[float, float]], level: float) -> float:
    """Return the best accuracy for at most this many additions, by linear interpolation on the front."""
    front: list[tuple[float, float]] = []
    for at, accuracy in sorted(points):
        front.append((at, max(accuracy, front[-1][1] if front else accuracy)))
    below = max(point for point in front if point[0] <= level)
    above = min((point for point in front if point[0] > level), default=below)
    share = (level - below[0]) / (above[0] - below[0]) if above != below else 0.0
    return below[1] + share * (above[1] - below[1])


def at_equal_energy(runs: Runs, task: str, timesteps: int, ours: str, theirs: str) -> Interval | None:
    """Return the difference at equal additions, averaged over five levels that both reach, paired by seed."""
    mine, other = (runs.energy(task, timesteps, method) for method in (ours, theirs))
    found = {}
    for seed in mine.keys() & other.keys():
        low = max(min(points)[0] for points in (mine[seed], other[seed]))
        high = min(max(points)[0] for points in (mine[seed], other[seed]))
        levels = [low + (high - low) * place / 4 for place in range(5)]
        found[seed] = sum(_front(mine[seed], at) - _front(other[seed], at) for at in levels) / 5
    return interval(dict(sorted(found.items())))


ENERGY = {
    (task, steps): name
    for steps in (1, 10)
    for task, name in {"digits": "MNIST, 4,000 images", "words": "SHD"}.items()
}


METHODS_OF_ENERGY = ("UltraPLIF", "UltraLIF", "SoftLIF", "PLIF")


def energy(runs: Runs) -> str:
    """Compare neurons with the same penalties at equal additions."""
    rows = []
    for (task, steps), name in ENERGY.items():
        for ours in ("UltraLIF", "UltraPLIF"):
            differences = [at_equal_energy(runs, task, steps, ours, rival) for rival in ("PLIF", "SoftLIF")]
            rows.append((name, steps, ours, *map(_n, differences), _ahead_of_both(differences)))
    return _table("task | T | neuron | minus PLIF | minus SoftLIF | 0.3 points above both", rows)


def logarithms(runs: Runs) -> str:
    """Compare neurons on SHD without a penalty, with counts as logarithms."""
    rows = []
    for steps in (1, 10):
        scores = {method: runs.scores("energy", "words", steps, method) for method in METHODS_OF_ENERGY}
        for method, own in scores.items():
            leads = (
                "-" if method == rival else _n(paired(own, scores[rival])) for rival in ("PLIF", "SoftLIF")
            )
            rows.append((steps, method, interval(own), *leads))
    return _table("T | neuron | official test set | minus PLIF | minus SoftLIF", rows)


def _ahead_of_both(differences: Iterable[Interval | None]) -> str:
    sure = [each for each in differences if each is not None]
    if any(each.high < 0.3 for each in sure):
        return "refuted"
    return "holds" if sure and all(each.low > 0.3 for each in sure) else "open"


def lacking(runs: Runs) -> str:
    """List the missing runs."""
    counts: dict[str, int] = {}
    for cell in Plan(runs.rows).missing():
        name = f"{cell.study}, {cell.task} at T={cell.timesteps}"
        counts[name] = counts.get(name, 0) + 1
    listed = "; ".join(f"{name}: {count}" for name, count in counts.items())
    return f"{len(runs.rows):,} runs are done. Still missing: {listed or 'nothing'}."


def _said(value: Interval) -> str:
    """Return which side of a difference is higher, judged by its interval."""
    return "the first" if value.low > 0 else "the second" if value.high < 0 else "not decided"


def answers(runs: Runs) -> str:
    """Return the findings for the front page, each with its interval."""
    found = (
        *_of_soft_phase(runs),
        *_of_logarithms(runs),
        *_of_spoken(runs),
        *_of_memory(runs),
        *_of_energy(runs),
    )
    rows = [(*words, value.signed, _said(value)) for *words, value in found if value is not None]
    return _table("question | accuracy compared | difference | higher", rows)


Finding = tuple[str, str, Interval | None]
OURS = "UltraPLIF without reset minus the best other"


def _of_soft_phase(runs: Runs) -> Iterator[Finding]:
    about, wide = "soft phase", "edge of shares"
    yield about, "**planned**: UltraLIF, soft for 0.7 of the epochs minus binary", average(runs, TASKS)
    for method in ("UltraLIF", "SoftLIF", "LIF"):
        yield about, f"{method}, same comparison, rates up to 0.1", average(runs, TASKS, method, wide)
    for place, name in TASKS.items():
        yield about, f"UltraLIF, rates up to 0.1, {name} alone", _gain(runs, *place, "UltraLIF", study=wide)
    for place, name in OTHER_TASKS.items():
        yield about, f"UltraLIF, {name}", _gain(runs, *place, "UltraLIF")


def _of_spoken(runs: Runs) -> Iterator[Finding]:
    for wiring, words in {"": ", rates up to 0.1", ", with recurrence": "", ", with delays": ""}.items():
        study, best = f"network{wiring}" if wiring else "edge of network", BEST + wiring
        rival = next(method for method in _ranked(runs, study, "spoken", 99) if method != best)
        both = wiring.replace(", ", ", both ")
        name = rival.removesuffix(wiring)
        yield "spoken digits", f"{OURS} neuron ({name}){both}{words}", _lead(runs, rival, best, study)


def _of_memory(runs: Runs) -> Iterator[Finding]:
    for task, steps in (("permuted", 196), ("long", 784)):
        place, about = ("memory", task, steps), f"memory, {steps} pixels"
        for rival in _ranked(runs, *place):
            if rival not in (BEST, FROZEN, PARALLEL):
                yield about, f"{OURS} leaky neuron ({rival})", _lead(runs, rival, BEST, *place)
                break
        yield about, "UltraPLIF minus UltraPLIF with a frozen gate", _lead(runs, FROZEN, BEST, *place)
        yield about, "masked PSN minus UltraPLIF", _lead(runs, BEST, PARALLEL, *place)


def _of_logarithms(runs: Runs) -> Iterator[Finding]:
    for steps in (1, 10):
        ours, rival = (runs.scores("energy", "words", steps, method) for method in ("UltraPLIF", "PLIF"))
        yield f"SHD, T={steps}", "UltraPLIF minus PLIF, counts as log(1 + count)", paired(ours, rival)


def _of_energy(runs: Runs) -> Iterator[Finding]:
    for (task, steps), name in ENERGY.items():
        difference = at_equal_energy(runs, task, steps, "UltraPLIF", "PLIF")
        yield "energy", f"UltraPLIF minus PLIF at equal additions, {name}, T={steps}", difference


PARTS = {
    "main": main_contrast,
    "shares": shares,
    "network": network,
    "versions": versions,
    "edge-shares": edge_of_shares,
    "edge-network": edge_of_network,
    "memory": memory,
    "long-memory": long_memory,
    "energy": energy,
    "logarithms": logarithms,
    "board": board,
    "lacking": lacking,
    "answers": answers,
}


def fill(page: str, runs: Runs) -> str:
    """Return a page with every generated part updated."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{PARTS[found[1]](runs)}\n<!-- end -->"

    names = "|".join(PARTS)
    return re.sub(rf"<!-- ({names}) -->\n(?:(?!<!-- end -->).*\n)*<!-- end -->", made, page)


def write_pages() -> str:
    """Fill in both pages and return what was written."""
    runs = read_runs()
    for page in PAGES:
        page.write_text(fill(page.read_text(), runs))
    return f"{len(runs.rows)} runs in {', '.join(str(page) for page in PAGES)}"
