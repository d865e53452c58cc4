"""What the tests of the operators share: the choice of an implementation, and poisoned memory."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ultralif.ops import analytic, cpu, library

collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted.py"]
IMPLEMENTATIONS = {"C": cpu, "analytic": analytic}


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the operators by each implementation for the CPU, whatever the dispatcher would choose."""
    chosen = IMPLEMENTATIONS[request.param]
    if chosen is cpu:
        assert cpu.available()
    monkeypatch.setattr(library, "_implementation", lambda current: chosen)
    return chosen


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill new memory with NaN, so that an output that is not written is seen."""

    def poison(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *args, **kwargs: function(*args, **kwargs).fill_(torch.nan)

    monkeypatch.setattr(torch, "empty", poison(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poison(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poison(torch.Tensor.new_empty))
