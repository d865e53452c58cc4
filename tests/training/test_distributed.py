"""One run on several processes: the result of one process, whatever their number and whoever is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import ultralif as ul
from ultralif.cli import main

SOURCE = str(Path(__file__).parents[2] / "src")
# The last of five batches has one sample, so that all processes but one have none of it.
TRAIN = (
    "train --hidden 64 --neuron UltraPLIF --timesteps 2 --batch-size 359 --sparsity 0.1 --volume-reg 0.001 "
    "--epochs 15"
)
STRICT = "--precision float64 --checkpoint-seconds 0 --json"


def run(processes: int, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return subprocess.Popen(
        [*command, str(processes), *words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
    )


def start(processes: int, *words: str) -> subprocess.Popen[str]:
    return run(processes, "-m", "ultralif", *words)


def newest(runs: Path) -> str:
    return max((path.parent.name for path in runs.glob(".training/*/[0-9]*/manifest.json")), default="")


def wait_for_progress(runs: Path, job: subprocess.Popen[str]) -> int:
    """Wait for a newer checkpoint, and return the process that writes them."""
    before = newest(runs)
    for _ in range(2400):
        if newest(runs) > before:
            return int(next(runs.glob(".training/*.lock")).read_text())
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    pytest.fail("no checkpoint was written")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes_find_what_one_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes are stopped, two lose one to SIGKILL, three finish; in float64 all agree to 1e-9."""
    words = [*TRAIN.split(), *STRICT.split()]
    several = [*words, "--runs-dir", str(tmp_path / "several")]
    for lost in ("all", "the first"):
        job = start(2, *several)
        writer = wait_for_progress(tmp_path / "several", job)
        if lost == "all":
            job.terminate()
        else:
            os.kill(writer, signal.SIGKILL)
        job.communicate(timeout=120)
        assert job.returncode != 0
    job = start(3, *several)
    out, errors = job.communicate(timeout=240)
    assert job.returncode == 0, errors
    said = json.loads(out)  # so only one of them speaks
    assert main([*words, "--runs-dir", str(tmp_path / "one")]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert said["id"] == alone["id"]
    assert said["accuracy"] == alone["accuracy"]
    nets = [ul.load(tmp_path / folder / said["id"]).state_dict() for folder in ("several", "one")]
    torch.testing.assert_close(*nets, rtol=1e-9, atol=1e-9)
    histories = [ul.Store(tmp_path / folder).read(said["id"]).history for folder in ("several", "one")]
    for ours, theirs in zip(*histories, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the threads from /proc")
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    """Such a thread may touch the interpreter while it ends, and that aborts a finished run now and then."""
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from ultralif.cli import main\n"
        "main(sys.argv[1:])\n"
        "print([path.read_text() for path in Path('/proc/self/task').glob('*/comm')])\n"
    )
    job = run(2, str(script), "train", "--epochs", "1", "--quiet", "--runs-dir", str(tmp_path / "runs"))
    out, errors = job.communicate(timeout=240)
    assert job.returncode == 0, errors
    assert "python" in out
    assert "gloo" not in out


@pytest.mark.slow
def test_the_example_of_a_large_network_learns_the_same_on_two_processes() -> None:
    """Mixed precision rounds each part of a batch by itself, so the losses agree to bfloat16 alone."""
    example = str(Path(__file__).parents[2] / "examples" / "large_conv.py")
    losses = {}
    for processes in (1, 2):
        job = run(processes, example, "--steps", "4", "--width", "8", "--depth", "2", "--batch-size", "64")
        out, errors = job.communicate(timeout=240)
        assert job.returncode == 0, errors
        losses[processes] = [float(line.rpartition(" ")[2]) for line in out.splitlines()]
    assert len(losses[1]) == 4
    assert losses[2] == pytest.approx(losses[1], rel=2e-2)
    assert losses[2][-1] < losses[2][0]
