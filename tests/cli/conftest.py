from pathlib import Path

import pytest

from cli.commands import Commands


@pytest.fixture
def ultralif(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ULTRALIF_RUNS", raising=False)
    return Commands(capsys, tmp_path)
