"""``ultralif sweep``: a plan, its runs, and the same command once more."""

import json
from pathlib import Path

import pytest

from cli.commands import Commands

GRID = (
    "--epochs",
    "1",
    "--hidden",
    "6",
    "--batch-size",
    "512",
    "--timesteps",
    "1,2",
    "--neurons",
    "UltraLIF,lif",
)


def test_a_sweep_from_plan_to_table(ultralif: Commands) -> None:
    said = ultralif("sweep", *GRID, "--sparsity", "0,0.1", "--seeds", "2")
    assert said.code == 0
    plan = said.err.splitlines()
    assert plan[0].split() == ["dataset", "T", "networks", "seeds", "parameters", "megabytes", "seconds"]
    assert [row.split()[:4] for row in plan[1:3]] == [["digits", "1", "4", "2"], ["digits", "2", "4", "2"]]
    assert plan[3].startswith("16 runs in 4 stacks, about ")
    table = said.out.splitlines()
    assert len(table) == 1 + 8 + 2 and all(" ± " in row for row in table[1:-2])
    assert table[-2].endswith("±: 95 % interval over seeds.")
    assert table[-1] == "16 runs in runs; next: ultralif runs list"
    again = ultralif("sweep", *GRID, "--sparsity", "0,0.1", "--seeds", "2")
    assert again.err == "all runs are already finished\n" and again.out == said.out


def test_runs_that_diverged_are_no_results(ultralif: Commands) -> None:
    words = ("--neurons", "AdaLIF", "--timesteps", "9", "--adapt-strength", "1e38", "--epochs", "1")
    for _ in range(2):  # trained, and found
        said = ultralif("sweep", *words, "--hidden", "6", "--batch-size", "512", "--quiet")
        assert said.code == 1
        assert len(said.out.splitlines()) == 2  # no row
        assert "because the loss diverged" in said.err.splitlines()[-1]


def test_json(ultralif: Commands) -> None:
    rows = ultralif.json("sweep", *GRID)
    assert len(rows) == 4 and {row["neuron"] for row in rows} == {"UltraLIF", "LIF"}
    assert ultralif.json("sweep", *GRID, "--dry-run") == {"stacks": [], "seconds": 0, "runs": []}


def test_a_sweep_goes_on_with_what_is_missing(ultralif: Commands) -> None:
    ultralif.done("train", "--epochs", "1", "--hidden", "6", "--batch-size", "512", "--timesteps", "2")
    plan = ultralif.json("sweep", *GRID, "--dry-run")
    assert sorted((run["neuron"], run["timesteps"]) for run in plan["runs"]) == [
        ("LIF", 1),
        ("LIF", 2),
        ("UltraLIF", 1),
    ]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--neurons", "foo"), "neuron 'foo' is not known"),
        (("--neurons", ","), "--neurons needs a value"),
        (("--timesteps", "1;2"), "--timesteps expects whole numbers, got '1;2'"),
        (("--timesteps", "0"), "timesteps must be from 1"),
        (("--sparsity", "a"), "--sparsity expects numbers, got 'a'"),
        (("--sparsity", "-1"), "sparsity must be 0 or more"),
        (("--seeds", "0"), "seeds must be from 1 to 100,000, got 0"),
        (("--seeds", "100000000"), "seeds must be from 1 to 100,000, got 100000000"),
        (("--largest", "0"), "largest must be at least 1"),
        (("--neuron", "LIF"), "did you mean --neurons?"),
        (("--neurons", "LIF", "--eps", "0.5"), "eps is not an argument of LIF"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], part: str, ultralif: Commands) -> None:
    assert part in ultralif.refused("sweep", *words)
    assert not Path("runs").exists()


class TestRuns:
    """``ultralif runs``."""

    @pytest.fixture
    def rows(self, ultralif: Commands) -> list[dict]:
        return ultralif.json("sweep", *GRID)

    def test_without_runs(self, ultralif: Commands) -> None:
        assert ultralif.done("runs", "list") == "no finished runs in runs; train one with: ultralif train\n"
        assert ultralif.json("runs", "list") == []
        assert "there is no run" in ultralif.refused("runs", "show", "abc")
        assert ultralif.done("runs", "export").count("\n") == 1
        assert ultralif.done("runs", "rebuild").startswith("0 runs in runs")
        assert not Path("runs").exists()

    def test_list_and_filters(self, rows: list[dict], ultralif: Commands) -> None:
        assert len(ultralif.done("runs", "list").splitlines()) == 5
        assert len(ultralif.json("runs", "list", "--neuron", "ultralif", "--timesteps", "2")) == 1
        assert len(ultralif.json("runs", "list", "--limit", "3")) == 3
        assert "no run matches" in ultralif.done("runs", "list", "--seed", "7")
        assert "limit must be at least 1" in ultralif.refused("runs", "list", "--limit", "0")
        assert "did you mean UltraLIF" in ultralif.refused("runs", "list", "--neuron", "UltraLFI")
        times = [row["finished"] for row in ultralif.json("runs", "list")]
        assert times == sorted(times, reverse=True)

    def test_show(self, rows: list[dict], ultralif: Commands) -> None:
        run = rows[0]
        text = ultralif.done("runs", "show", run["id"][:8], "--history")
        assert "hidden=[6]" in text and "data_sha256" in text and "hard_rate" in text
        found = ultralif.json("runs", "show", run["path"])
        assert found["config"]["epochs"] == 1 and len(found["history"]) == 1
        assert found["accuracy"] == run["accuracy"]

    def test_compare(self, rows: list[dict], ultralif: Commands) -> None:
        lif = [row["id"] for row in rows if row["neuron"] == "LIF"]
        header, first, *rest = ultralif.done("runs", "compare", *lif).splitlines()
        assert header.split() == ["run", *lif] and first.split()[0] == "timesteps" and len(rest) == 7
        assert [row["timesteps"] for row in ultralif.json("runs", "compare", *lif)] == [
            next(row["timesteps"] for row in rows if row["id"] == run) for run in lif
        ]
        assert "at least two runs" in ultralif.refused("runs", "compare", lif[0])

    def test_rm_deletes_all_or_none(self, rows: list[dict], ultralif: Commands) -> None:
        first, second, *_ = (row["id"] for row in rows)
        ultralif.refused("runs", "rm", first, "nothing")
        assert len(ultralif.json("runs", "list")) == 4
        assert ultralif.done("runs", "rm", first, second, "--yes") == f"removed {first}\nremoved {second}\n"
        assert len(ultralif.json("runs", "list")) == 2 and not Path("runs", first).exists()

    def test_export(self, rows: list[dict], ultralif: Commands) -> None:
        import csv
        import io

        table = list(csv.DictReader(io.StringIO(ultralif.done("runs", "export"))))
        assert [row["run"] for row in table] == [row["id"] for row in rows]
        assert json.loads(ultralif.done("runs", "export", "--to", "json")) == rows
        assert ultralif.done("runs", "export", "--to", "json", "--out", "b.json") == "4 runs in b.json\n"
        assert json.loads(Path("b.json").read_text()) == rows
        markdown = ultralif.done("runs", "export", "--to", "markdown", "--neuron", "LIF").splitlines()
        assert len(markdown) == 4 and all(line.startswith("|") and line.endswith("|") for line in markdown)

    def test_an_index_that_was_lost(self, rows: list[dict], ultralif: Commands) -> None:
        for path in Path("runs").glob("index.sqlite*"):
            path.unlink()
        assert ultralif.done("runs", "rebuild").startswith("4 runs in runs")
        assert ultralif.json("runs", "list") == rows


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--seeds", "3"], 3),
        (["--seeds", "3,5"], 2),
        (["--seeds", "3", "5"], 2),
        (["--timesteps=1,2,4"], 3),
        (["--timesteps", "1", "2"], 2),
        (["--neurons", "LIF", "PLIF"], 2),
        (["--sparsity", "0,0.1", "--hidden", "8,4"], 2),
        (["--sparsity", "0", "0.1", "--hidden", "8", "4"], 2),
    ],
)
def test_lists_have_commas_or_spaces(words: list[str], count: int, ultralif: Commands) -> None:
    base = ("sweep", "--neurons", "LIF", "--timesteps", "1", "--dry-run")
    runs = ultralif.json(*base, *words)["runs"]
    assert len(runs) == count
    if "5" in " ".join(words):
        assert sorted(run["seed"] for run in runs) == [3, 5]
