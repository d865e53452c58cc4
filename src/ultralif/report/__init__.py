"""Figures, tables and the report. Names are imported on first use, because tables do not need torch."""

from typing import TYPE_CHECKING

from ultralif.lazy import lazy

if TYPE_CHECKING:
    from ultralif.report.canvas import STYLES as STYLES
    from ultralif.report.canvas import new_figure as new_figure
    from ultralif.report.canvas import save_figure as save_figure
    from ultralif.report.canvas import shades as shades
    from ultralif.report.canvas import style_of as style_of
    from ultralif.report.document import Section as Section
    from ultralif.report.gather import Entry as Entry
    from ultralif.report.gather import gather as gather
    from ultralif.report.html import write_report as write_report
    from ultralif.report.statistics import Interval as Interval
    from ultralif.report.statistics import interval as interval
    from ultralif.report.table import Table as Table
    from ultralif.report.table import to_csv as to_csv
    from ultralif.report.table import to_latex as to_latex
    from ultralif.report.table import to_markdown as to_markdown

_HOMES = {
    "Entry": "gather",
    "Interval": "statistics",
    "STYLES": "canvas",
    "Section": "document",
    "Table": "table",
    "gather": "gather",
    "interval": "statistics",
    "new_figure": "canvas",
    "save_figure": "canvas",
    "shades": "canvas",
    "style_of": "canvas",
    "to_csv": "table",
    "to_latex": "table",
    "to_markdown": "table",
    "write_report": "html",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
