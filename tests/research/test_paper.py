"""The paper's numbers, and the runs that make its tables."""

import gzip
import json
import math
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from paper_runs import made_up, row
from research.paper import published
from research.paper.archive import read, write
from research.paper.grids import ABLATION, CLIPPED, STATIC, TABLES, main_variants, runs_of
from research.paper.published import ULTRA
from research.paper.results import Results
from research.paper.statistics import Scores, holm, images, interval, paired, two_ways
from research.paper.tables import make_table
from ultralif.errors import InputError
from ultralif.report import to_csv, to_latex, to_markdown
from ultralif.report.statistics import quantile
from ultralif.training.result import ByEpoch, pack_hits, unpack_hits

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "tables.json"


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
        assert found.mean == 2.5 and found.half == pytest.approx(3.182446 * 1.2909944 / 2, rel=1e-6)
        assert interval({}) is None and interval({42: 5.0})[:3] == (5.0, None, 1)

    def test_pairing_uses_common_seeds_only(self):
        assert paired({1: 3.0, 2: 5.0, 9: 100.0}, {1: 1.0, 2: 3.0, 7: -50.0})[:3] == (2.0, 0.0, 2)

    def test_holm_corrects_for_the_number_of_comparisons(self):
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert holm([0.9, 0.9]) == [1.0, 1.0] and holm([]) == []

    def test_students_probability(self):
        found = interval(dict(enumerate([1.0, 2.0, 3.0, 4.0])))
        assert found.p == pytest.approx(0.0304662, rel=1e-4)  # t = 3.873 with 3 degrees of freedom
        assert found.low > 0 and interval({1: 1.0}).low == -math.inf

    def test_what_other_test_images_would_change(self):
        generator = np.random.default_rng(1)
        hard = generator.normal(
            0, 1, 500
        )  # images that suit the first network, and those that suit the other
        found = []
        for _ in range(200):
            seeds = generator.normal(0, 0.3, (5, 1)) + generator.normal(0, 2, (5, 500))
            found.append(two_ways(generator.choice(hard, 500) + seeds))
        assert np.mean(found) == pytest.approx(hard.var() / 500, rel=0.1)
        assert two_ways(np.ones((2, 3))) == 0.0

    def test_a_difference_is_judged_over_seeds_and_test_images(self):
        generator = np.random.default_rng(1)
        right = generator.random((2, 400)) < 0.8
        hits = [[right[i] ^ (generator.random(400) < 0.01) for _ in range(4)] for i in (0, 1)]
        packed = [{seed: pack_hits(one) for seed, one in enumerate(each)} for each in hits]
        means = [{seed: 100 * one.mean() for seed, one in enumerate(each)} for each in hits]
        seeds, both, assumed = (
            paired(
                *(Scores(mean, hit if known else {}, share) for mean, hit in zip(means, packed, strict=True))
            )
            for known, share in ((False, 0.0), (True, 0.0), (False, 1 / 400))
        )
        assert seeds == paired(*means) and seeds.p < 0.01, "chance of these images alone"
        assert both.half > 3 * seeds.half and both.half == pytest.approx(assumed.half, rel=0.2)
        draws = [generator.integers(400, size=400) for _ in range(500)]
        again = np.std([100 * (np.mean(hits[0], 0) - np.mean(hits[1], 0))[draw].mean() for draw in draws])
        assert both.half == pytest.approx(1.96 * again, rel=0.15), "as a bootstrap says"
        same = Scores(means[0], {}, 1.0)
        assert paired(same, same).half == 0.0
        other = {seed: pack_hits(right[1][:9]) for seed in range(4)}
        with pytest.raises(InputError, match="same samples"):
            paired(Scores(means[0], packed[0]), Scores(means[1], other))

    def test_runs_that_kept_no_hits_are_given_the_most_that_others_have(self):
        results = Results(*read(ROOT / "research" / "results" / "paper.jsonl.gz"))
        labels = ("LIF", "FullPLIF", "DSpike", *ULTRA, "SigmaLIF")
        for dataset in (*STATIC, "n-mnist"):
            shares = []
            for time, (first, second) in product(published.TIMESTEPS, combinations(labels, 2)):
                pair = [results.accuracy(label, dataset, time, encoding=CLIPPED) for label in (first, second)]
                measured = images(*pair)
                pair[0].hits.clear()
                if pair[0] != pair[1]:
                    shares.append(measured / images(*pair))
            assert 0.3 < max(shares) <= 1, dataset

    def test_hits_survive_packing(self):
        hits = np.random.default_rng(0).random(10_001) < 0.9
        assert np.array_equal(unpack_hits(pack_hits(hits)), hits)
        for bad in ("", "7", "3:x", "99999999999:eJxbAAAAoQCh", "300:eJxbAAAAoQCh"):
            with pytest.raises(InputError, match="cannot be read"):
                unpack_hits(bad)


class TestTables:
    @pytest.mark.parametrize("name", TABLES)
    def test_without_runs_nothing_is_made_up(self, name):
        table = make_table(name, Results())
        text = to_markdown(table)
        assert "not run" in text or "no data here" in text
        assert table.notes[-1].startswith("Incomplete: 0 of")
        assert len({len(r) for r in table.rows} | {len(table.columns)}) == 1
        assert to_csv(table).count("\n") == len(table.rows) + 1
        assert to_latex(table).count(r"\\") == len(table.rows) + 1

    def test_every_run_of_25_seeds_is_in_its_row(self):
        text = to_markdown(make_table("mnist", made_up(lambda c: 95.0, 25, ("mnist",)), seeds=25))
        assert text.count(" | 25 |") == len(runs_of("mnist", 1)) and "not run" not in text

    def test_measured_beside_published(self):
        results = made_up(lambda c: 95.0 + 0.1 * (c.seed - 43), tables=("mnist",))
        text = to_markdown(make_table("mnist", results, seeds=3))
        assert "| LIF | 1 | 95.34 | 95.00 ± 0.25 | -0.34 | - | - | 3 |" in text
        assert "| UltraDLIF | 1 | 95.67 | 95.00 ± 0.25 | -0.67 | 95.00 ± 0.25 | - | 3 |" in text
        assert "Incomplete" not in text

    def test_latex_is_escaped(self):
        text = to_latex(make_table("mnist-efficiency", Results()))
        assert r"paper \%" in text and " %" not in text.replace(r"\%", "")


def test_results_survive_the_file(tmp_path):
    rows = [row(c, 90.0 + c.seed / 100, path=[1.0, 0.5]) for c in runs_of("mnist", 2)]
    assert write(tmp_path / "r.jsonl.gz", rows) == len(rows)
    again = Results(*read(tmp_path / "r.jsonl.gz"))
    assert again.accuracy("UltraLIF", "mnist", 10) == {42: 90.42, 43: 90.43}
    assert again.trajectories("UltraLIF") == {42: [1.0, 0.5], 43: [1.0, 0.5]}
    first = (tmp_path / "r.jsonl.gz").read_bytes()
    write(tmp_path / "r.jsonl.gz", reversed(rows))
    assert (tmp_path / "r.jsonl.gz").read_bytes() == first  # the same runs are the same file


def test_a_config_is_not_rounded(tmp_path):
    """Its hash names the run: the leak of the released PLIF begins at 0.7109495026250039."""
    rows = [row(c, 90.0) for c in runs_of("released-mnist", 1)]
    write(tmp_path / "r.jsonl.gz", rows)
    assert len(Results(*read(tmp_path / "r.jsonl.gz")).by_id) == len(rows) == 33


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"not gzip", "x.gz is not a gzip file"),
        (gzip.compress(b"1\n"), "row 1 of .*x.gz is not the result of a run, but int"),
        (gzip.compress(b'{"id": '), "row 1 of .*x.gz is not valid JSON"),
        (gzip.compress(bytes(1 << 29), 1), "x.gz unpacks to more than"),
    ],
    ids=["not gzip", "not an object", "not JSON", "a bomb"],
)
def test_a_damaged_file_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(InputError, match=why):
        read(tmp_path / "x.gz")


def test_the_archive_has_every_run_of_five_datasets() -> None:
    results = Results(*read(ROOT / "research" / "results" / "paper.jsonl.gz"))
    assert len(results.by_id) == 3140 + 690 and results.step_ms
    here = [c for c in runs_of("all", 5) if c.dataset != "dvs-gesture" and not c.track_test]
    assert results.missing(here) == []


@pytest.mark.parametrize("freedom", [*range(1, 31), 100, 1000])
def test_students_t(freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


def test_every_seed_is_matched() -> None:
    """A run belongs to its cell whatever its seed."""
    configs = runs_of("mnist", 25)
    results = Results(row(config, 90.0) for config in configs)
    assert results.missing(configs) == [] and len(results.by_id) == len(configs)
    assert len(results.accuracy("UltraLIF", "mnist", 10)) == 25
    (cell,) = [r for r in make_table("mnist", results, 25).rows if r[:2] == ("PLIF", "1")]
    assert cell[-1] == "25"


def test_what_one_draw_of_the_spikes_adds_is_said_in_the_table() -> None:
    """The last epoch is measured by two draws: their difference has twice the variance of one."""
    results = Results(
        replace(row(config, 95.0), by_epoch=ByEpoch(test=(95.0 + (0.2 if config.seed % 2 else -0.2),)))
        for config in runs_of("released-mnist", 2)
    )
    spread, networks = results.draw_spread("mnist", 1)
    assert spread == pytest.approx(0.2 / math.sqrt(2)) and networks == 22
    assert "0.14 on mnist at T=1" in " ".join(make_table("released-mnist", results).notes)
    assert results.draw_spread("n-mnist", 1) is None
