"""What a network costs, against examples counted by hand."""

import pytest

from ultralif.training.result import (
    Operations,
    ann_energy,
    ann_int8_energy,
    break_even,
    count_operations,
    relative_sops,
    snn_energy,
    snn_int8_energy,
)


def test_the_papers_measures() -> None:
    """MNIST: 784-64-10 has 50,816 synapses; at T = 10 and a rate of 0.2 two spikes reach each."""
    synapses = 784 * 64 + 64 * 10
    assert synapses == 50_816
    assert relative_sops(10, 0.2) == 2.0
    assert snn_energy(10, 0.2, synapses) == pytest.approx(91_468.8)
    assert ann_energy(synapses) == pytest.approx(233_753.6)


@pytest.mark.parametrize(
    ("input_binary", "binary", "macs", "acs"),
    [
        (True, True, 0, 2 * 3 + 1 * 2),
        (True, False, 5 * 3 * 2, 2 * 3),
        (False, True, 2 * 3, 1 * 2),
        (False, False, 2 * 3 + 5 * 3 * 2, 0),
    ],
)
def test_two_input_spikes_and_one_hidden_spike(
    input_binary: bool, binary: bool, macs: float, acs: float
) -> None:
    """4 inputs, 3 hidden neurons, 2 classes, T = 5: each spike reaches all synapses behind it."""
    found = count_operations((4, 3, 2), 5, 2 / 20, [1 / 15], input_binary=input_binary, binary=binary)
    assert (found.macs, found.acs) == (pytest.approx(macs), pytest.approx(acs))
    assert found.energy == pytest.approx(4.6 * macs + 0.9 * acs)


def test_every_hidden_layer_counts() -> None:
    found = count_operations((4, 3, 2, 5), 1, 1.0, [1 / 3, 1 / 2], input_binary=True, binary=True)
    assert found.acs == pytest.approx(4 * 3 + 1 * 2 + 1 * 5)


def test_silence_costs_nothing() -> None:
    silent = count_operations((4, 3, 2), 100, 0.0, [0.0], input_binary=True, binary=True)
    assert silent.energy == 0


def test_energy_in_int8_with_memory() -> None:
    """784-64-10 at T = 5, added up by hand in picojoules.

    An addition: 1.25 to read a weight, 5 for the membrane, 0.1 to add. A multiplication is 0.2 more.
    A neuron in a step: 5 for the membrane, 3.1 for the leak, 0.2 for two additions.
    A dense synapse: 2.5 to read, 0.2 to multiply, 0.1 to add; its neuron: 3.1 to scale, 1.25 to write.
    """
    assert snn_int8_energy(Operations(30, 1000), 5, 64) == pytest.approx(1030 * 6.35 + 30 * 0.2 + 320 * 8.3)
    assert ann_int8_energy(50_816, 64) == pytest.approx(142_284.8 + 278.4)
    assert break_even(5, 50_816, 64) == pytest.approx((142_563.2 - 2_656) / (254_080 * 6.35))


@pytest.mark.parametrize("timesteps", [1, 5])
def test_at_the_break_even_rate_both_networks_cost_the_same(timesteps: int) -> None:
    rate = break_even(timesteps, 50_816, 64)
    spikes = Operations(0, timesteps * rate * 50_816)
    assert snn_int8_energy(spikes, timesteps, 64) == pytest.approx(ann_int8_energy(50_816, 64))


def test_no_rate_is_low_enough_if_the_updates_alone_cost_more() -> None:
    assert break_even(100, 640, 64) == 0
