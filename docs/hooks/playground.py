"""Put the report's playground beside the first page, which shows it in a frame."""

from pathlib import Path
from typing import Any

from ultralif.report.html import make_playground


def on_post_build(config: dict[str, Any], **_: Any) -> None:
    """Write the page into the site."""
    Path(config["site_dir"], "playground.html").write_text(make_playground(), encoding="utf-8")
