"""Outputs and gradients stay finite: |current| <= 1e4, eps in [0.1, 20], 1000 steps, any precision."""

import pytest
import torch
from torch import Tensor

import ultralif as ul
from ultralif.names import NEURON_NAMES

LARGEST, TIMESTEPS = 1e4, 1000
EPS = torch.tensor([[0.1], [0.7], [5.0], [20.0]])
"""A stack of temperatures: one run covers the range, ends included."""


def hostile_currents(timesteps: int) -> Tensor:
    """Return ``[T, B, 4, 6]``: one awkward sequence for each sample of the batch."""
    t = torch.arange(timesteps).reshape(-1, 1, 1)
    wave = torch.where(t % 2 == 0, 1.0, -1.0).expand(timesteps, 4, 6)
    noise = torch.randn(timesteps, 4, 6)
    patterns = [
        LARGEST * torch.ones_like(wave),
        -LARGEST * torch.ones_like(wave),
        LARGEST * wave,
        LARGEST * noise.clamp(-1, 1),
        noise,
        0.5 + 1e-3 * noise,
        torch.zeros_like(wave),
        (2 * t / timesteps - 1) * LARGEST * torch.ones_like(wave),
        torch.where(noise > 2, LARGEST, torch.where(noise < -2, -LARGEST, noise)),
        # Held where one step amplifies most, a gradient grows with every step unless it is bounded.
        *(torch.full_like(wave, held) for held in (0.504, 0.45, 0.06, -0.1, -0.13, -3.5, -25.0, -36.0)),
    ]
    return torch.stack(patterns, 1)


def build(name: str, mode: str) -> ul.Neuron:
    options = {"learn_threshold": True, "parameter_shape": (4, 1), "mode": mode}
    if "eps" in ul.NEURONS[name].__signature__.parameters:
        options["eps"] = EPS
    if name != "UltraDLIF":
        options["learn_leak"] = True
    return ul.NEURONS[name](**options)


CASES = [(name, mode) for name in NEURON_NAMES for mode in ul.NEURONS[name].modes]


@pytest.mark.parametrize(("name", "mode"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_everything_is_finite(name: str, mode: str, dtype: torch.dtype) -> None:
    neuron = build(name, mode).to(dtype)
    current = hostile_currents(TIMESTEPS).to(dtype).requires_grad_()
    spikes, state = neuron.run(current)
    assert spikes.dtype == dtype
    assert all(tensor.dtype == torch.float32 for tensor in state)
    assert torch.isfinite(spikes).all() and all(torch.isfinite(tensor).all() for tensor in state)
    (spikes * torch.randn_like(spikes)).sum().backward()
    assert current.grad.dtype == dtype and torch.isfinite(current.grad).all()
    for parameter, gradient in ((key, p.grad) for key, p in neuron.named_parameters()):
        assert torch.isfinite(gradient).all(), f"{parameter}: {gradient}"
