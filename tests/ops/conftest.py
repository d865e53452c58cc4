"""Poisoned memory for the tests of the operators."""

import os
from collections.abc import Callable

import pytest
import torch

collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted.py"]


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill new memory with NaN, so that an output that is not written is seen."""

    def poison(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *args, **kwargs: function(*args, **kwargs).fill_(torch.nan)

    monkeypatch.setattr(torch, "empty", poison(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poison(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poison(torch.Tensor.new_empty))
