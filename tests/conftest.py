"""What all tests share: seeds, precision, one thread a worker, golden files."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import settings

import ultralif as ul

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"

# A failure must come back on every machine: examples are drawn from the test's name, not from the clock.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile("fixed")


collect_ignore = ["faults", "torture"]  # programs of their own: make faults, make torture


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden", action="store_true", help="rewrite tests/golden/ from the code as it is now"
    )


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # the workers share the cores


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture(autouse=True)
def neurons() -> Iterator[None]:
    """Forget the neurons that a test registers."""
    before = dict(ul.NEURONS)
    yield
    ul.NEURONS.clear()
    ul.NEURONS.update(before)


@pytest.fixture
def float64() -> Iterator[None]:
    """Make float64 the precision of new tensors and modules."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Python:
    """Processes of this Python that import this checkout."""

    environment: ClassVar = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, *arguments], env=self.environment, text=True, **pipes)

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run to the end; with ``check`` a failure is the test's."""
        done = subprocess.run(
            [sys.executable, *arguments], env=self.environment, text=True, capture_output=True, timeout=280
        )
        assert not check or done.returncode == 0, done.stderr
        return done


@pytest.fixture
def python() -> Python:
    return Python()


class Golden:
    """Numbers kept in ``tests/golden/<name>.json``."""

    def __init__(self, regenerate: bool) -> None:
        self.regenerate = regenerate

    def load(self, name: str) -> dict[str, list[float]]:
        return json.loads((GOLDEN / f"{name}.json").read_text())

    def check(self, name: str, arrays: dict[str, np.ndarray], rtol: float = 1e-12) -> None:
        """Compare arrays with the file, or write them there under ``--regenerate-golden``."""
        path = GOLDEN / f"{name}.json"
        if self.regenerate:
            lines = [f'  "{key}": {json.dumps(array.tolist())}' for key, array in arrays.items()]
            path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        kept = self.load(name)
        assert kept.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_allclose(array, kept[key], rtol=rtol, atol=rtol, err_msg=f"{name}: {key}")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.config.getoption("--regenerate-golden"))
