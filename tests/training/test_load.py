"""Trained networks come back, wherever they are."""

from pathlib import Path

import pytest
import torch

import ultralif as ul
from training.small import small, stop_after
from ultralif.errors import InputError, JobError
from ultralif.export import to_nir
from ultralif.training import Interrupted, RunOptions, Store, train_stack
from ultralif.training.zoo import cards


def parameters(network: ul.Network) -> dict[str, torch.Tensor]:
    return dict(network.state_dict())


def test_a_run_by_folder_and_by_name(store: Store) -> None:
    config = small(neuron="UltraDPLIF", hidden=(6, 5), mode="tropical")
    train_stack([config], store)
    written = store.read(config.id).contents.tensors()
    for source in (store.path(config.id), str(store.path(config.id))):
        network = ul.load(source)
        assert all(torch.equal(value, written[name]) for name, value in parameters(network).items())
        assert {neuron.mode for _, neuron in network.layers()} == {"tropical"}
    by_name = ul.load(config.id[:7], store.root)
    assert parameters(by_name).keys() == written.keys()


def test_a_run_that_ended_with_binary_spikes_has_them(store: Store) -> None:
    (result,) = train_stack([small(epochs=2, hard_epochs=1)], store)
    assert {neuron.mode for _, neuron in ul.load(result.path).layers()} == {result.mode} == {"hard"}


def test_a_nir_file(tmp_path: Path) -> None:
    network = ul.Network((4, 3, 2), neuron="LIF")
    to_nir(network, tmp_path / "net.nir", mode="hard")
    x = (torch.rand(6, 5, 4) < 0.5).float()
    torch.testing.assert_close(ul.load(tmp_path / "net.nir")(x), network(x))


def test_networks_that_come_with_the_library() -> None:
    for name, card in cards().items():
        network = ul.load(name)
        if card["config"]["model"] != "mlp":
            assert isinstance(network, ul.models.VGG)
        else:
            assert network.sizes[1:-1] == tuple(card["config"]["hidden"])


def test_what_is_no_network(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run"):
        ul.load("nothing", store.root)
    with pytest.raises(InputError, match="is not the folder of a run"):
        ul.load(tmp_path)
    (tmp_path / "file.nir").write_bytes(b"no network")
    with pytest.raises(InputError, match="as a NIR file"):
        ul.load(tmp_path / "file.nir")
    with pytest.raises(Interrupted):
        train_stack([small()], store, RunOptions(stopping=stop_after(1)))
    (checkpoint,) = (store.root / ".training").glob("*/[0-9]*")
    with pytest.raises(InputError, match="is not the folder of a run"):
        ul.load(checkpoint)


def test_a_damaged_run(store: Store) -> None:
    train_stack([small()], store)
    (store.path(small().id) / "model.safetensors").write_bytes(b"")
    with pytest.raises(JobError, match="SHA-256 differs"):
        ul.load(store.path(small().id))
