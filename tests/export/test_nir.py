"""NIR files: other libraries read from them the same spikes, and we read theirs."""

import contextlib
import io
import logging

import h5py
import nir
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ultralif as ul
from ultralif.errors import InputError
from ultralif.export.harden import spike_trains
from ultralif.export.nir import to_nir
from ultralif.export.nir_read import from_nir

STEPS = 30
BASELINES = ("LIF", "PLIF", "FullPLIF", "DSpike", "SoftLIF")
EXACT = [*((neuron, "hard") for neuron in BASELINES), ("UltraLIF", "tropical"), ("UltraPLIF", "tropical")]


def network(neuron: str, seed: int = 0, readout="linear", **options) -> ul.Network:
    torch.manual_seed(seed)
    net = ul.Network((12, 10, 8, 4), neuron=neuron, neuron_options=options, readout=readout)
    with torch.no_grad():
        for linear in net.linears:
            linear.weight.mul_(3)
    return net


def spikes(seed: int = 1) -> Tensor:
    return (torch.rand(STEPS, 6, 12, generator=torch.Generator().manual_seed(seed)) < 0.4).float()


@torch.no_grad()
def outputs(net: ul.Network, x: Tensor, mode: str) -> Tensor:
    """Return what the last node puts out at every step: W s, or the last layer's spikes."""
    with ul.mode(net, mode):
        trains = spike_trains(net, x)
    assert all(0.02 < train.mean() < 0.98 for train in trains)
    return net.linears[-1](trains[-1]) if net.readout == "linear" else trains[-1]


def in_norse(path, x: Tensor) -> Tensor:
    import norse.torch

    module = norse.torch.from_nir(nir.read(path), dt=1e-4)
    state, out = None, []
    for step in x:
        y, state = module(step, state)
        out.append(y)
    return torch.stack(out)


def in_snntorch(path, x: Tensor) -> Tensor:
    from snntorch.import_nir import import_from_nir

    with contextlib.redirect_stdout(io.StringIO()):
        module = import_from_nir(nir.read(path))
    state, out = None, []
    for step in x:
        y, state = module(step, state)
        out.append(y)
    return torch.stack(out)


def in_spikingjelly(path, x: Tensor) -> Tensor:
    from spikingjelly.activation_based.nir_exchange import import_from_nir

    module = import_from_nir(nir.read(path), dt=1e-4)
    state, out = None, []
    for step in x:
        y, state = module(step, state)
        out.append(y)
    return torch.stack(out)


READERS = {"norse": in_norse, "snntorch": in_snntorch, "spikingjelly": in_spikingjelly}


@pytest.fixture(autouse=True)
def quiet():
    """The other libraries log what they do."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("readout", ["linear", "spiking"])
@pytest.mark.parametrize(("neuron", "mode"), EXACT)
def test_other_libraries_see_the_same_spikes(tmp_path, reader, readout, neuron, mode):
    net, x = network(neuron, readout=readout), spikes()
    margin = 1e-6 if reader == "spikingjelly" and mode == "tropical" else 0.0
    assert to_nir(net, tmp_path / "model.nir", mode=mode, margin=margin) is None
    with torch.no_grad():
        found = READERS[reader](tmp_path / "model.nir", x)
    expected = outputs(net, x, mode)
    if readout == "spiking":
        assert torch.equal(found, expected)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def convolutional(neuron=ul.LIF, pool=torch.nn.AvgPool2d) -> torch.nn.Module:
    """Convolution, batch norm and pooling before the neurons; pooling of spikes; all read out by spikes."""
    torch.manual_seed(3)
    nn = torch.nn
    norm = nn.BatchNorm2d(5)
    norm.running_mean.normal_(0, 0.1), norm.running_var.uniform_(0.1, 0.3)
    net = nn.Sequential(
        ul.TimeDistributed(nn.Sequential(nn.Conv2d(2, 5, 3, padding=1, bias=False), norm, pool(2))),
        neuron(),
        ul.TimeDistributed(pool(2)),
        ul.TimeDistributed(nn.Conv2d(5, 4, (2, 1), stride=(1, 2))),
        neuron(),
        nn.Flatten(2),
        nn.Linear(4, 6),
        neuron(),
    )
    with torch.no_grad():
        net[3].module.weight.mul_(4)
        net[6].weight.mul_(3)
    return net.eval()


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


def test_convolutions_that_make_no_sense(tmp_path):
    for change, message in {
        _replace("node/nodes/synapses1/weight", np.ones((5, 2, 3))): "weights of shape",
        _replace("node/nodes/synapses1/stride", np.array([0, 1])): "stride",
        _replace("node/nodes/synapses1/groups", 3): "3 groups",
        _replace("node/nodes/pool1/padding", np.array([1, 1])): "pools with padding",
        _replace("node/nodes/neurons1/tau", np.linspace(1e-3, 2e-3, 80).reshape(5, 4, 4)): "within a channel",
        _replace("node/nodes/pool1/type", "MaxPool2d"): "'MaxPool2d' where",
    }.items():
        path = tmp_path / "model.nir"
        to_nir(convolutional(), path, shape=(2, 8, 8))
        with h5py.File(path, "r+") as file:
            change(file)
        with pytest.raises(InputError, match=message):
            from_nir(path)


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


@pytest.mark.parametrize("pool", [torch.nn.MaxPool2d])
def test_nir_has_no_maxima(tmp_path, pool):
    with pytest.raises(InputError, match=r"layer '0.module.2' takes maxima"):
        to_nir(convolutional(pool=pool), tmp_path / "model.nir", shape=(2, 8, 8))
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
        ("UltraDPLIF", "hard", {"eps": 0.3, "leak_form": "shift"}),
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


@pytest.mark.filterwarnings("ignore")
def test_a_file_from_spikingjelly(tmp_path):
    from spikingjelly.activation_based import layer, neuron
    from spikingjelly.activation_based.nir_exchange import export_to_nir

    for decay_input in (True, False):
        torch.manual_seed(8)
        theirs = torch.nn.Sequential(
            layer.Linear(12, 10),
            neuron.LIFNode(tau=4.0, decay_input=decay_input, v_threshold=0.2),
            layer.Linear(10, 4),
        )
        export_to_nir(theirs, torch.zeros(1, 12), tmp_path / "model.nir")
        x = spikes(9)
        with torch.no_grad():
            expected = torch.stack([theirs(step) for step in x])
        torch.testing.assert_close(outputs(from_nir(tmp_path / "model.nir"), x, "hard"), expected)


@pytest.mark.filterwarnings("ignore")
def test_a_file_from_norse(tmp_path):
    import norse.torch as norse

    torch.manual_seed(10)
    cell = norse.LIFBoxCell(
        norse.LIFBoxParameters(
            tau_mem_inv=torch.full((10,), 200.0), v_th=torch.full((10,), 0.1), v_leak=torch.zeros(10)
        )
    )
    theirs = norse.SequentialState(torch.nn.Linear(12, 10), cell, torch.nn.Linear(10, 4))
    nir.write(
        tmp_path / "model.nir", norse.to_nir(theirs, torch.zeros(1, 12), dt=1.0)
    )  # it writes dt / tau_inv
    state, expected, x = None, [], spikes(11)
    with torch.no_grad():
        for step in x:
            y, state = theirs(step, state)
            expected.append(y)
    found = outputs(from_nir(tmp_path / "model.nir", dt=1e-3), x, "hard")
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.filterwarnings("ignore")
def test_a_file_from_snntorch(tmp_path):
    import snntorch
    from snntorch import utils
    from snntorch.export_nir import export_to_nir

    snntorch.SpikingNeuron.instances.clear()  # it keeps every neuron that ever was, and would reset them all
    torch.manual_seed(12)
    cell = snntorch.Leaky(
        beta=torch.full((10,), 0.8),
        threshold=torch.full((10,), 0.4),
        reset_mechanism="zero",
        reset_delay=False,
        init_hidden=True,
    )
    theirs = torch.nn.Sequential(torch.nn.Linear(12, 10), cell, torch.nn.Linear(10, 4))
    nir.write(tmp_path / "model.nir", export_to_nir(theirs, torch.zeros(1, 12), ignore_dims=[0]))
    utils.reset(theirs)
    x = spikes(13)
    with torch.no_grad():
        expected = torch.stack([theirs(step) for step in x])
    torch.testing.assert_close(outputs(from_nir(tmp_path / "model.nir"), x, "hard"), expected)


def lif(size: int, **changes) -> nir.LIF:
    constants = {"tau": 1e-3, "r": 1.0, "v_leak": 0.0, "v_threshold": 0.5, "v_reset": 0.0} | changes
    return nir.LIF(**{name: np.full(size, value) for name, value in constants.items()})


def affine(inputs: int, outputs: int) -> nir.Affine:
    return nir.Affine(np.ones((outputs, inputs)), np.zeros(outputs))


def test_one_spiking_layer_and_a_threshold(tmp_path):
    node = nir.Threshold(np.full(3, 1.5))
    nir.write(
        tmp_path / "model.nir",
        nir.NIRGraph.from_list(nir.Flatten({"input": [2, 2]}, 0, -1), affine(4, 3), node),
    )
    net = from_nir(tmp_path / "model.nir")
    x = torch.tensor([[0.0, 1, 0, 0], [1, 1, 0, 0]]).unsqueeze(1)
    assert torch.equal(net(x), torch.full((1, 3), 0.5))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([affine(4, 3), nir.IF(np.ones(3), np.ones(3))], "is 'IF' where LIF or Threshold"),
        ([affine(4, 3), affine(3, 3)], "is 'Affine' where LIF"),
        ([lif(4)], "is 'LIF' where Affine or Linear"),
        ([affine(4, 3)], "no spiking layer"),
        ([affine(1, 60_000), lif(60_000)], "only layer has 60000 neurons"),
        ([affine(4, 3), lif(3, tau=1e-5)], "below the time step dt=0.0001"),
        ([affine(4, 3), lif(3, tau=-1.0)], "not positive"),
        ([affine(4, 3), lif(3, v_threshold=0.0)], "threshold that is not positive"),
        ([affine(4, 3), lif(3, r=np.nan)], "r that is not finite"),
    ],
)
def test_graphs_that_are_no_lif_network(tmp_path, nodes, message):
    nir.write(tmp_path / "model.nir", nir.NIRGraph.from_list(*nodes))
    with pytest.raises(InputError, match=message):
        from_nir(tmp_path / "model.nir")


def chain(path, edges=None, change=None) -> None:
    """Write a small sound file by hand, and spoil it."""
    nir.write(path, nir.NIRGraph.from_list(affine(4, 3), lif(3), affine(3, 2)))
    with h5py.File(path, "r+") as file:
        if edges is not None:
            del file["node/edges"]
            file["node/edges"] = np.array(edges, dtype=h5py.string_dtype())
        if change is not None:
            change(file)


WHOLE = [("input", "affine"), ("affine", "lif"), ("lif", "affine_1"), ("affine_1", "output")]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (WHOLE[:-1], "no chain of nodes"),
        ([*WHOLE, ("lif", "lif")], "branch or join"),
        ([*WHOLE, ("input", "nowhere")], "no such node"),
        ([("input", "affine"), ("affine", "lif"), ("lif", "affine")], "branch or join"),
        ([("affine", "lif"), ("lif", "affine")], "no chain of nodes"),
        ([("input", "output")], "beside the chain"),
    ],
)
def test_edges_that_make_no_chain(tmp_path, edges, message):
    chain(tmp_path / "model.nir", edges)
    with pytest.raises(InputError, match=message):
        from_nir(tmp_path / "model.nir")


def _replace(name, value, **options):
    def change(file):
        del file[name]
        file.create_dataset(name, data=value, **options)

    return change


def _link(name, link):
    def change(file):
        del file[name]
        file[name] = link

    return change


def _huge(file):
    del file["node/nodes/affine/weight"]
    file["node/nodes/affine"].create_dataset(
        "weight", (10**6, 10**6), "f8", chunks=(1000, 1000), compression="gzip"
    )


def _many(file):
    for number in range(2000):
        file["node/nodes"].create_group(str(number))


def _self(file):
    file["node/nodes/again"] = file["node/nodes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_huge, "more than 512 MiB"),
        (_many, "more than 1000"),
        (_self, "no text 'type'"),
        (_link("node/nodes", h5py.ExternalLink("/etc/passwd", "/")), "link to elsewhere"),
        (_link("node/nodes/affine", h5py.SoftLink("/node/nodes/lif")), "link to elsewhere"),
        (_replace("node/nodes/affine/weight", np.ones((3, 4), dtype="V8")), "not numbers"),
        (_replace("node/nodes/affine/weight", h5py.Empty("f4")), "not an array"),
        (_replace("node/nodes/affine/weight", np.ones((3, 4), complex)), "not numbers"),
        (_replace("node/nodes/affine/weight", np.ones((2, 3, 4))), "weights of shape"),
        (_replace("node/nodes/affine/bias", np.ones(7)), "biases of"),
        (_replace("node/nodes/lif/tau", np.ones(5)), "different shapes"),
        (_replace("node/nodes/lif/type", "CubaLIF"), "is 'CubaLIF' where LIF"),
        (_replace("node/nodes/lif/type", "\x1b]0;x\x07"), r"is '\\x1b\]0;x\\x07' where"),
        (_replace("node/nodes/lif/type", 3), "no text 'type'"),
        (_replace("node/edges", 7), "no list 'edges'"),
        (lambda file: file.pop("node"), "no group 'node'"),
        (lambda file: file.pop("node/nodes/lif/tau"), "has no tau"),
        (lambda file: file["node/nodes"].pop("input"), "no such node"),
    ],
)
def test_hostile_files(tmp_path, change, message):
    chain(tmp_path / "model.nir", change=change)
    with pytest.raises(InputError, match=message):
        from_nir(tmp_path / "model.nir")


def test_a_dataset_that_points_to_another_file(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(96))

    def change(file):
        del file["node/nodes/affine/weight"]
        file["node/nodes/affine"].create_dataset("weight", (3, 4), "f8", external=[(str(secret), 0, 96)])

    chain(tmp_path / "model.nir", change=change)
    with pytest.raises(InputError, match="stored in another file"):
        from_nir(tmp_path / "model.nir")


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("nir") / "model.nir"
    chain(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
            content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    with contextlib.suppress(InputError):
        assert from_nir(path).sizes == (4, 3, 2)


@pytest.mark.parametrize("content", [b"", b"not HDF5", bytes(4096)])
def test_files_of_another_kind(tmp_path, content):
    (tmp_path / "model.nir").write_bytes(content)
    with pytest.raises(InputError, match="not a sound HDF5 file"):
        from_nir(tmp_path / "model.nir")


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match="is not a file"):
        from_nir(tmp_path / "model.nir")


def test_a_time_step_that_is_no_time_step(tmp_path):
    chain(tmp_path / "model.nir")
    with pytest.raises(InputError, match="not positive"):
        from_nir(tmp_path / "model.nir", dt=-1.0)
