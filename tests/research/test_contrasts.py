"""The study of controlled comparisons: its plan resumes, and every method trains."""

import io
import json
import lzma
from dataclasses import asdict

import numpy as np
import pytest
import torch

from research.studies import contrasts
from research.studies.contrast_nets import METHODS, Cell, Frozen
from research.studies.contrasts import EPOCHS, PLAIN, REMEMBERING, Plan, measure


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("packed")
    shapes = {"shd": (160, 99, 140), "mnist": (170, 1, 28, 28), "cifar10": (170, 3, 32, 32)}
    for name, shape in (shapes | {"fashion-mnist": shapes["mnist"]}).items():
        arrays, classes = {}, 20 if name == "shd" else 10
        for half in ("train", "test", *(["official"] if name == "shd" else [])):
            arrays[f"{half}.x"] = rng.integers(0, 3 if name == "shd" else 256, shape).astype(np.uint8)
            arrays[f"{half}.labels"] = np.arange(len(arrays[f"{half}.x"])) % classes
        if name == "shd":
            arrays["train.speakers"] = np.arange(160) // 10 % 10
        np.savez(file := io.BytesIO(), **arrays)
        (folder / f"{name}.npz.xz").write_bytes(lzma.compress(file.getvalue(), preset=0))
    return str(folder)


CELLS = [
    *(Cell("network", "spoken", m, 5e-3, 0.5, (2.0, 20.0), head="softmax", shift=2) for m in PLAIN[::3]),
    Cell("network", "spoken", "PLIF, with delays", 5e-3, 0.5, (2.0, 20.0), held=True),
    Cell("network", "spoken-large", "UltraPLIF, no reset, with delays", 5e-3, 0.5, (2.0, 20.0), held=True),
    Cell("network", "spoken", "SoftLIF, no reset, with recurrence", 5e-3, 0.5, (2.0, 20.0)),
    *(Cell("memory", "permuted", m, 1e-2, 0.3, (2.0, 50.0), timesteps=196) for m in REMEMBERING),
    *(Cell("shares", "clothes", m, 1e-3, 0.3, soft=0.5, timesteps=1) for m in ("UltraLIF", "LIF")),
    Cell("shares", "pictures", "SoftLIF", 1e-3, 0.3, soft=0.5, timesteps=1),
    Cell("memory", "long", "UltraPLIF, no reset", 1e-2, 0.3, (2.0, 50.0), timesteps=784),
    *(Cell("energy", task, "PLIF", 1e-3, 0.3, timesteps=2, penalty=1.0) for task in ("words", "digits")),
]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.task} {cell.method}")
def test_every_kind_of_run_trains_and_is_judged(packed, monkeypatch, cell):
    monkeypatch.setattr(contrasts, "EPOCHS", dict.fromkeys(EPOCHS, 2))
    monkeypatch.setattr(contrasts, "BATCH", 64)
    row = measure(cell, packed, "cpu")
    halves = (
        ["held"]
        if cell.held
        else ["official", "test"]
        if cell.task in ("spoken", "spoken-large", "words")
        else ["test"]
    )
    assert [name for name in row if name in ("held", "official", "test")] == halves
    assert all(0 <= row[half] <= 100 for half in halves)
    assert ("test additions" in row) == (cell.study == "energy")
    assert contrasts.read(row) == cell


def test_the_plan_resumes_and_uses_fresh_seeds():
    rows, kinds = [], set()
    for _ in range(3000):
        cell = next(Plan(rows).missing(), None)
        if cell is None or cell.study == "shares":
            break
        kinds.add((cell.study, cell.held))
        assert cell.seed == 0 if cell.held else cell.seed in range(1, 6)
        rows.append({"cell": vars(cell), "held": cell.lr})
    assert kinds == {("design", True), ("network", True), ("network", False)}
    finals = [row["cell"] for row in rows if not row["cell"]["held"]]
    assert len(finals) == 5 * 8
    assert {cell["lr"] for cell in finals} == {1e-2}


def test_the_edge_of_a_grid_is_tried_with_higher_rates_and_three_seeds():
    grid = [Cell("network", "spoken", "LIF", lr, 1.0, held=True) for lr in (1e-3, 1e-2)]
    final = Cell("network", "spoken", "LIF", 1e-2, 1.0, seed=1)
    rows = [{"cell": vars(cell), "held": cell.lr} for cell in (*grid, final)]
    for _ in range(20):
        found = list(dict.fromkeys(Plan(rows).edge("network", "spoken", 99, (2e-2, 6e-2, 1e-1))))
        left = [cell for cell in found if cell not in Plan(rows).done]
        if not left:
            break
        worse = left[0].lr == 1e-1 and left[0].seed > 0  # the best of the first seed is not the best of three
        rows.append({"cell": vars(left[0]), "held": 0.0 if worse else left[0].lr})
    assert [(cell.lr, cell.seed, cell.held) for cell in found] == [
        *((lr, 0, True) for lr in (2e-2, 6e-2, 1e-1)),
        *((lr, seed, True) for lr in (2e-2, 6e-2, 1e-1) for seed in (1, 2)),
        *((6e-2, seed, False) for seed in (1, 2, 3, 4, 5)),
    ]


def test_a_frozen_gate_is_exact_where_the_gate_is_constant():
    """Under a constant current the gate settles, and the frozen membrane ends where UltraPLIF's does."""
    cell = Cell("memory", "permuted", "UltraPLIF, frozen gate", 1e-2, 0.3, (5.0, 5.0))
    frozen, exact = Frozen(cell, 1), METHODS["UltraPLIF, no reset"](cell, 1)
    current = torch.full((400, 1, 1), 0.1)
    assert torch.equal(
        frozen(current)[-1].detach().round(), exact.eval()(current)[-1].detach().gt(0.5).float()
    )


class TestPage:
    """The page is made from the committed rows, and its main numbers follow from them by hand."""

    def test_both_pages_are_made_from_the_rows(self):
        from research.pages.contrasts import PAGES, fill, read_runs

        runs = read_runs()
        for page in PAGES:
            assert fill(page.read_text(), runs) == page.read_text(), "python -m research pages contrasts"

    def test_the_numbers_by_hand(self):
        from research import DOCS, RESULTS
        from ultralif.report.statistics import quantile

        rows = [json.loads(line) for line in (RESULTS / "contrasts.jsonl").read_text().splitlines()]
        assert len({json.dumps(row["cell"]) for row in rows}) == len(rows)

        def accuracies(study, task, steps, method, soft=0.0):
            return {
                row["cell"]["seed"]: row.get("official", row.get("test"))
                for row in rows
                if (cell := row["cell"])["study"] == study
                and not cell["held"]
                and (cell["task"], cell["timesteps"], cell["method"], cell["soft"])
                == (task, steps, method, soft)
            }

        def shown(ours, theirs):
            values = np.array([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())])
            half = quantile(len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
            return f"{values.mean():+.2f} ± {half:.2f} (n = {len(values)})"

        page = (DOCS / "contrasts.md").read_text()
        for study in ("shares", "edge of shares"):
            means = dict.fromkeys(range(1, 9), 0.0)
            for task, steps in (("spoken", 99), ("clothes", 1), ("clothes", 4)):
                place = study, task, steps, "UltraLIF"
                soft, binary = accuracies(*place, 0.7), accuracies(*place)
                assert shown(soft, binary) in page
                means = {seed: means[seed] + (soft[seed] - binary[seed]) / 3 for seed in means}
            assert shown(means, dict.fromkeys(means, 0.0)) in page
        place = "memory", "permuted", 196
        ours = accuracies(*place, "UltraPLIF, no reset")
        for rival in ("SoftLIF, no reset", "masked PSN", "UltraPLIF, frozen gate"):
            assert f"| {shown(ours, accuracies(*place, rival))} |" in page

    def test_a_failed_run_is_written_and_its_grid_chooses_without_it(self, tmp_path):
        from research.pages.contrasts import Runs

        cell = asdict(Cell("shares", "clothes", "LIF", 1e-3, 0.3, held=True))
        runs = Runs([{"cell": cell, "held": 0.0, "error": "out of memory"}])
        assert not runs.rows and not runs.tried
