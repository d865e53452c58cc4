"""A penalty on spikes lowers the rate of every neuron, and a target rate is reached with binary spikes."""

from pathlib import Path

import pytest
import torch
from torch import nn

import ultralif as ul
from training.small import files, stop_after
from ultralif import RunConfig
from ultralif.errors import InputError
from ultralif.training import Interrupted, RunOptions, Store, train_stack
from ultralif.training.config import NEURON_NAMES

TARGET = 0.1
CLOSE = pytest.approx(TARGET, rel=0.25)
"""Rates are steered on 64 training samples, and tested on digits by other writers."""


def config(neuron: str, **changes: object) -> RunConfig:
    base = RunConfig(neuron=neuron, timesteps=4, hidden=(48, 32), epochs=20, learning_rate=1e-2)
    return base.with_(**changes)


@pytest.mark.slow
def test_every_neuron_reaches_the_target_in_each_layer(store: Store) -> None:
    results = train_stack([config(name, target_rate=TARGET) for name in NEURON_NAMES], store)
    assert len(results) == len(NEURON_NAMES)
    for result in results:
        assert result.by_mode["hard"].spike_rates == (CLOSE, CLOSE), result
        assert result.accuracy["hard"] > 60, result


@pytest.mark.parametrize("neuron", [ul.UltraLIF, ul.LIF])
def test_a_network_of_the_user_reaches_it(neuron: type, tmp_path: Path) -> None:
    digits = ul.data.load("digits")
    train, test = ((s.batch(torch.arange(len(s))) / 255, s.labels) for s in (digits.train, digits.test))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(2), nn.Linear(64, 48), neuron(), nn.Linear(48, 10))
    options = {"timesteps": 4, "epochs": 20, "learning_rate": 1e-2, "target_rate": TARGET}
    result = ul.train(net, train, test, runs_dir=tmp_path, progress=False, **options)
    assert result.by_mode["hard"].spike_rates == (CLOSE,)
    assert result.accuracy["hard"] > 60


def test_a_penalty_lowers_the_rate_of_every_neuron(store: Store) -> None:
    configs = [config(name, sparsity=weight, epochs=5) for name in NEURON_NAMES for weight in (0.0, 1.0)]
    found = {(result.neuron, result.sparsity): result for result in train_stack(configs, store)}
    for name in NEURON_NAMES:
        free, held = (found[name, weight].by_mode["hard"].spike_rate for weight in (0.0, 1.0))
        assert held < 0.9 * free, name


def test_a_resumed_run_ends_with_the_same_bytes(store: Store, tmp_path: Path) -> None:
    wanted = config("UltraLIF", target_rate=TARGET, epochs=3)
    train_stack([wanted], store)
    other = Store(tmp_path / "other")
    with pytest.raises(Interrupted):
        train_stack([wanted], other, RunOptions(stopping=stop_after(17)))
    train_stack([wanted], other)
    assert files(other, wanted) == files(store, wanted)


def test_a_run_without_a_target_keeps_its_name() -> None:
    assert "target_rate" not in RunConfig().to_dict()
    steered = RunConfig(target_rate=0.1)
    assert steered.id != RunConfig().id and RunConfig.from_dict(steered.to_dict()) == steered


@pytest.mark.parametrize(
    "values", [{"target_rate": 0.0}, {"target_rate": 1.0}, {"target_rate": 0.1, "sparsity": 1.0}]
)
def test_a_target_that_cannot_be(values: dict[str, float]) -> None:
    with pytest.raises(InputError, match="target_rate"):
        RunConfig(**values)
