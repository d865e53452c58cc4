"""The Triton kernels are tested without a GPU, in a process that interprets them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "part", ["float32 and ultra", "float32 and not ultra", "options", "not float32 and not options"]
)
def test_triton_in_the_interpreter(part):
    command = [sys.executable, "-m", "pytest", "-q", "-k", part, str(HERE / "interpreted.py")]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, cwd=HERE.parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
