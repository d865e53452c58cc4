"""The numbers that pages quote are those of the tables and the runs behind them."""

import csv
import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from research import DOCS as PAPER
from research import RESULTS
from research.paper.archive import read
from research.paper.grids import TABLES
from research.paper.released import reproduced
from research.paper.results import Results
from research.paper.tables import make_table
from research.studies.tables import tuned_groups
from ultralif.data import DATASETS as SPECS
from ultralif.data import available
from ultralif.report import to_markdown

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def words(path: Path) -> str:
    return " ".join(path.read_text().split())


INDEX, README = words(DOCS / "index.md"), words(ROOT / "README.md")
KINDS = ("paper", "measured")
DATASETS = ("mnist", "fashion-mnist", "cifar10", "n-mnist")


def rows(table: str) -> list[dict[str, str]]:
    with (PAPER / "tables" / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


def mean(cell: str) -> float:
    return float(cell.split()[0])


def test_the_gains_at_one_time_step() -> None:
    measured = [row for row in rows("t1-summary") if row[""] == "measured" and row["dataset"] in DATASETS]
    soft = sorted(mean(row["gain"]) for row in measured)
    binary = sorted(mean(row["gain, binary"]) for row in measured)
    assert len(measured) == len(DATASETS)
    assert f"by {soft[0]:.1f} to {soft[-1]:.1f} points with soft spikes" in INDEX
    assert f"between {-binary[0]:.1f} below and {binary[-1]:.1f} above it" in INDEX


def test_the_control_at_one_time_step() -> None:
    differences = []
    for dataset in DATASETS:
        found = {row["neuron"]: mean(row["measured"]) for row in rows(dataset) if row["T"] == "1"}
        differences.append(abs(found["SoftLIF"] - found["UltraDLIF"]))
    assert f"within {max(differences):.1f} points of UltraDLIF at T = 1 on all four" in INDEX


def test_the_claims_that_hold() -> None:
    claims = (PAPER / "claims.md").read_text()
    every = len(re.findall(r"^\| \d+ \|", claims, flags=re.MULTILINE))
    plain, corrected = (claims.count(f"| {verdict} |") for verdict in ("holds", "holds as corrected"))
    assert f"{plain} of {every} hold as written, {corrected} with a correction" in INDEX


def test_the_table_of_the_readme() -> None:
    names = {
        "mnist": "MNIST",
        "fashion-mnist": "Fashion-MNIST",
        "cifar10": "CIFAR-10",
        "n-mnist": "N-MNIST",
        "shd": "SHD",
    }
    paper, ours = ({row["dataset"]: row for row in rows("t1-summary") if row[""] == kind} for kind in KINDS)
    for dataset, name in names.items():
        best = [f"{mean(ours[dataset][column]):.2f}" for column in ("best baseline", "best Ultra, soft")]
        gains = [paper[dataset]["gain"], ours[dataset]["gain"], ours[dataset]["gain, binary"]]
        assert f"| {' | '.join([name, *best, *gains])} |" in README
    assert f"| DVS-Gesture | | | {paper['dvs-gesture']['gain']} | not run" in README


def test_the_tuned_neurons_of_the_front_pages() -> None:
    files = (RESULTS / f"{name}.jsonl.gz" for name in ("paper", "studies"))
    groups = tuned_groups([row for file in files for row in read(file).results])
    assert not any(row.past.p < 0.05 and row.past.mean > 0 for row in groups if row.past)
    assert "the best Ultra neuron is not significantly ahead of it either" in INDEX
    soft, binary = (
        sorted(row.past.mean for row in groups if row.group == group) for group in ("Ultra", "Ultra binary")
    )
    assert len(soft) == len(binary) == 2 * (len(DATASETS) + 1)
    assert f"its control nowhere, soft ({soft[0]:+.2f} to {soft[-1]:+.2f} points)" in README
    assert f"trained binary ({binary[0]:+.2f} to {binary[-1]:+.2f}; CIFAR-10 at T = 10 stays open)" in README
    page = words(PAPER / "paper.md")
    before = re.search(r"which are not tuned, (\S+) ± \S+ and (\S+) ", page)
    soft, binary = (
        next(row for row in groups if row[:3] == ("cifar10", 10, group))
        for group in ("Ultra", "Ultra binary")
    )
    assert before and soft.binary and binary.over
    assert f"with binary spikes, {before[1]} and {before[2]} on CIFAR-10 at T = 10 and 30, are" in README
    assert f"the first is {soft.binary.signed}, or {binary.over.signed} if trained binary" in README


def test_the_speedrun_of_the_readme() -> None:
    found: dict[int, list[tuple[float, float]]] = {}
    for line in (RESULTS / "speedrun.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["recipe"]["neuron"] == "UltraLIF" and not row["holdout"]:
            found.setdefault(row["recipe"]["epochs"], []).append((row["accuracy"], row["seconds"]))
    short, long, four = (
        " % in ".join(f"{fmean(values):.1f}" for values in zip(*found[n], strict=True)) for n in sorted(found)
    )
    assert f"reach {short.replace('%', '% of CIFAR-10')} s and {long} s at T=1 (three seeds)" in README
    assert f"and {four} s at T=4 (one seed), on one H200" in README


def test_the_times_of_the_readme() -> None:
    told = []
    for file, part, features in (("fastpath-h200", "called", 4096), ("performance-cpu", "layer", 1024)):
        rows = json.loads((DOCS / "results" / f"{file}.json").read_text())["rows"]
        times = {
            row["subject"]: row["ms"]
            for row in rows
            if (row["part"], row.get("time"), row.get("features"), row.get("dtype"))
            == (part, 30, features, "float32")
        }
        told.append((times["UltraLIF"], times["SpikingJelly LIF"]))
    (gpu, gpu_peer), (cpu, cpu_peer) = told
    assert f"H200: UltraLIF {gpu:.2f} ms, SpikingJelly LIF {gpu_peer:.2f} ms;" in README
    assert f"one CPU thread: {cpu:.0f} and {cpu_peer:.0f} ms" in README


def test_counts_of_runs_and_images() -> None:
    results, step_ms = read(RESULTS / "paper.jsonl.gz")
    good, tried, every = reproduced(Results(results, step_ms))
    assert good == tried == every
    assert f"reproduces all {every} published accuracies on MNIST, Fashion-MNIST and CIFAR-10" in README
    spoken = [result for result in results if result.dataset == "shd"]
    results = [result for result in results if result.dataset != "shd"]
    later = sum(result.by_epoch.test is not None for result in results)
    counted = words(RESULTS / "README.md")
    assert f"{len(results) - later:,} runs of ultralif 0.1.0" in counted
    assert f"{later:,} runs of ultralif 0.2.0" in counted
    assert f"{len(spoken)} runs of SHD" in counted
    assert f"which has {SPECS['digits'].sizes[1]} test images" in words(PAPER / "paper.md")


@pytest.mark.skipif(any(map(available, ("shd", "dvs-gesture"))), reason="their cells differ then")
def test_the_tables_of_the_paper_are_made_from_the_file_of_results() -> None:
    """Wherever they are made: whether the data of a run are on this machine makes no difference."""
    results = Results(*read(RESULTS / "paper.jsonl.gz"))
    for name in TABLES:
        kept = PAPER / "tables" / f"{name}.md"
        assert to_markdown(make_table(name, results)) == kept.read_text(), "python -m research pages tables"


def test_the_page_on_the_paper_is_made_from_the_files_of_results(tmp_path: Path) -> None:
    from research.pages import paper as page

    results = page.all_results()
    text = page.PAGE.read_text()
    assert page.fill(text, results) == text, "python -m research pages paper"
    assert set(re.findall(r"<!-- ([a-z-]+) -->", text)) - {"end"} == set(page.PARTS)
    assert page.tuned_figure(results, tmp_path / "tuned.png").read_bytes().startswith(b"\x89PNG")
    for table in page.studies(results):
        assert page.to_markdown(table) == (PAPER / "tables" / f"{table.name}.md").read_text()


def test_the_differences_from_the_control_where_neurons_are_recommended() -> None:
    from research.pages.paper import all_results
    from research.pages.paper_parts import FOUR
    from research.pages.paper_studies import from_control
    from research.paper.published import ULTRA

    results, page = all_results(), (DOCS / "neurons.md").read_text()
    front = words(PAPER.parent / "README.md")
    for neuron in ULTRA:
        images, spoken = (from_control(results, neuron, where)[0] for where in (FOUR, ["shd"]))
        assert f"| {neuron} | {images} | {spoken} |" in page
        if neuron == "UltraLIF":
            assert f"by {images[1:]} points on four datasets and {spoken[1:]} on SHD" in front
    gains = [results.gain("shd", 1, encoding=code).difference.signed for code in ("rate-clipped", "rate")]
    assert f"as released {gains[0]} (saturated baselines), as written {gains[1]}" in front
