"""The shared figure style: size, colour-blind-safe colours, reproducible files."""

from pathlib import Path
from typing import Any

from ultralif.errors import InputError, need
from ultralif.files import drafted, visible

__all__ = ["STYLES", "new_figure", "save_figure", "shades", "style_of"]

STYLES: dict[str, tuple[str, str, str]] = {
    "UltraLIF": ("#0072B2", "solid", "o"),
    "UltraPLIF": ("#56B4E9", "solid", "s"),
    "UltraDLIF": ("#D55E00", "solid", "^"),
    "UltraDPLIF": ("#E69F00", "solid", "D"),
    "SoftLIF": ("#009E73", "solid", "o"),
    "SigmaLIF": ("#009E73", "dotted", "D"),
    "LIF": ("#80868F", "solid", "o"),
    "PLIF": ("#8C6BB1", "dashed", "s"),
    "FullPLIF": ("#6A8F3C", "dotted", "^"),
    "AdaLIF": ("#9A6B1F", "dashed", "D"),
    "DSpike": ("#CC79A7", "solid", "s"),
    "DSpikePlus": ("#C0404F", "dashed", "^"),
}
"""Each neuron's colour (most from Okabe and Ito), line style and marker, in figures and in the browser."""
VARIANTS = {
    "LIF learned width": ("#000000", "dashed", "s"),
    "binary": ("#009E73", "dashdot", "x"),
    "binary narrow": ("#A0522D", "dotted", "v"),
}
"""Styles for labels that do not begin with a neuron's name, or that appear next to that neuron."""
DPI = 200
"""Resolution of a PNG in dots per inch: enough to print panels about three and a half inches wide."""


def style_of(label: str) -> dict[str, str]:
    """Return a neuron's style, also for a variant whose label begins with its name."""
    color, line, marker = VARIANTS.get(label) or STYLES.get(label.split()[0], ("#009E73", "dashdot", "x"))
    return {"color": color, "linestyle": line, "marker": marker}


def new_figure(columns: int, rows: int = 1, width: float = 4.2, height: float = 3.1) -> tuple[Any, Any]:
    """Return a figure and its axes ``[rows, columns]``, without touching pyplot's state."""
    figure = need("matplotlib.figure", "plot").Figure(
        figsize=(width * columns, height * rows), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path, *, math: bool = True) -> Path:
    """Write a figure in the format given by the file extension, without a date.

    Args:
        figure: a figure from `new_figure`.
        path: a .png, .svg or .pdf file.
        math: render ``$...$`` as formulas. Otherwise control characters are escaped, because names read from
            files may contain them.
    """
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"the file name of a figure must end in .png, .svg or .pdf, got {str(path)!r}")
    dates = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    names = {"svg.hashsalt": "ultralif"}  # random by default
    for text in () if math else figure.findobj(need("matplotlib.text", "plot").Text):
        text.set_parse_math(False)
        text.set_text(visible(text.get_text()))
    with need("matplotlib", "plot").rc_context(names), drafted(path) as draft:
        figure.savefig(draft, dpi=DPI, metadata=dates[path.suffix])
    return path


def shades(count: int) -> list[Any]:
    """Return colours from warm to cold, for decreasing temperatures."""
    scale = need("matplotlib", "plot").colormaps["plasma"]
    return [scale(0.85 - 0.8 * i / max(count - 1, 1)) for i in range(count)]
