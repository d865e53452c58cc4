"""A member of a stack ends with the numbers of that run alone."""

import pytest
import torch

from training.small import known, mixed, small
from ultralif import RunConfig
from ultralif.errors import InputError
from ultralif.stack import Stack
from ultralif.training import Store, train_stack
from ultralif.training.networks import build_network

TOLERANCE = 1e-9
"""Relative and absolute, in float64: sums of a stack run in another order."""


def trained(store: Store, config: RunConfig) -> dict[str, torch.Tensor]:
    return store.read(config.id).contents.tensors()


def check_alone(together: Store, alone: Store, configs: list[RunConfig]) -> None:
    for config in configs:
        train_stack([config], alone)
        ours, theirs = together.read(config.id), alone.read(config.id)
        expected = theirs.contents.tensors()
        for name, value in ours.contents.tensors().items():
            torch.testing.assert_close(
                value,
                expected[name],
                rtol=TOLERANCE,
                atol=TOLERANCE,
                msg=lambda text, c=config: f"{c}: {text}",
            )
        assert ours.result.accuracy == theirs.result.accuracy
        assert ours.result.spike_rate == pytest.approx(theirs.result.spike_rate, TOLERANCE)
        for one, other in zip(ours.history, theirs.history, strict=True):
            assert known(one) == pytest.approx(known(other), rel=TOLERANCE, abs=TOLERANCE)


def test_every_kind_of_member_equals_its_run_alone(store: Store, tmp_path) -> None:
    configs = mixed()
    results = train_stack(configs, store)
    assert sorted(result.id for result in results) == sorted(config.id for config in configs)
    check_alone(store, Store(tmp_path / "alone"), configs)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden": (6, 5), "readout": "spiking"},
        {"hard_epochs": 1, "validation": 0.2},
        {"encoding": "constant", "schedule": "constant"},
    ],
)
def test_members_of_other_stacks_too(changes: dict, store: Store, tmp_path) -> None:
    configs = [small(**changes, neuron=name) for name in ("UltraDLIF", "AdaLIF", "UltraPLIF")]
    train_stack(configs, store)
    check_alone(store, Store(tmp_path / "alone"), configs)


def test_seeds_share_a_stack(store: Store, tmp_path) -> None:
    configs = [small(neuron=name, seed=seed) for name in ("UltraDLIF", "AdaLIF", "LIF") for seed in (5, 3)]
    train_stack(configs, store)
    check_alone(store, Store(tmp_path / "alone"), configs)
    energies = [store.read(config.id).result.to_dict()["energy"] for config in configs[:2]]
    assert energies[0] != energies[1]  # each seed is evaluated on its own spikes


def test_neurons_with_constants_of_their_own(store: Store, tmp_path) -> None:
    configs = [
        small(neuron=name, per_neuron=True, learn_leak=True) for name in ("UltraLIF", "UltraPLIF", "LIF")
    ]
    train_stack(configs, store)
    check_alone(store, Store(tmp_path / "alone"), configs)


def test_training_changes_every_member(store: Store) -> None:
    """The comparisons above would also hold for a trainer that does nothing."""
    configs = mixed()
    train_stack(configs, store)
    for config in configs:
        before = build_network(config).double().state_dict()
        after = trained(store, config)
        assert not torch.equal(before["linears.0.weight"], after["linears.0.weight"]), config


def test_the_order_in_which_members_are_given_does_not_matter(store: Store, tmp_path) -> None:
    configs = mixed(epochs=1)
    train_stack(configs, store)
    again = Store(tmp_path / "again")
    train_stack(configs[::-1], again)
    for config in configs:
        ours, theirs = trained(store, config), trained(again, config)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_members_must_belong_together(store: Store) -> None:
    with pytest.raises(InputError, match="agree on dataset, time steps, schedule"):
        train_stack([small(), small(epochs=7)], store)
    with pytest.raises(InputError, match="same number of runs"):
        train_stack([small(), small(seed=1), small(neuron="LIF")], store)
    with pytest.raises(InputError, match="at least one run"):
        train_stack([], store)
    assert not store.root.exists()


def test_a_stack_starts_as_its_members_do(float64: None) -> None:
    """Before any training the stack says what each network says."""
    networks = [build_network(config).double() for config in mixed()]
    stack = Stack(networks)
    x = (torch.rand(4, 3, 64) < 0.3).double()
    with torch.no_grad():
        said = stack(x).logits
        for place, index in enumerate(stack.order):
            torch.testing.assert_close(said[place], networks[index](x), rtol=1e-12, atol=1e-12)
