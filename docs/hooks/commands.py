"""Put every command's help into the page about commands, so that it is never out of date."""

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

from ultralif.cli import COMMANDS, main

MARKER = "<!-- every command's help -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marker."""
    return markdown.replace(MARKER, "\n".join(_sections())) if MARKER in markdown else markdown


def _sections() -> Iterator[str]:
    os.environ["COLUMNS"] = "86"
    for command, text in COMMANDS.items():
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            main([command, "--help"])
        yield f"## {command}\n\n{text[0].upper()}{text[1:]}.\n\n```text\n{shown.getvalue().strip()}\n```\n"
