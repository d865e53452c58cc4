"""The rates of the study of the temperature: networks with a floor for the leak, and folders without runs."""

import importlib
from pathlib import Path

import pytest
import torch

from research.paper.grids import cells
from ultralif.data import DATASETS, Dataset, Split
from ultralif.data.split import Images
from ultralif.errors import InputError
from ultralif.training.networks import build_network

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch):
    return importlib.import_module("research.studies.ablation_rates")


def test_a_leak_stays_above_its_floor(study, monkeypatch):
    pixels = torch.randint(0, 256, (64, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    split = Split(Images(pixels.byte()), torch.arange(64) % 10, torch.arange(64))
    spec = DATASETS["mnist"]
    dataset = Dataset("mnist", spec.shape, 10, (), split, split, "", spec.normalization, None)
    config = next(one for key, one in cells("released-ablation") if key.label == "UltraPLIF eps=2")
    nets = []
    monkeypatch.setattr(study, "build_network", lambda config: nets.append(build_network(config)) or nets[0])
    rates = study.with_floor(config.with_(epochs=3, learning_rate=0.5, batch_size=16), dataset)
    leaks = [float(neuron.leak.detach()) for neuron in nets[0].neurons]
    assert min(leaks) == pytest.approx(study.FLOOR), "without a floor it would be lower"
    assert 0 < rates["hidden"] < 1 and 0 < rates["output"] < 1


def test_a_folder_without_runs_of_the_study(study, tmp_path):
    with pytest.raises(InputError, match="has no runs of the study"):
        study.of_runs(tmp_path)
