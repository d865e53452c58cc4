"""A neuron of one's own: one step, and the rest follows."""

from typing import Any

import pytest
import torch
from torch import Tensor

import ultralif as ul
from ultralif.functional import ultralif_step
from ultralif.stack import Stack


class Copy(ul.Stepped[ul.nn.State]):
    """UltraLIF once more, by its step alone."""

    @staticmethod
    def formula(current: Tensor, v: Tensor, **constants: Any) -> tuple[Tensor, Tensor]:
        return ultralif_step(current, v, **constants)

    choices = ("v_reset", "mode")
    modes = ("soft", "hard", "tropical")
    learns = frozenset({"eps"})
    state_type = ul.nn.State

    def __init__(self, *, eps: float = 0.2, leak: float = 0.9, **options: Any) -> None:
        super().__init__(**options)
        self.learnable("eps", eps, ul.nn.LOG, bounds=(0.1, 20.0))
        self.learnable("leak", leak, ul.nn.LOGIT, upper=1.0)


def test_it_computes_what_its_step_says() -> None:
    current = torch.randn(7, 3, 5)
    for mode in Copy.modes:
        ours, theirs = Copy(eps=0.3), ul.UltraLIF(eps=0.3, backend="reference")
        ours.mode = theirs.mode = mode
        torch.testing.assert_close(ours(current), theirs(current))
        torch.testing.assert_close(ours.rate(current), theirs.rate(current))
        torch.testing.assert_close(ours.step(current[0])[1].v, theirs.step(current[0])[1].v)


def test_it_is_trained_like_the_neuron_that_it_copies(tmp_path) -> None:
    ul.register(Copy)
    config = ul.RunConfig(neuron="copy", epochs=2, timesteps=3, learning_rate=1e-2)
    ours = ul.train(config, runs_dir=tmp_path)
    theirs = ul.train(config.with_(neuron="UltraLIF"), runs_dir=tmp_path)
    assert ours.neuron == "Copy" and ours.eps == pytest.approx(theirs.eps, rel=1e-3)
    assert isinstance(ul.load(ours.path).neurons[0], Copy)


def test_it_is_stacked_with_others() -> None:
    stack = Stack([ul.Network((4, 8, 2), Copy), ul.Network((4, 8, 2), "LIF")])
    assert stack(torch.rand(3, 5, 4)).logits.shape == (2, 5, 2)


def test_the_least_that_a_neuron_needs_is_its_step() -> None:
    class Least(ul.Stepped[ul.nn.State]):
        @staticmethod
        def formula(current: Tensor, v: Tensor, *, threshold: float) -> tuple[Tensor, Tensor]:
            v = 0.9 * v + current
            spike = (v > threshold).to(v.dtype)
            return spike, v * (1 - spike)

    neuron, state, current = Least(), None, torch.rand(7, 2, 3)
    spikes = []
    for now in current:
        spike, state = neuron.step(now, state)
        spikes.append(spike)
    assert torch.equal(torch.stack(spikes), neuron(current)) and bool(neuron(current).any())
    assert torch.equal(neuron(current), ul.LIF(backend="reference")(current))
