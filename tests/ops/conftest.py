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
        def poisoned(*args: object, **kwargs: object) -> torch.Tensor:
            made = function(*args, **kwargs)
            return made.fill_(torch.nan) if made.is_floating_point() else made

        return poisoned

    monkeypatch.setattr(torch, "empty", poison(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poison(torch.empty_like))
    monkeypatch.setattr(torch, "empty_strided", poison(torch.empty_strided))
    monkeypatch.setattr(torch.Tensor, "new_empty", poison(torch.Tensor.new_empty))
