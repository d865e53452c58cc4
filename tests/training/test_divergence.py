"""A member whose loss turns NaN is named and kept as it was before; the others do not notice."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from training.small import checkpoints, notes, small, stop_after
from ultralif.stack import Stack
from ultralif.training import Interrupted, RunOptions, Store, loop, train_stack
from ultralif.training.checkpoint import read_folder
from ultralif.training.losses import Losses
from ultralif.training.members import Single
from ultralif.training.networks import build_network

LONG = {"timesteps": 8, "epochs": 4}
BAD = small(neuron="AdaLIF", adapt_strength=1e308, **LONG)
"""The threshold rises beyond all numbers, and its gradient with it, in the first epoch."""
LATER = small(neuron="UltraPLIF", **LONG)
"""Good by itself; see `spoiled`."""
GOOD = [small(neuron=name, **LONG) for name in ("UltraDLIF", "AdaLIF", "LIF")]


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loss of UltraPLIF, the first time that it is asked for in the third epoch, be NaN."""
    losses, steps = loop.member_losses, 0

    def member_losses(stack: Stack | Single, *rest: Any) -> Losses:
        nonlocal steps
        steps += 1
        found = losses(stack, *rest)
        networks = stack.members if isinstance(stack, Stack) else [stack.net]
        kinds = [type(network.neurons[0]).__name__ for network in networks]
        if steps == 7 and "UltraPLIF" in kinds:
            factor = torch.ones_like(found.loss)
            factor[kinds.index("UltraPLIF")] = math.nan
            found = found._replace(loss=found.loss * factor)
        return found

    monkeypatch.setattr(loop, "member_losses", member_losses)


def test_the_rest_of_the_stack_goes_on(store: Store, tmp_path: Path, spoiled: None) -> None:
    said: list[str] = []
    trained = train_stack([BAD, LATER, *GOOD], store, RunOptions(report=notes(said)))
    results = {result.id: result for result in trained}
    assert len(said) == 2 and all("diverged in epoch" in note for note in said)
    assert f"AdaLIF ({BAD.id}) diverged in epoch 1;" in said[0]
    assert f"UltraPLIF ({LATER.id}) diverged in epoch 3;" in said[1]
    assert {run: result.status for run, result in results.items()} == {
        BAD.id: "diverged",
        LATER.id: "diverged",
        **{config.id: "done" for config in GOOD},
    }
    alone = Store(tmp_path / "alone")
    for config in GOOD:
        train_stack([config], alone)
        ours, theirs = (place.read(config.id).contents.tensors() for place in (store, alone))
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name], rtol=1e-9, atol=1e-9)


def test_what_is_kept_when_the_first_epoch_diverges(store: Store) -> None:
    (result,) = train_stack([BAD], store)
    assert result.epochs == 0 and math.isfinite(result.accuracy["hard"])
    kept, first = store.read(BAD.id).contents.tensors(), build_network(BAD).double().state_dict()
    assert all(torch.equal(kept[name], first[name]) for name in first)


def test_what_is_kept_when_a_later_epoch_diverges(store: Store, tmp_path: Path, spoiled: None) -> None:
    """The parameters after the last good epoch, bit for bit; the history ends with the bad one."""
    (result,) = train_stack([LATER], store)
    assert result.status == "diverged" and result.epochs == 2
    run = store.read(LATER.id)
    assert len(run.history) == 3 and run.history[-1]["loss"] is None
    assert all(math.isfinite(epoch["loss"]) for epoch in run.history[:-1])
    stopped = Store(tmp_path / "stopped")
    with pytest.raises(Interrupted):
        train_stack([LATER], stopped, RunOptions(stopping=stop_after(6)))
    after = read_folder(checkpoints(stopped)[-1]).tensors()
    kept = run.contents.tensors()
    assert torch.equal(kept["linears.0.weight"], after["stack.net.linears.0.weight"])
    assert torch.equal(kept["linears.1.bias"], after["stack.net.linears.1.bias"])
    assert run.result.eps == pytest.approx(run.history[1]["eps"])
    assert run.result.leak == pytest.approx(run.history[1]["leak"])


def test_a_diverged_member_survives_a_stop(store: Store, tmp_path: Path) -> None:
    configs = [BAD, *GOOD]
    whole = Store(tmp_path / "whole")
    train_stack(configs, whole)
    with pytest.raises(Interrupted):
        train_stack(configs, store, RunOptions(stopping=stop_after(7)))
    train_stack(configs, store)
    for config in configs:
        ours, theirs = (place.read(config.id) for place in (store, whole))
        assert ours.history == theirs.history and ours.result.status == theirs.result.status
        expected = theirs.contents.tensors()
        assert all(torch.equal(value, expected[name]) for name, value in ours.contents.tensors().items())


def test_when_all_diverge_training_ends(store: Store) -> None:
    steps = []
    train_stack([BAD], store, RunOptions(stopping=lambda: steps.append(1) or 0))
    assert len(steps) == 3
