"""The pictures of the theory are drawn, and the same every time."""

from pathlib import Path

import pytest

from research.pages.theory_figures import FIGURES


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_drawn(name: str, tmp_path: Path) -> None:
    path = FIGURES[name](tmp_path / "new" / f"{name}.png")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert 10_000 < len(data) < 400_000


def test_figure_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (FIGURES["activations"](tmp_path / f"{i}.svg").read_text() for i in range(2))
    assert "<svg" in first
    assert first == second
