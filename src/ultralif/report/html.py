"""The browser report: one self-contained file that runs only its own script."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from ultralif import __version__
from ultralif.files import visible, write_file
from ultralif.report.canvas import STYLES
from ultralif.report.document import References, Section, make_document
from ultralif.report.gather import Entry

__all__ = ["SCRIPTS", "make_page", "make_playground", "write_report"]

SCRIPTS = (
    "dom",
    "scale",
    "chart",
    "hover",
    "table",
    "runs",
    "filters",
    "plots",
    "details",
    "sections",
    "picture",
    "raster",
    "viewer",
    "boundary",
    "formulas",
    "player",
    "playground",
    "main",
)
"""The parts of the script, in order."""


def write_report(
    path: Path,
    entries: Sequence[Entry],
    title: str,
    notes: Iterable[str] = (),
    *,
    inside: int = 3,
    samples: int = 4,
    data_dir: Path | None = None,
    sections: Iterable[Section] = (),
    references: References | None = None,
) -> list[str]:
    """Write a report of runs as one HTML file, and return the notes in it.

    Args:
        path: the file.
        entries: the runs, as returned by `gather`.
        title: page title.
        notes: remarks for the reader.
        inside: number of trained networks whose spikes are shown.
        samples: number of test samples to show.
        data_dir: a folder to search first for the data.
        sections: additional sections with your own tables.
        references: accuracies by dataset, neuron and time steps to plot next to the measured ones.
    """
    said = list(notes)
    document = make_document(
        entries,
        said,
        inside=inside,
        samples=samples,
        data_dir=data_dir,
        sections=sections,
        references=references,
    )
    write_file(path, make_page(document, title).encode())
    return said


def make_page(document: Mapping[str, object], title: str) -> str:
    """Return the HTML page for a document.

    The document is JSON in a block that browsers do not execute. The script inserts all of it as text, so
    nothing in it can act as markup.
    """
    script = "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    style = _read("style.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(_visible(document), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(visible(title)),
        "VERSION": __version__,
        "STYLE": style,
        "DATA": data.replace("<", "\\u003c"),
        "SCRIPT": script,
    }
    head, *pieces = _read("page.html").split("{{")
    filled = [parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces)]
    return head + "".join(filled)


def make_playground() -> str:
    """Return a page that shows only the playground."""
    return make_page({"styles": STYLES, "alone": True}, "Playground")


def _visible(value: object) -> object:
    """Escape control characters in all strings, because some of them reverse the text direction."""
    if isinstance(value, str):
        return value if value.isprintable() else "\n".join(map(visible, value.split("\n")))
    if isinstance(value, Mapping):
        return {_visible(key): _visible(part) for key, part in value.items()}
    return [_visible(part) for part in value] if isinstance(value, list | tuple) else value


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return files("ultralif.report").joinpath("page", name).read_text(encoding="utf-8")
