"""Write the runs of the paper as one HTML report with additional sections."""

from collections.abc import Iterable
from pathlib import Path

from research import RESULTS
from research.claims import Verdict, check_all
from research.claims.page import found
from research.paper import published
from research.paper.archive import read
from research.paper.grids import TABLES, runs_of
from research.paper.published import BASELINES, DATASETS, TIMESTEPS, ULTRA
from research.paper.results import Results
from research.paper.tables import make_table
from research.paper.verdicts import judge
from ultralif.report import Entry, Section, Table, write_report
from ultralif.training import RunConfig

__all__ = ["paper_sections", "published_accuracies", "write_paper_report"]


def write_paper_report(path: Path, source: Path = RESULTS / "paper.jsonl.gz", theory: bool = True) -> Path:
    """Write a report on the runs in a results file, with the paper's tables and verdicts."""
    results, step_ms = read(source)
    entries = [
        Entry(RunConfig.from_dict(one.config), one, [{"eps": eps} for eps in one.by_epoch.eps or ()])
        for one in results
    ]
    sections = paper_sections(Results(results, step_ms), check_all() if theory else ())
    notes = [f"{source.name} stores neither the devices nor the checksums of its runs."]
    datasets = dict.fromkeys(one.dataset for one in results)
    write_report(
        path, entries, "The paper's runs", notes, sections=sections, references=published_accuracies(datasets)
    )
    return path


def published_accuracies(datasets: Iterable[str] = DATASETS) -> dict[str, dict[str, dict[int, float]]]:
    """Return the published accuracies by dataset, neuron and T."""
    return {
        dataset: {
            neuron: {time: published.accuracy(dataset, neuron, time) for time in TIMESTEPS}
            for neuron in (*BASELINES, *ULTRA)
        }
        for dataset in datasets
        if dataset in DATASETS
    }


def paper_sections(results: Results, theory: Iterable[Verdict] = ()) -> list[Section]:
    """Return the paper's tables that have runs, and the verdicts, as report sections."""
    sections = []
    if results.by_id:
        seeds = max(map(len, results.runs.values()))
        wanted = {name: runs_of(name, 1) for name in TABLES}  # every table starts with the first seed
        there = [name for name, runs in wanted.items() if len(results.missing(runs)) < len(runs)]
        tables = [make_table(name, results, seeds) for name in there]
        sections.append(Section("The paper's tables", "Published and measured numbers side by side.", tables))
    columns = ("claim", "section", "verdict", "found")
    judged = [
        Table(
            "experiments", "Experiments", columns, [(v.claim, v.section, v.verdict, v.measured) for v in of]
        )
        for of in ([judge(results)] if results.by_id else [])
    ]
    if rows := [(f"{v.claim}. {v.label}: {v.statement}", v.section, v.verdict, found(v)) for v in theory]:
        judged.append(Table("theory", "Theory", columns, rows))
    if judged:
        sections.append(
            Section("Verdicts", "The claims of the paper that the runs and tests support.", judged)
        )
    return sections
