"""A config's fields reach what they are about."""

import pytest
import torch

from training.small import small
from ultralif.data.loader import CROP_AND_FLIP, Augmentation
from ultralif.nn import Network
from ultralif.stack import Stack
from ultralif.training.batches import load_data, make_loader
from ultralif.training.loop import Job
from ultralif.training.networks import build_network
from ultralif.training.schedule import temperature

CPU = torch.device("cpu")


def test_the_bounds_of_the_temperature() -> None:
    neuron = build_network(small(eps=0.4, eps_min=0.3, eps_max=0.5)).neurons[0]
    assert neuron.learned("eps")[1] == (0.3, 0.5)


def test_the_speed_of_the_temperature_is_not_that_of_the_leak() -> None:
    """One step at speeds 2 and 20: the same leak, and ten times as far a temperature."""
    moved = {}
    for speed in (2.0, 20.0):
        config = small(neuron="UltraPLIF", eps_speed=speed, optimizer="sgd", eps=0.7, leak=0.6)
        job = Job.begin([config], [build_network(config).double()], load_data(config, CPU), CPU)
        job.optimizer.set_rate(0.01)
        x = torch.rand(3, 5, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        torch.autograd.backward([job.members(x).logits.square().sum()])
        job.optimizer.step()
        (network,) = job.members.unstack()
        moved[speed] = (network.neurons[0].log_eps.item(), network.neurons[0].logit_leak.item())
    start = torch.tensor(0.7).log().item()
    assert moved[2.0][1] == moved[20.0][1]
    assert moved[20.0][0] - start == pytest.approx(10 * (moved[2.0][0] - start), rel=1e-6)


def test_the_penalty_is_the_mean_over_neurons_and_not_over_layers() -> None:
    stack = Stack([Network((3, 6, 2, 4), "LIF")])
    rates = [torch.ones(5, 1, 6), torch.zeros(5, 1, 2)]
    assert stack.hidden_rate(rates).tolist() == [0.75]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gain": 0.9, "seed": 5, "augment": True}, CROP_AND_FLIP),
        ({"flip": True, "cutout": 2}, Augmentation(flip=True, cutout=2)),
        ({"encoding": "constant"}, Augmentation()),
    ],
    ids=["the paper's", "own", "none"],
)
def test_the_loader_has_the_fields_of_the_config(changes: dict, expected: Augmentation) -> None:
    config = small(**changes)
    data = load_data(config, CPU)
    loader = make_loader(config, data, data.train, training=True)
    assert loader.augment == expected
    assert (loader.gain, loader.seed, loader.encoding) == (config.gain, config.seed, config.encoding)
    assert (loader.batch_size, loader.timesteps, loader.shuffle) == (512, 2, True)
    quiet = make_loader(config, data, data.dataset.test, training=False)
    assert quiet.augment == Augmentation() and not quiet.shuffle


def test_annealing_ends_where_it_says() -> None:
    config = small(epochs=5, anneal=(2.0, 0.5))
    assert [temperature(config, epoch) for epoch in range(5)] == pytest.approx([2, 2**0.5, 1, 0.5**0.5, 0.5])
