"""Every quantitative claim of the paper's text, as a function of the results, in both readings."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from research import ROOT
from research.paper.judgement import (
    NOT_TESTED,
    Judgement,
    MeasuredClaim,
    Ruling,
    best,
    compared,
    corrected,
    of_many,
    sign,
    signed,
)
from research.paper.penalty import (
    best_with_penalty,
    consistent,
    improves,
    most_spikes,
    penalty,
    temporal_is_cheapest,
)
from research.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from research.paper.results import Results
from research.paper.statistics import paired
from research.paper.temperature import (
    final_eps,
    learned_is_best,
    small_beats_large,
    spatial_spikes_least,
    u_shape,
)
from ultralif.report import Table

__all__ = ["CLAIMS", "MeasuredVerdict", "judge", "verdict_table"]


@dataclass(frozen=True)
class MeasuredVerdict:
    """The verdicts on a claim, for the paper as written and for the author's released code."""

    claim: str
    section: str
    verdict: Judgement
    """The verdict on the paper as written."""
    measured: str
    released: Judgement
    """The verdict on the author's code, from the last epoch."""
    released_measured: str


def judge(results: Results) -> list[MeasuredVerdict]:
    """Return the verdict on every claim; single comparisons are corrected by Holm's rule."""
    written, released = (
        corrected([claim.judge(reading) for claim in CLAIMS])
        for reading in (results.as_written(), results.as_released())
    )
    return [
        MeasuredVerdict(
            claim.text, claim.section, ours.verdict, ours.measured, theirs.verdict, theirs.measured
        )
        for claim, ours, theirs in zip(CLAIMS, written, released, strict=True)
    ]


def verdict_table(verdicts: Sequence[MeasuredVerdict]) -> Table:
    """Return the verdicts as a table."""
    columns = ("claim", "section", "as written", "measured", "as released", "measured so")
    rows = [(v.claim, v.section, v.verdict, v.measured, v.released, v.released_measured) for v in verdicts]
    return Table("verdicts", "What holds of the paper's claims", columns, rows)


def _gain(dataset: str, published: float) -> MeasuredClaim:
    """At T=1 the best Ultra neuron beats the best baseline by a published number of points."""

    def decide(results: Results) -> Ruling:
        soft, hard = results.gain(dataset, 1), results.gain(dataset, 1, "hard")
        if soft is None:
            return NOT_TESTED
        binary = f", {signed(hard.difference)} with binary spikes ({hard.ultra})" if hard else ""
        text = f"{soft.ultra} over {soft.baseline}: {signed(soft.difference)}{binary}"
        return Ruling(
            compared(soft.difference, published),
            f"{text}; all chosen by the test set",
            soft.difference.p,
            "does not hold" if soft.difference.high < published else "inconclusive",
        )

    return MeasuredClaim(
        f"{dataset}, T=1: the best Ultra neuron is {published:+.2f} over the best baseline", "1, 6", decide
    )


def _largest_on_events(results: Results) -> Ruling:
    """The gains on N-MNIST, DVS-Gesture and SHD exceed those on images, at T=1."""
    gains = {dataset: found.difference for dataset in DATASETS if (found := results.gain(dataset, 1))}
    events = [gains[name] for name in ("n-mnist", "dvs-gesture", "shd") if name in gains]
    images = [gains[name] for name in ("mnist", "fashion-mnist", "cifar10") if name in gains]
    if not events or not images:
        return NOT_TESTED
    text = ", ".join(f"{name} {signed(gain)}" for name, gain in gains.items())
    if min(each.low for each in events) > max(each.high for each in images):
        return Ruling("holds", text)
    beaten = any(event.high < image.low for event in events for image in images)
    return Ruling("does not hold" if beaten else "inconclusive", text)


def _best_is(
    dataset: str, timesteps: int, wanted: Sequence[str], text: str, section: str = "6"
) -> MeasuredClaim:
    """One of the named neurons has the best accuracy of all ten."""

    def decide(results: Results) -> Ruling:
        rest = [label for label in (*BASELINES, *ULTRA) if label not in wanted]
        ours, other = best(results, dataset, wanted, timesteps), best(results, dataset, rest, timesteps)
        if ours is None or other is None:
            return NOT_TESTED
        difference = paired(
            results.accuracy(ours, dataset, timesteps), results.accuracy(other, dataset, timesteps)
        )
        text = f"{ours} against the best other (chosen by the test set), {other}: {signed(difference)}"
        return Ruling(sign(difference), text, None if difference is None else difference.p)

    return MeasuredClaim(text, section, decide)


def _shrinks(dataset: str) -> MeasuredClaim:
    """The gain of the best Ultra neuron at T=1 is smaller at T=10 and 30."""

    def decide(results: Results) -> Ruling:
        found = [results.gain(dataset, timesteps) for timesteps in TIMESTEPS]
        gains = [each.difference for each in found if each is not None]
        if len(gains) < len(found):
            return NOT_TESTED
        first, later = gains[0], gains[1:]
        verdict: Judgement = "inconclusive"
        if first.low > max(each.high for each in later):
            verdict = "holds"
        elif any(each.low > first.high for each in later):
            verdict = "does not hold"
        return Ruling(verdict, "T=1, 10, 30: " + ", ".join(map(signed, gains)))

    return MeasuredClaim(
        f"{dataset}: the advantage at T=1 shrinks at T=10 and T=30", "6, timestep scaling", decide
    )


def _twins(timesteps: int) -> MeasuredClaim:
    """UltraDLIF and UltraDPLIF have the same accuracy."""

    def decide(results: Results) -> Ruling:
        parts, same = [], True
        for dataset in DATASETS:
            difference = paired(
                results.accuracy("UltraDPLIF", dataset, timesteps),
                results.accuracy("UltraDLIF", dataset, timesteps),
            )
            if difference is not None:
                same = same and abs(difference.mean) < 0.02
                parts.append(f"{dataset} {signed(difference)}")
        if not parts:
            return NOT_TESTED
        return Ruling("holds" if same else "does not hold", ", ".join(parts))

    return MeasuredClaim(
        f"T={timesteps}: UltraDLIF and UltraDPLIF give identical results", "7, limitations", decide
    )


def _robust_to_hard(results: Results) -> Ruling:
    """With the mean spike rate as output, soft and binary spikes are equivalent."""
    losses = []
    for dataset in DATASETS:
        for timesteps in TIMESTEPS:
            for neuron in ULTRA:
                loss = paired(
                    results.accuracy(neuron, dataset, timesteps, "hard"),
                    results.accuracy(neuron, dataset, timesteps),
                )
                if loss is not None:
                    losses.append((loss.mean, loss.low > -0.3, f"{neuron} on {dataset}, T={timesteps}"))
    if not losses:
        return NOT_TESTED
    worst, _, where = min(losses)
    small = sum(safe for _, safe, _ in losses)
    text = f"a loss beyond 0.3 points is excluded in {small} of {len(losses)} cases"
    return Ruling(of_many(small, len(losses)), f"{text}; worst {worst:+.2f} ({where})")


def _overhead(results: Results) -> Ruling:
    """Log-sum-exp adds about 5 % wall time over LIF."""
    if not results.step_ms:
        return NOT_TESTED
    parts, fused = [], []
    for setting, milliseconds in results.step_ms.items():
        over = [100 * (milliseconds[neuron] / milliseconds["LIF"] - 1) for neuron in ULTRA]
        fused += over if setting.endswith("auto") else []
        kind = "fused" if setting.endswith("auto") else "plain loop"
        parts.append(f"{setting.split()[0]} {kind}: {min(over):+.0f} to {max(over):+.0f} %")
    timed = _on_gpu()
    fused = [value for part in timed.values() for value in part] or fused  # the paper refers to GPUs
    parts += [f"a layer on an H200, {part}: {min(o):+.0f} to {max(o):+.0f} %" for part, o in timed.items()]
    verdict: Judgement = (
        "holds" if max(fused) <= 10 else "holds weaker" if max(fused) <= 25 else "does not hold"
    )
    return Ruling(verdict, "a step of one network on one CPU thread, over LIF, " + "; ".join(parts))


def _on_gpu() -> dict[str, list[float]]:
    """Return the percentage of time UltraLIF and UltraDLIF add to LIF, by how the layer was timed."""
    rows = json.loads((ROOT / "docs" / "results" / "fastpath-h200.json").read_text())["rows"]
    found = {}
    for part in ("called", "device"):
        ms = {
            row["subject"]: row["ms"]
            for row in rows
            if (row["part"], row.get("time"), row.get("features"), row.get("dtype"))
            == (part, 30, 4096, "float32")
        }
        found[part] = [100 * (ms[neuron] / ms["LIF"] - 1) for neuron in ("UltraLIF", "UltraDLIF")]
    return found


_SPATIAL = ("UltraDLIF", "UltraDPLIF")
CLAIMS: tuple[MeasuredClaim, ...] = (
    _gain("shd", 11.22),
    _gain("dvs-gesture", 7.96),
    _gain("n-mnist", 3.91),
    _gain("cifar10", 3.01),
    _gain("fashion-mnist", 0.35),
    _gain("mnist", 0.09),
    MeasuredClaim("gains at T=1 are largest on neuromorphic and temporal data", "1, 6", _largest_on_events),
    *(
        _best_is("cifar10", t, ("UltraPLIF",), f"cifar10, T={t}: UltraPLIF is the best of all", "table 2")
        for t in TIMESTEPS
    ),
    _best_is("mnist", 1, _SPATIAL, "mnist, T=1: UltraDLIF is the best of all", "table 4"),
    _best_is("mnist", 10, ("LIF",), "mnist, T=10: LIF is the best of all", "table 4"),
    _best_is("mnist", 30, ("UltraPLIF",), "mnist, T=30: UltraPLIF is the best of all", "table 4"),
    _best_is("n-mnist", 1, _SPATIAL, "n-mnist, T=1: UltraDLIF is the best of all"),
    _best_is("n-mnist", 10, BASELINES, "n-mnist, T=10: a baseline is the best of all"),
    _best_is("n-mnist", 30, ("UltraDPLIF",), "n-mnist, T=30: UltraDPLIF is the best of all"),
    _best_is("fashion-mnist", 1, ("UltraPLIF",), "fashion-mnist, T=1: UltraPLIF is the best of all", "E.2"),
    *(
        _best_is("fashion-mnist", t, BASELINES, f"fashion-mnist, T={t}: a baseline is the best of all", "E.2")
        for t in TIMESTEPS[1:]
    ),
    _best_is("shd", 1, _SPATIAL, "shd, T=1: UltraDLIF is the best of all"),
    *(_best_is("shd", t, BASELINES, f"shd, T={t}: a baseline is the best of all") for t in TIMESTEPS[1:]),
    _best_is("dvs-gesture", 1, ("UltraPLIF",), "dvs-gesture, T=1: UltraPLIF is the best of all"),
    _best_is("dvs-gesture", 10, ULTRA, "dvs-gesture, T=10: an Ultra neuron is the best of all", "table 7"),
    _best_is(
        "dvs-gesture",
        30,
        ("LIF", "UltraDPLIF"),
        "dvs-gesture, T=30: LIF or UltraDPLIF is the best of all",
        "table 7",
    ),
    *(_shrinks(dataset) for dataset in ("cifar10", "n-mnist", "shd")),
    penalty("mnist", 1, "UltraDLIF", 40),
    penalty("mnist", 10, "UltraDPLIF", 50),
    penalty("cifar10", 1, "UltraPLIF", 48),
    penalty("cifar10", 30, "UltraPLIF", 50),
    MeasuredClaim(
        "cifar10, T=30: UltraPLIF with lambda=0.1 has the best accuracy of all", "6", best_with_penalty
    ),
    MeasuredClaim(
        "lambda=0.1 consistently cuts spike rates by 40 to 50 % with minimal loss", "E.3", consistent
    ),
    MeasuredClaim("lambda=0.1 improves accuracy (mnist and fashion T=1, cifar10 T=30)", "E.3", improves),
    MeasuredClaim(
        "with lambda=0.1 UltraPLIF costs least at competitive accuracy", "E.3", temporal_is_cheapest
    ),
    MeasuredClaim(
        "without a penalty Ultra neurons spike more than baselines (cifar10, T=1)", "6", most_spikes
    ),
    MeasuredClaim("a learned temperature beats fixed ones (mnist, T=1)", "6, E.1", learned_is_best),
    MeasuredClaim("learned temperatures end between 0.66 and 1.08 (mnist, T=1)", "6, E.1", final_eps),
    MeasuredClaim("the temperature falls to about 0.42 and then recovers", "E, figure 3", u_shape),
    MeasuredClaim("a fixed eps of 0.5 beats 2.0 (mnist, T=1)", "E.1", small_beats_large),
    MeasuredClaim(
        "with a learned temperature spatial neurons spike least (mnist, T=1)", "E.1", spatial_spikes_least
    ),
    *(_twins(timesteps) for timesteps in TIMESTEPS),
    MeasuredClaim(
        "with the mean rate as output, binary spikes do as well as soft ones", "4.2", _robust_to_hard
    ),
    MeasuredClaim("log-sum-exp adds about 5 % of wall time over LIF", "6, computational cost", _overhead),
)
