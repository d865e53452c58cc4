"""A few of the fuzzed commands of which `make torture` calls thousands."""

import random
from pathlib import Path

import pytest

from torture.fuzz import inventions, on_hostile_run, said_by
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_hostile_run_folders_are_named_or_skipped(tmp_path: Path) -> None:
    run = train(RunConfig(timesteps=1, hidden=(4,), epochs=1), runs_dir=tmp_path / "runs").id
    for seed in range(200):
        found = on_hostile_run(tmp_path / "runs" / run, tmp_path / "place", seed)
        assert found is None, f"seed {seed}: {found}"
