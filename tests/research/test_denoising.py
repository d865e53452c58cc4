"""The estimate of what denoised recordings change: dropped events come back at the rates of the raw ones."""

import importlib

import numpy as np
import pytest
import torch

from ultralif.data import Split
from ultralif.data.split import Frames


def test_events_come_back_as_often_as_they_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    denoising = importlib.import_module("research.studies.denoising")
    generator = np.random.default_rng(0)
    kept = np.zeros((60, 2, 34, 34), np.int64)
    kept[:, :, 10:20, 10:20] = generator.poisson(3, (60, 2, 10, 10))
    near = denoising.classes(kept) > len(denoising.OWN)
    level = generator.choice([0.8, 1.2], 60)[:, None, None, None]
    dropped = generator.poisson(np.where(near, 1.0, 0.1) * level)
    dropped[:, 1, 30, 18] += generator.poisson(4, 60)  # a hot cell
    noise = denoising.noise_of(kept + dropped, kept)
    assert noise.spread == pytest.approx(0.2, abs=0.06)

    split = Split(Frames(torch.tensor(kept[:, None])), torch.zeros(60, dtype=torch.long), torch.arange(60))
    drawn = denoising.noisy(split, noise, seed=1)[:, 0].astype(np.int64) - kept
    assert drawn.min() >= 0
    assert drawn.sum() == pytest.approx(dropped.sum(), rel=0.1)
    assert drawn[near].mean() == pytest.approx(1.0, rel=0.1)
    assert drawn.sum((1, 2, 3)).std() == pytest.approx(dropped.sum((1, 2, 3)).std(), rel=0.3)
    hot = noise.expected(kept)[:, 1, 30, 18].mean()
    assert 0.5 < hot / dropped[:, 1, 30, 18].mean() < 1, "drawn towards its neighbours"
    assert drawn[:, 1, 30, 18].mean() == pytest.approx(hot, rel=0.3)
    assert drawn[:, 0, 30, 18].mean() < 0.5
    off = (drawn - noise.expected(kept))[:, :, 8:22, 8:22]
    assert 0.2 < np.corrcoef(off[:, 0].ravel(), off[:, 1].ravel())[0, 1] < 0.6, "both polarities together"
    assert 0.1 < np.corrcoef(off[..., 1:].ravel(), off[..., :-1].ravel())[0, 1] < 0.4, "and neighbours"
