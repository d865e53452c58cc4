"""``ultralif report``: show runs in an HTML page or as figures."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ultralif.cli.output import check_place, echo, print_json, say
from ultralif.cli.runs import ALL, Filter
from ultralif.cli.sources import is_code, neuron_name
from ultralif.errors import InputError
from ultralif.training.progress import spell_count

if TYPE_CHECKING:
    from ultralif.report.gather import Entry

__all__ = ["COMMAND"]

PAGES = (".html", ".htm")


def report(
    runs: tuple[str, ...] = (),
    /,
    which: Filter = ALL,
    out: Path | None = None,
    figures: Path | None = None,
    format: Literal["png", "svg", "pdf"] = "png",
    title: str | None = None,
    inside: int = 3,
    samples: int = 4,
    runs_dir: Path | None = None,
    data_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Write a report on runs as one self-contained HTML file, or as figures.

    The page contains sortable tables, plots, learned constants, spikes and membranes of trained networks,
    decision boundaries, a playground, and the source of each number.

    Examples:
      ultralif report
      ultralif report 3f2a 91bc --out two.html
      ultralif report --dataset mnist --timesteps 1
      ultralif report --neuron neuron.py:Mine    # include runs of your own neuron
      ultralif report --dataset my.npz           # runs on your own data
      ultralif report --figures figures --format svg

    Args:
        runs: names of runs, their folders, or folders that contain runs; none means all runs.
        which: filters for the runs.
        out: the HTML file; by default report.html, unless --figures is given.
        figures: a folder for the figures.
        format: figure format.
        title: page title.
        inside: number of trained networks whose spikes are shown.
        samples: number of test samples to show.
        runs_dir: runs folder.
        data_dir: a folder to search first for the data.
        json: print the list of written files as one JSON document.
    """
    from ultralif.report.gather import gather

    if out is not None and out.suffix not in PAGES:
        raise InputError(f"out must end in .html, got {str(out)!r}; figures go to --figures")
    check_place(out)
    if which.neuron is not None and is_code(which.neuron):  # register it, and do not filter by it
        neuron_name(which.neuron)
        which = replace(which, neuron=None)
    entries, notes = gather(runs, runs_dir, which.values())
    written: list[Path] = []
    if figures is not None:
        from ultralif.report.draw import draw_figures

        drawn, left_out = draw_figures(entries, figures, f".{format}", data_dir)
        written += drawn
        notes += left_out
    if figures is None or out is not None:
        from ultralif.report.html import write_report

        page = out or Path("report.html")
        shown = title or _title(entries)
        notes = write_report(page, entries, shown, notes, inside=inside, samples=samples, data_dir=data_dir)
        written.append(page)
    _tell(written, len(entries), notes, json)


def _title(entries: "list[Entry]") -> str:
    datasets = dict.fromkeys(entry.config.dataset for entry in entries)
    return f"UltraLIF on {', '.join(datasets)}"


def _tell(written: list[Path], runs: int, notes: list[str], json: bool) -> None:
    if json:
        print_json({"runs": runs, "written": [str(path) for path in written], "notes": notes})
        return
    for note in dict.fromkeys(notes):
        say(note)
    for path in written:
        echo(f"{path} ({path.stat().st_size / 1000:,.0f} kB)")
    last = written[-1]
    page = last.suffix in PAGES
    count = spell_count(runs, "run")
    echo(f"{count}; open {last} in a browser" if page else f"{count} drawn in {last.parent}")


COMMAND = report
