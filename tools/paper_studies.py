"""The sentences of docs/results/paper.md about the studies around the paper."""

from collections.abc import Callable, Mapping

from paper_parts import HERE, NAMES, wrapped

from ultralif.paper.results import Results
from ultralif.paper.statistics import paired
from ultralif.paper.studied import GROUPS, factors_table, tuned_summary
from ultralif.paper.studies import SMALL, Cell, collect, one_at_a_time
from ultralif.paper.table import NOT_RUN
from ultralif.training.result import Result

__all__ = ["dspike"]


def of_studies(results: Results) -> list[Callable[[Results], str]]:
    """Return the sentences about the studies of which there are runs beside those of digits."""
    factors = {row[0] for row in factors_table(results.every).rows} - {SMALL}
    found = [(_tuned, bool(_compared(results))), (_factors, bool(factors))]
    return [word for word, is_known in found if is_known]


def _compared(results: Results) -> dict[str, dict[str, tuple[str, str]]]:
    """Return by place and group the difference from the best baseline, and that of the same run binary."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for dataset, time, name, test, over, binary, _ in tuned_summary(results.every).rows:
        if dataset != SMALL:
            here = found.setdefault(f"{NAMES[dataset]} at T={time}", {})
            if test != NOT_RUN:
                here[name.partition(":")[0]] = over, binary
    return {place: here for place, here in found.items() if here.keys() == GROUPS.keys()}


def _tuned(results: Results) -> str:
    found = _compared(results)

    def at(group: str, part: int = 0) -> str:
        return " and ".join(here[group][part] for here in found.values())

    return wrapped(
        f"With 16 settings tried for every neuron on held-out data, the best Ultra neuron is {at('Ultra')} "
        f"points from the best baseline on {' and '.join(found)}, SoftLIF {at('SoftLIF')}. Run with "
        f"binary spikes the two are {at('Ultra', 1)}, and {at('SoftLIF', 1)}; trained with binary spikes "
        f"{at('Ultra binary')}, and {at('SoftLIF binary')}. LIF with a learned width is "
        f"{at('LIF learned width')}."
    )


def _factors(results: Results) -> str:
    found: dict[str, list[str]] = {}
    for dataset, time, effect, change, *_ in factors_table(results.every).rows:
        if dataset != SMALL and "perceptron" not in effect:
            found.setdefault(f"{NAMES[dataset]} at T={time}", []).append(f"{effect} {change}")
    each = "; ".join(f"on {place} {', '.join(effects)}" for place, effects in found.items())
    return wrapped(f"One ingredient changed and the others averaged over, in points: {each}.")


def dspike(results: Results) -> str:
    """Say where DSpike falls behind LIF in the text's reading, and what clipping its curve changes."""
    behind = [
        f"{NAMES[dataset]} {over.signed}"
        for dataset in HERE
        if (over := paired(results.accuracy("DSpike", dataset, 10), results.accuracy("LIF", dataset, 10)))
    ]
    runs = collect(one_at_a_time(), results.every)
    clipped = [
        f"{NAMES[dataset]} {over.signed}"
        for dataset in HERE
        if (over := paired(_own(runs, "curve clipped", dataset), _own(runs, "as written", dataset)))
    ]
    cause = (
        f"Clipping it and nothing else changes T=10 by: {', '.join(clipped)}."
        if clipped
        else "That the unclipped curve is the cause was seen in short runs alone, which were not kept."
    )
    return wrapped(
        f"In the text's reading DSpike falls behind LIF beyond T=1; at T=10 by: {', '.join(behind)}. Its "
        "curve as printed leaves [0, 1]; in the author's code, and by default in this library, it is "
        f"clipped. {cause}",
        "",
    )


def _own(runs: Mapping[Cell, Mapping[int, Result]], reading: str, dataset: str) -> dict[int, float]:
    """Return DSpike's accuracies with one point read otherwise, at T=10, by seed."""
    by_seed = runs.get(Cell(f"DSpike, {reading}", dataset, 10), {})
    return {seed: value for seed, run in by_seed.items() if (value := run.own.accuracy) is not None}
