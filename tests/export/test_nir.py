"""NIR files that we write: other libraries read from them the same spikes."""

import h5py
import nir
import numpy as np
import pytest
import torch
from torch import Tensor

import ultralif as ul
from export.nir_networks import READERS, STEPS, convolutional, network, outputs, spikes
from ultralif.errors import InputError
from ultralif.export.harden import spike_trains
from ultralif.export.nir import to_nir
from ultralif.export.nir_read import from_nir

pytestmark = pytest.mark.usefixtures("quiet")

BASELINES = ("LIF", "PLIF", "FullPLIF", "DSpike", "SoftLIF")
EXACT = [*((neuron, "hard") for neuron in BASELINES), ("UltraLIF", "tropical"), ("UltraPLIF", "tropical")]


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("readout", ["linear", "spiking"])
@pytest.mark.parametrize(("neuron", "mode"), EXACT)
def test_other_libraries_see_the_same_spikes(tmp_path, reader, readout, neuron, mode):
    net, x = network(neuron, readout=readout), spikes()
    margin = 1e-6 if reader == "spikingjelly" and mode == "tropical" else 0.0
    assert to_nir(net, tmp_path / "model.nir", mode=mode, margin=margin).spikes < 0.01
    with torch.no_grad():
        found = READERS[reader](tmp_path / "model.nir", x)
    expected = outputs(net, x, mode)
    if readout == "spiking":
        assert torch.equal(found, expected)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize(
    ("reader", "pooling"), [("norse", "sum"), ("snntorch", "average"), ("spikingjelly", "average")]
)
@pytest.mark.parametrize(("neuron", "mode"), [(ul.LIF, "hard"), (ul.UltraLIF, "tropical")])
def test_other_libraries_see_the_spikes_of_convolutions(tmp_path, reader, pooling, neuron, mode):
    net = convolutional(neuron)
    x = (torch.rand(STEPS, 6, 2, 8, 8, generator=torch.Generator().manual_seed(4)) < 0.4).float()
    margin = 1e-6 if reader == "spikingjelly" and mode == "tropical" else 0.0
    to_nir(net, tmp_path / "model.nir", mode=mode, margin=margin, shape=(2, 8, 8), pooling=pooling)
    with ul.mode(net, mode):
        trains = spike_trains(net, x)
    assert all(0.02 < train.mean() < 0.98 for train in trains)
    assert torch.equal(READERS[reader](tmp_path / "model.nir", x), trains[-1])


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["average", "sum"])
def test_we_read_convolutions(tmp_path, pooling):
    net = convolutional()
    net[1] = ul.LIF(leak=torch.linspace(0.5, 0.9, 5).view(5, 1, 1))
    x = (torch.rand(STEPS, 6, 2, 8, 8, generator=torch.Generator().manual_seed(4)) < 0.4).float()
    to_nir(net, tmp_path / "model.nir", shape=(2, 8, 8), pooling=pooling)
    assert torch.equal(from_nir(tmp_path / "model.nir")(x), net(x))


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("reader", ["norse", "snntorch", "spikingjelly"])
def test_other_libraries_see_the_spikes_of_a_residual_network(tmp_path, reader):
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.stem, self.inner = torch.nn.Linear(12, 10), torch.nn.Linear(10, 10)
            self.first, self.second = ul.LIF(), ul.LIF()

        def forward(self, x: Tensor) -> Tensor:
            current = self.stem(x)
            return self.second(current + self.inner(self.first(current)))

    net, x = Net(), spikes(6)
    with torch.no_grad():
        net.stem.weight.mul_(3)
        net.inner.weight.mul_(3)
    to_nir(net, tmp_path / "model.nir")
    assert 0.02 < net(x).mean() < 0.98
    assert torch.equal(READERS[reader](tmp_path / "model.nir", x), net(x))


def test_nir_has_no_maxima(tmp_path):
    with pytest.raises(InputError, match=r"layer '0.module.2' takes maxima"):
        to_nir(convolutional(pool=torch.nn.MaxPool2d), tmp_path / "model.nir", shape=(2, 8, 8))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("neuron", "mode"), EXACT)
@pytest.mark.parametrize("readout", ["linear", "spiking"])
def test_we_read_what_we_write(tmp_path, neuron, mode, readout):
    net, x = network(neuron, 2, readout), spikes(3)
    to_nir(net, tmp_path / "model.nir", mode=mode)
    back = from_nir(tmp_path / "model.nir")
    assert back.sizes == net.sizes
    assert back.readout == readout
    torch.testing.assert_close(outputs(back, x, mode), outputs(net, x, mode), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reset", [-0.2, torch.linspace(-0.4, 0.1, 10)], ids=["one reset", "many"])
def test_constants_for_each_neuron_and_another_reset(tmp_path, reset):
    net = network("LIF", 4)
    net.neurons[0] = ul.LIF(
        leak=torch.linspace(0.3, 0.95, 10), threshold=torch.linspace(0.3, 1, 10), v_reset=reset
    )
    to_nir(net, tmp_path / "model.nir", dt=0.5)
    back, x = from_nir(tmp_path / "model.nir"), spikes(5)
    assert torch.equal(spike_trains(back, x)[0], spike_trains(net, x)[0])
    torch.testing.assert_close(torch.as_tensor(back.neurons[0].v_reset), torch.as_tensor(reset))


def test_a_file_is_plain_nir(tmp_path):
    """Only nodes, fields and shapes that every version of NIR has."""
    to_nir(network("LIF"), tmp_path / "model.nir")
    graph = nir.read(tmp_path / "model.nir")
    assert [type(node).__name__ for node in graph.nodes.values()].count("Affine") == 3
    assert graph.metadata["ultralif:dt"] == 1e-4
    for name, size in (("neurons1", 10), ("neurons2", 8)):
        node = graph.nodes[name]
        constants = (node.tau, node.r, node.v_leak, node.v_threshold, node.v_reset)
        assert {array.shape for array in constants} == {(size,)}
        assert bool((node.r == 1).all())
        np.testing.assert_allclose(node.tau, 1e-3, rtol=1e-6)  # leak 0.9 at dt 1e-4
    with h5py.File(tmp_path / "model.nir") as file:  # nir 1.0.4 refuses to read it
        assert "v_reset" not in file["node/nodes/neurons1"]


@pytest.mark.parametrize(
    ("neuron", "options", "mode", "message"),
    [
        ("AdaLIF", {}, "hard", r"threshold that adapts.*onnx.*LIF or FullPLIF"),
        ("UltraLIF", {}, "hard", r"log-sum-exp membrane.*mode='tropical', which is exact"),
        ("UltraDLIF", {}, "hard", r"maximum of its neighbours.*c or onnx.*approximation"),
        ("UltraDLIF", {}, "tropical", "maximum of its neighbours"),
        ("UltraLIF", {"delayed_reset": True}, "tropical", "delayed_reset"),
        ("UltraLIF", {"v_reset": 2.0}, "tropical", "reset above its threshold"),
        ("LIF", {}, "soft", "spikes are binary"),
    ],
)
def test_what_nir_cannot_say_is_refused(tmp_path, neuron, options, mode, message):
    with pytest.raises(InputError, match=message):
        to_nir(network(neuron, **options), tmp_path / "model.nir", mode=mode)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [{"dt": 0.0}, {"dt": float("nan")}, {"margin": -0.1}])
def test_time_constants_that_make_no_sense(tmp_path, arguments):
    with pytest.raises(InputError, match="dt must be positive"):
        to_nir(network("LIF"), tmp_path / "model.nir", **arguments)


@pytest.mark.parametrize(
    ("neuron", "mode", "options"),
    [
        ("UltraLIF", "hard", {"eps": 0.3}),
        ("UltraDLIF", "hard", {"eps": 0.3}),
        ("UltraDLIF", "hard", {"eps": 0.3, "centered": True}),
        ("UltraDPLIF", "hard", {"eps": 0.3}),
        ("UltraDLIF", "tropical", {}),
    ],
)
def test_an_approximation_is_exact_for_one_step_and_states_its_drift(tmp_path, neuron, mode, options):
    net, x = network(neuron, 6, **options), spikes(7)
    for steps in (1, STEPS):
        drift = to_nir(net, tmp_path / "model.nir", mode=mode, approximate=x[:steps])
        metadata = nir.read(tmp_path / "model.nir").metadata
        assert metadata["ultralif:drift_spikes"] == drift.spikes
        back = from_nir(tmp_path / "model.nir")
        with ul.mode(net, mode):
            expected = spike_trains(net, x[:steps])
        found = spike_trains(back, x[:steps])
        differing = torch.cat([(a != b).flatten() for a, b in zip(found, expected, strict=True)])
        assert differing.double().mean() == pytest.approx(drift.spikes, abs=2e-3)
        assert steps > 1 or drift == (0.0, 0.0)
    assert 0 < drift.spikes < 0.5


def test_the_drift_of_an_exact_file_is_zero(tmp_path):
    assert to_nir(network("PLIF"), tmp_path / "model.nir", approximate=spikes()) == (0.0, 0.0)
