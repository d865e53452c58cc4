"""Tasks beyond classes: several labels at once, and a forecast of a chaotic series."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.training import losses

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "mackey_glass.py"


def forecasting() -> Any:
    spec = importlib.util.spec_from_file_location("mackey_glass", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_labels_of_padded_sequences_are_learned() -> None:
    """Label 0: the first channel is busy; label 1: the second. Lengths differ, and padding is noise."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (400, 2), generator=draw).float()
    lengths = torch.randint(4, 11, (400,), generator=draw)
    mask = losses.step_mask(lengths, 10)
    chance = 0.1 + 0.6 * labels[None].expand(10, -1, -1)
    x = (torch.rand(10, 400, 2, generator=draw) < chance).float()
    x = torch.where(mask[..., None], x, torch.ones_like(x))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), ul.UltraLIF(), nn.Linear(32, 2), ul.LeakyIntegrator())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    train, test = slice(0, 300), slice(300, 400)
    for _ in range(60):
        scores = losses.last(net(x[:, train]), mask[:, train])
        loss = losses.bce(scores, labels[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = (losses.last(net(x[:, test]), mask[:, test]) > 0).float()
    both = (found == labels[test]).all(1).float().mean()
    assert both > 0.85  # one in four by chance
    ignoring = (losses.last(net(x[:, test])) > 0).float()
    assert (ignoring == labels[test]).all(1).float().mean() < both


def test_the_series_solves_the_equation() -> None:
    module = forecasting()
    coarse, fine = module.series(200, 170), module.series(200, 680)
    assert coarse.shape == (200,) and bool(coarse.isfinite().all())
    torch.testing.assert_close(coarse[:100], fine[:100], rtol=0, atol=1e-4)
    assert float(coarse[0]) == pytest.approx(module.PAST) and 0.2 < float(coarse.min()) < 0.6
    assert 1.2 < float(coarse.max()) < 1.5


def test_the_error_is_that_of_neurobench() -> None:
    smape = pytest.importorskip("neurobench.metrics.workload.smape")
    predicted, wanted = torch.rand(50, 1) + 0.5, torch.rand(50, 1) + 0.5
    theirs = smape.SMAPE()(None, predicted, (predicted, wanted))
    assert forecasting().smape(predicted, wanted) == pytest.approx(theirs, rel=1e-5)


def test_a_short_training_forecasts_better_than_the_mean() -> None:
    module = forecasting()
    points = module.series(900)
    mean = module.smape(points[:750].mean().expand(150), points[750:])
    assert module.repeat(points, "UltraLIF", 64, 300, 0, "soft") < mean


def test_auto_picks_apples_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from ultralif.training.device import pick_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto").type == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
