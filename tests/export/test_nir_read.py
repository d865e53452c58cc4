"""NIR files that we read: those of other libraries, and damaged or hostile ones."""

import contextlib

import h5py
import nir
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from export.nir_networks import convolutional, outputs, spikes
from ultralif.errors import InputError
from ultralif.export.nir import to_nir
from ultralif.export.nir_read import from_nir

pytestmark = pytest.mark.usefixtures("quiet")


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
    assert torch.equal(net(x), torch.tensor([0.0, 1.0]).view(2, 1, 1).expand(2, 1, 3))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([affine(4, 3), affine(3, 3)], "is 'Affine' where LIF"),
        ([affine(4, 3)], "no spiking layer"),
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
        ([*WHOLE, ("input", "nowhere")], "no such node"),
        ([("input", "affine"), ("affine", "lif"), ("lif", "affine")], "no path leads"),
        ([("affine", "lif"), ("lif", "affine")], "no chain of nodes"),
        ([("input", "output")], "outside the chain"),
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
        (
            _replace("node/nodes/lif/type", "CubaLIF"),
            "has no 'tau_mem'|has no 'v_threshold'|has no 'tau_syn'",
        ),
        (
            _replace("node/nodes/lif/type", "\x1b]0;x\x07"),
            r"'lif' .'\\x1b\]0;x\\x07'. has an unsupported type",
        ),
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
    with pytest.raises(InputError, match="not a valid HDF5 file"):
        from_nir(tmp_path / "model.nir")


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match="is not a file"):
        from_nir(tmp_path / "model.nir")


def test_a_time_step_that_is_no_time_step(tmp_path):
    chain(tmp_path / "model.nir")
    with pytest.raises(InputError, match="not positive"):
        from_nir(tmp_path / "model.nir", dt=-1.0)


def test_convolutions_that_make_no_sense(tmp_path):
    for change, message in {
        _replace("node/nodes/synapses1/weight", np.ones((5, 2, 3))): "weights of shape",
        _replace("node/nodes/synapses1/stride", np.array([0, 1])): "stride",
        _replace("node/nodes/synapses1/groups", 3): "3 groups",
        _replace("node/nodes/pool1/padding", np.array([-1, -1])): "padding",
        _replace("node/nodes/neurons1/tau", np.linspace(1e-3, 2e-3, 80).reshape(5, 4, 4)): "within a channel",
        _replace("node/nodes/pool1/type", "MaxPool2d"): "'pool1' .'MaxPool2d'. has an unsupported type",
    }.items():
        path = tmp_path / "model.nir"
        to_nir(convolutional(), path, shape=(2, 8, 8))
        with h5py.File(path, "r+") as file:
            change(file)
        with pytest.raises(InputError, match=message):
            from_nir(path)
