"""The report for the browser: one file that loads nothing else and runs only its own script."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ultralif import __version__
from ultralif.files import visible
from ultralif.report.canvas import STYLES

__all__ = ["SCRIPTS", "make_page", "make_playground"]

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
    "paper",
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


def make_page(document: Mapping[str, Any], title: str) -> str:
    """Return the page of a document.

    The document is JSON in a block that browsers do not run, and the script writes all of it as text, so
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
    """Return a page with the playground alone."""
    return make_page({"styles": STYLES, "alone": True}, "Playground")


def _visible(value: Any) -> Any:
    """Escape the control characters of all texts: some reverse the direction of the text that follows."""
    if isinstance(value, str):
        return value if value.isprintable() else "\n".join(map(visible, value.split("\n")))
    if isinstance(value, Mapping):
        return {_visible(key): _visible(part) for key, part in value.items()}
    return [_visible(part) for part in value] if isinstance(value, list | tuple) else value


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return files("ultralif.report").joinpath("page", name).read_text(encoding="utf-8")
