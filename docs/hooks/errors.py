"""Run the examples on the error page and show the messages that they raise."""

import re
import textwrap
from typing import Any

BLOCK = re.compile(r"^```python( raises)?\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the message below every block marked with ``raises``."""
    if "```python raises" not in markdown:
        return markdown
    session: dict[str, Any] = {}
    return BLOCK.sub(lambda found: _shown(found[2], bool(found[1]), session), markdown)


def _shown(code: str, raises: bool, session: dict[str, Any]) -> str:
    """Return a block as the page shows it: the code, and the error that it raised."""
    shown = f"```python\n{code}```\n"
    try:
        exec(code, session)  # noqa: S102
    except Exception as error:
        if not raises:
            raise
        message = "\n".join(textwrap.wrap(f"{type(error).__name__}: {error}", 90))
        return f"{shown}\n```{{.text .output}}\n{message}\n```\n"
    if raises:
        raise SystemExit(f"this block on the error page raised nothing:\n{code}")
    return shown
