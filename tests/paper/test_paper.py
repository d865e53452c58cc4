"""The paper's numbers, the runs that make its tables, and the verdicts on its claims."""

import gzip
import json
from pathlib import Path

import pytest

from ultralif.errors import InputError
from ultralif.paper import published
from ultralif.paper.grids import ABLATION, TABLES, main_variants, runs_of
from ultralif.paper.published import ULTRA
from ultralif.paper.results import TIMING, Results, interval, paired, read, write
from ultralif.paper.tables import make_table
from ultralif.paper.verdicts import CLAIMS, judge
from ultralif.report.tables import to_csv, to_latex, to_markdown

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "tables.json"


def row(config, soft, *, hard=None, rate=0.4, eps=0.7, path=None):
    """Return a finished run with these numbers."""
    ultra = config.neuron.startswith(("Ultra", "SoftLIF"))
    accuracy = {"soft": soft, "hard": soft if hard is None else hard} if ultra else {"hard": soft}
    rates = dict.fromkeys(accuracy, rate)
    found = {
        "id": config.id,
        "status": "done",
        "accuracy": accuracy,
        "spike_rate": rates,
        "eps": eps if ultra else None,
    }
    return {**found, "leak": 0.9, "seconds": 1.0, "stacked": 20, **({"history_eps": path} if path else {})}


def made_up(
    accuracy, seeds=3, tables=("mnist-sparsity", "eps-ablation"), rate=lambda config: 0.4, eps=0.7, path=None
):
    """Return results in which each run has the accuracy that a function of its config gives."""
    configs = {c.id: c for table in tables for c in runs_of(table, seeds)}.values()
    return Results(row(c, accuracy(c), rate=rate(c), eps=eps, path=path) for c in configs)


def verdict(results, words):
    (found,) = [v for v in judge(results) if words in v.claim]
    return found


class TestPublished:
    def test_spot_checks_from_the_text(self):
        assert published.accuracy("shd", "FullPLIF", 1) == 40.02
        assert published.accuracy("cifar10", "UltraPLIF", 30) == 46.58
        assert published.ablation("accuracy", "UltraDLIF", None) == 96.71
        assert published.final_eps("UltraLIF") == 0.661
        assert len(published.sparsity_rows("n-mnist")) == 36

    @pytest.mark.skipif(not SOURCE.exists(), reason="the source of the numbers is not here")
    def test_every_number_is_the_sources(self):
        source = json.loads(SOURCE.read_text())
        for dataset, models in source["accuracy"].items():
            for model, cells in models.items():
                for time, value in cells.items():
                    assert published.accuracy(dataset, model.replace("+", "Plus"), int(time)) == value
        for dataset, rows in source["sparsity"].items():
            mine = [tuple(r) for r in published.sparsity_rows(dataset)]
            assert mine == [
                tuple(r[k] for k in ("model", "T", "lambda", "accuracy", "spike_rate", "energy"))
                for r in rows
            ]


class TestGrids:
    def test_what_is_trained_on_every_dataset(self):
        labels = [variant.label for variant in main_variants()]
        assert len(labels) == len(set(labels)) == 10 + 2 + 8
        assert len(ABLATION) == 12

    def test_every_table_names_its_runs(self):
        per_seed = {table: len(runs_of(table, 1)) for table in TABLES}
        assert per_seed["mnist"] == 12 * 3 and per_seed["mnist-sparsity"] == 20 * 3
        assert per_seed["eps-ablation"] == 2 * 16 and per_seed["t1-summary"] == 6 * 12
        assert len(runs_of("all", 2)) == 2 * len(runs_of("all", 1))

    def test_no_run_is_named_twice(self):
        ids = [config.id for config in runs_of("all", 2)]
        assert len(ids) == len(set(ids))

    def test_an_unknown_table(self):
        with pytest.raises(ValueError, match=r"'minst'.*mnist"):
            runs_of("minst")


class TestStatistics:
    def test_students_interval(self):
        found = interval(dict(enumerate([1.0, 2.0, 3.0, 4.0])))
        assert found.mean == 2.5 and found.half == pytest.approx(3.182 * 1.2909944 / 2, rel=1e-6)
        assert interval({}) is None and interval({42: 5.0}) == (5.0, None, 1)

    def test_pairing_uses_common_seeds_only(self):
        assert paired({1: 3.0, 2: 5.0, 9: 100.0}, {1: 1.0, 2: 3.0, 7: -50.0}) == (2.0, 0.0, 2)


class TestTables:
    @pytest.mark.parametrize("name", TABLES)
    def test_without_runs_nothing_is_made_up(self, name):
        table = make_table(name, Results())
        text = to_markdown(table)
        assert "not run" in text or "data not at hand" in text
        assert table.notes[-1].startswith("partial: 0 of")
        assert len({len(r) for r in table.rows} | {len(table.columns)}) == 1
        assert to_csv(table).count("\n") == len(table.rows) + 1
        assert to_latex(table).count(r"\\") == len(table.rows) + 1

    def test_measured_beside_published(self):
        results = made_up(lambda c: 95.0 + 0.1 * (c.seed - 43), tables=("mnist",))
        text = to_markdown(make_table("mnist", results, seeds=3))
        assert "| LIF | 1 | 95.34 | 95.00 ± 0.25 | -0.34 | - | - | 3 |" in text
        assert "| UltraDLIF | 1 | 95.67 | 95.00 ± 0.25 | -0.67 | 95.00 ± 0.25 | - | 3 |" in text
        assert "partial" not in text

    def test_latex_is_escaped(self):
        text = to_latex(make_table("mnist-efficiency", Results()))
        assert r"paper \%" in text and " %" not in text.replace(r"\%", "")


class TestVerdicts:
    @pytest.mark.parametrize(
        ("over", "expected"), [(5, "holds"), (20, "holds weaker"), (40, "does not hold")]
    )
    def test_the_cost_of_log_sum_exp(self, over, expected):
        fused = {"LIF": 10.0, **dict.fromkeys(ULTRA, 10.0 + over / 10)}
        plain = {"LIF": 10.0, **dict.fromkeys(ULTRA, 99.0)}  # the plain loop is shown, and judged by nobody
        results = Results([{"id": TIMING, "step_ms": {"T=10 auto": fused, "T=10 reference": plain}}])
        (found,) = (v for v in judge(results) if v.claim.startswith("log-sum-exp adds"))
        assert found.verdict == expected and f"T=10 fused: +{over} to +{over} %" in found.measured

    def test_nothing_is_judged_without_runs(self):
        assert {v.verdict for v in judge(Results())} == {"not tested"}
        assert len(CLAIMS) > 25 and len({claim.text for claim in CLAIMS}) == len(CLAIMS)

    @pytest.mark.parametrize(
        ("gain", "expected"), [(0.5, "holds"), (0.05, "holds weaker"), (-0.3, "does not hold")]
    )
    def test_a_gain_is_compared_with_the_published_one(self, gain, expected):
        results = made_up(
            lambda c: (
                95
                + 0.2 * c.seed
                + (gain if c.neuron == "UltraDLIF" else 0 if "Ultra" not in c.neuron else -3)
            )
        )
        assert verdict(results, "mnist, T=1: the best Ultra neuron is +0.09").verdict == expected

    def test_noise_does_not_hold(self):
        noise = {42: 1.0, 43: -1.2, 44: 0.5}
        results = made_up(
            lambda c: 95 + (noise[c.seed] if c.neuron == "UltraDLIF" else -9 if "Ultra" in c.neuron else 0)
        )
        assert verdict(results, "mnist, T=1: the best Ultra neuron is +0.09").verdict == "holds weaker"

    @pytest.mark.parametrize(
        ("after", "expected"), [(0.24, "holds"), (0.3, "holds weaker"), (0.39, "does not hold")]
    )
    def test_the_penalty_must_cut_spikes(self, after, expected):
        results = made_up(lambda c: 95.0, rate=lambda c: after if c.sparsity == 0.1 else 0.4)
        assert verdict(results, "mnist, T=1: lambda=0.1 cuts UltraDLIF").verdict == expected

    def test_the_penalty_must_not_cost_accuracy(self):
        results = made_up(
            lambda c: 95.0 - 2 * (c.sparsity == 0.1), rate=lambda c: 0.2 if c.sparsity == 0.1 else 0.4
        )
        assert verdict(results, "mnist, T=1: lambda=0.1 cuts UltraDLIF").verdict == "does not hold"

    def test_the_temperature(self):
        wide = made_up(lambda c: 95 + (c.neuron_options.get("eps") == 2.0), eps=0.15, path=[1.0, 0.4, 0.15])
        assert verdict(wide, "a learned temperature is the best").verdict == "does not hold"
        assert verdict(wide, "learned temperatures end between").verdict == "does not hold"
        assert verdict(wide, "falls to about 0.42").verdict == "does not hold"
        assert verdict(wide, "eps of 0.5 beats 2.0").verdict == "does not hold"
        learned = made_up(
            lambda c: 95 + ("eps" not in c.neuron_options) + 0.5 * (c.neuron_options.get("eps") == 0.5),
            eps=0.8,
            path=[1.0, 0.42, 0.8],
        )
        for words in (
            "a learned temperature is",
            "temperatures end between",
            "falls to about 0.42",
            "eps of 0.5 beats",
        ):
            assert verdict(learned, words).verdict == "holds"


def test_results_survive_the_file(tmp_path):
    rows = [row(c, 90.0 + c.seed / 100, path=[1.0, 0.5]) for c in runs_of("mnist", 2)]
    assert write(tmp_path / "r.jsonl.gz", rows) == len(rows)
    again = Results(read(tmp_path / "r.jsonl.gz"))
    assert again.accuracy("UltraLIF", "mnist", 10) == {42: 90.42, 43: 90.43}
    assert again.trajectories("UltraLIF") == {42: [1.0, 0.5], 43: [1.0, 0.5]}
    first = (tmp_path / "r.jsonl.gz").read_bytes()
    write(tmp_path / "r.jsonl.gz", reversed(rows))
    assert (tmp_path / "r.jsonl.gz").read_bytes() == first  # the same runs are the same file


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"not gzip", "x.gz is not gzip"),
        (gzip.compress(b"1\n"), "row 1 of .*x.gz is not the result of a run, but int"),
        (gzip.compress(b'{"id": '), "line 1 of .*x.gz is not valid JSON"),
        (gzip.compress(bytes(1 << 29), 1), "x.gz unpacks to more than"),
    ],
    ids=["not gzip", "not an object", "not JSON", "a bomb"],
)
def test_a_damaged_file_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(InputError, match=why):
        read(tmp_path / "x.gz")
