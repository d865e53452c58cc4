"""A few of the fuzzed commands of which `make torture` calls thousands."""

import random
from pathlib import Path

import pytest

from torture.fuzz import inventions, said_by
from ultralif.training import RunConfig, train


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fuzzed_commands_work_or_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ULTRALIF_RUNS", "runs")
    train(RunConfig(timesteps=1, hidden=(4,), epochs=1), runs_dir="runs")
    for words in inventions(Path("runs"), random.Random(1), 200):  # noqa: S311
        assert said_by(words) is None, words
