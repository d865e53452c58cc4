from pathlib import Path

import pytest

from ultralif.training import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")
