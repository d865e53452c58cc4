"""The numbers on the pages are those of the measurements behind them.

A page marks a number as ``<!--n:key-->2.2<!---->``; ``NUMBERS`` computes the number of each key. The words
around a number are free.
"""

import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from research import DOCS as PAPER
from research import RESULTS
from research.pages.contrasts import BEST, TASKS, average, read_runs
from research.pages.paper_parts import FOUR
from research.pages.paper_reproduced import agreement
from research.pages.paper_studies import from_control
from research.paper.archive import read
from research.paper.grids import STATIC, TABLES
from research.paper.published import ULTRA
from research.paper.released import reproduced
from research.paper.results import Results
from research.paper.statistics import paired
from research.paper.tables import make_table
from ultralif.data import available
from ultralif.report import to_markdown

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "results"
FOLDERS = (ROOT / "docs", ROOT / "research")
PAGES = [ROOT / "README.md", *sorted(page for folder in FOLDERS for page in folder.rglob("*.md"))]
MARKED = [
    pytest.param(key, shown, id=f"{page.relative_to(ROOT)}-{key}")
    for page in PAGES
    for key, shown in re.findall(r"<!--n:([^>]*)-->(.*?)<!---->", page.read_text(), re.DOTALL)
]


@cache
def paper() -> Results:
    return Results(*read(RESULTS / "paper.jsonl.gz"))


@cache
def all_results() -> Any:
    from research.pages.paper import all_results

    return all_results()


def counted(wanted: Callable[[Any], bool]) -> str:
    return f"{sum(map(wanted, read(RESULTS / 'paper.jsonl.gz')[0])):,}"


def ratio_on_a_cortex_m4() -> str:
    page = (MEASURED / "deployment.md").read_text()
    rows = re.findall(r"^\| vgg5, one time step \|(.*)\|$", page, re.MULTILINE)
    return rows[-1].split("|")[-1].strip()


def ratio_to_spikingjelly() -> str:
    rows = json.loads((MEASURED / "fastpath-h200.json").read_text())["rows"]
    setting = ("called", 30, 4096, "float32")
    times = {
        row["subject"]: row["ms"]
        for row in rows
        if (row["part"], row.get("time"), row.get("features"), row.get("dtype")) == setting
    }
    return f"{times['SpikingJelly LIF'] / times['UltraLIF']:.1f}"


def ahead_of_best(study: str, task: str, steps: int, without: tuple[str, ...] = ()) -> str:
    runs = read_runs()
    rivals = [group[3] for group in runs.found if group[:3] == (study, task, steps)]
    scores = {name: runs.scores(study, task, steps, name) for name in rivals if name not in without}
    ours = scores.pop(BEST)
    return str(paired(ours, max(scores.values(), key=lambda by_seed: fmean(by_seed.values()))))


def speedrun(epochs: int) -> str:
    rows = map(json.loads, (RESULTS / "speedrun.jsonl").read_text().splitlines())
    found = [
        row["accuracy"]
        for row in rows
        if (row["recipe"]["neuron"], row["recipe"]["epochs"], row["holdout"]) == ("UltraLIF", epochs, 0)
    ]
    return f"{fmean(found):.1f}"


def forecast_error(mode: str) -> str:
    return f"{fmean(json.loads((MEASURED / 'mackey-glass.json').read_text())[mode]):.2f}"


def claims_that(verdict: str) -> str:
    return str((PAPER / "claims.md").read_text().count(f"| {verdict} |"))


def gain_on_shd(code: str) -> str:
    return str(all_results().gain("shd", 1, encoding=code).difference.signed)


def behind_control(where: list[str]) -> str:
    return from_control(all_results(), "UltraLIF", where)[0].removeprefix("-")


def ratio_to_compiled_spikingjelly() -> str:
    rows = json.loads((MEASURED / "compiled-cpu.json").read_text())["rows"]
    times = {row["subject"]: row["ms"] for row in rows}
    return f"{times['SpikingJelly LIF, compiled'] / times['UltraLIF']:.1f}"


def network_ratio(network: str, measure: str, compiled: bool) -> str:
    times = json.loads((MEASURED / "networks-cpu.json").read_text())["networks"][network][measure]
    others = [
        value
        for name, value in times.items()
        if not name.startswith("UltraLIF") and name.endswith("compiled") is compiled
    ]
    return f"{min(others) / times['UltraLIF library, LIF']:.2f}"


NETWORKS = {
    f"network.{network}.{short}.{kind}": partial(network_ratio, network, measure, kind == "compiled")
    for network in ("perceptron", "convolutional")
    for short, measure in (
        ("train", "training_step_cpu_ms"),
        ("call", "inference_cpu_ms"),
        ("peak", "peak_mb"),
    )
    for kind in ("eager", "compiled")
    if (short, kind) != ("peak", "compiled")
}
CONVERTED = json.loads((MEASURED / "converted-cpu.json").read_text())["networks"]
NUMBERS: dict[str, Callable[[], str]] = {
    **NETWORKS,
    "converted.images": lambda: f"{CONVERTED['snnTorch, tutorial, static images']['ratio']:.1f}",
    "converted.spikes": lambda: f"{CONVERTED['snnTorch, tutorial, spikes']['ratio']:.1f}",
    "converted.convolutions": lambda: f"{CONVERTED['SpikingJelly, two convolutions']['ratio']:.1f}",
    "board.m4": ratio_on_a_cortex_m4,
    "speed.h200.eager": ratio_to_spikingjelly,
    "speed.cpu.compiled": ratio_to_compiled_spikingjelly,
    "contrasts.spoken": lambda: ahead_of_best("edge of network", "spoken", 99),
    "contrasts.memory": lambda: ahead_of_best("memory", "permuted", 196, ("masked PSN",)),
    "contrasts.long": lambda: ahead_of_best("memory", "long", 784, ("masked PSN", "UltraPLIF, frozen gate")),
    "contrasts.soft": lambda: str(average(read_runs(), TASKS, study="edge of shares")),
    "speedrun.long": lambda: speedrun(52),
    "forecast.soft": lambda: forecast_error("soft"),
    "forecast.binary": lambda: forecast_error("hard"),
    "claims.fail": lambda: claims_that("fails"),
    "paper.reproduced": lambda: str(reproduced(paper())[1]),
    "paper.error": lambda: f"{agreement(paper(), STATIC).error:.2f}",
    "paper.correlation": lambda: f"{agreement(paper(), STATIC).correlation:.2f}",
    "paper.null": lambda: str(agreement(paper(), STATIC).null),
    "paper.control.images": lambda: behind_control(FOUR),
    "paper.control.shd": lambda: behind_control(["shd"]),
    "paper.shd.released": lambda: gain_on_shd("rate-clipped"),
    "paper.shd.written": lambda: gain_on_shd("rate"),
    "runs.written": lambda: counted(lambda run: run.dataset != "shd" and run.by_epoch.test is None),
    "runs.released": lambda: counted(lambda run: run.dataset != "shd" and run.by_epoch.test is not None),
    "runs.shd": lambda: counted(lambda run: run.dataset == "shd"),
}


@pytest.mark.parametrize(("key", "shown"), MARKED)
def test_a_marked_number_is_the_measured_one(key: str, shown: str) -> None:
    assert shown == NUMBERS[key]()


def test_every_number_is_on_a_page() -> None:
    """A number that no page shows any more can go."""
    assert NUMBERS.keys() == {param.values[0] for param in MARKED}


def test_all_published_accuracies_are_reproduced() -> None:
    good, tried, every = reproduced(paper())
    assert good == tried == every


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
    page = (ROOT / "docs" / "neurons.md").read_text()
    for neuron in ULTRA:
        images, spoken = (from_control(all_results(), neuron, where)[0] for where in (FOUR, ["shd"]))
        assert f"| {neuron} | {images} | {spoken} |" in page
