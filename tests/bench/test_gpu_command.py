"""The one command for a GPU: what it would run, and what it says where it cannot."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/gpu.py", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_plan_names_what_is_lacking_and_the_data_it_needs(tmp_path):
    for name in ("mnist", "nmnist", "shd", "cifar-10-batches-bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "step.done").touch()
    for name in ("memory", "contrasts"):  # studies without any run; that of the paper may be complete
        (tmp_path / f"{name}.jsonl").touch()
    told = call("--data", str(tmp_path), "--out", str(tmp_path), "--plan")
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    said = dict(line.removeprefix("lacking: ").split(": ", 1) for line in lines)
    needing = ["board-curve", "pack", "contrasts", "deep"]
    runs = ["tests", "fastpath", "tuning", "memory-speed", "speedrun", "board-curve-cifar10", "memory"]
    assert {*said} - {"released"} == {*runs, *needing}
    assert {said[name] for name in needing} == {f"needs fashion-mnist in {tmp_path}"}
    assert "-m research studies memory" in said["memory"]
    (tmp_path / "fashion-mnist").mkdir()
    told = call("--data", str(tmp_path), "--out", str(tmp_path), "--plan")
    assert re.search("^lacking: contrasts: 1 lines of .* contrasts .*--plan", told.stdout, re.MULTILINE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_without_a_gpu_nothing_is_begun(tmp_path):
    told = call("--data", str(tmp_path), "--out", str(tmp_path / "out"))
    assert told.returncode != 0
    assert "no CUDA device" in told.stderr
    assert not (tmp_path / "out").exists()
