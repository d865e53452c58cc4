"""NIR files that others wrote: every well-formed one is read, and spikes like norse."""

import warnings
from itertools import pairwise
from pathlib import Path

import nir
import numpy as np
import pytest
import torch

import ultralif as ul
from ultralif.errors import InputError
from ultralif.export import from_nir

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "nir"
FILES = sorted(FOLDER.glob("*.nir")) if FOLDER.is_dir() else []
MALFORMED = "_subgraph"  # their edges name a node that is not there

pytestmark = pytest.mark.usefixtures("quiet")


def shape_of(path: Path) -> tuple[int, ...]:
    return (2, 34, 34) if "cnn" in path.stem else (1,) if "lif" in path.stem else (12,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_the_nir_paper(path: Path) -> None:
    norse = pytest.importorskip("norse.torch")
    if MALFORMED in path.stem:
        with pytest.raises(InputError, match=r"edges name 'lif1\.lif', but there is no such node"):
            from_nir(path)
        return
    net, fast = (from_nir(path, reset="zero", dt=1e-4, exact=exact) for exact in (True, False))
    torch.manual_seed(0)
    x = (torch.rand(60, 1, *shape_of(path)) < 0.3).float() * 3
    with torch.no_grad():
        found = net(x)
        assert float((fast(x).reshape(found.shape) != found).float().mean()) < 1e-3
    try:
        theirs = norse.from_nir(nir.read(path), dt=1e-4)
    except Exception:
        pytest.skip("norse does not read this file")
    state, expected = None, []
    with torch.no_grad():
        for step in x:
            out, state = theirs(step, state)
            expected.append(out)
    assert torch.equal(found, torch.stack(expected).reshape(found.shape))


def written(path: Path, nodes: dict, edges: list) -> Path:
    nir.write(path, nir.NIRGraph(nodes=nodes, edges=edges))
    return path


def test_other_nodes(tmp_path: Path) -> None:
    ones = np.ones(3, dtype=np.float32)
    nodes = {
        "input": nir.Input({"input": np.array([3])}),
        "scale": nir.Scale(ones * 2),
        "delay": nir.Delay(np.array([0.0, 1e-4, 2e-4])),
        "if": nir.IF(r=ones, v_threshold=ones * 1.5),
        "output": nir.Output({"output": np.array([3])}),
    }
    chain = [("input", "scale"), ("scale", "delay"), ("delay", "if"), ("if", "output")]
    net = from_nir(written(tmp_path / "a.nir", nodes, chain))
    assert net(torch.ones(4, 1, 3))[:, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    net = from_nir(written(tmp_path / "b.nir", nodes, [*chain, ("scale", "if")]))  # two inputs are added
    assert net(torch.ones(1, 1, 3) / 2).flatten().tolist() == [1, 0, 0]
    nodes["li"] = nir.LI(tau=ones * 2e-4, r=ones, v_leak=ones * 0)
    net = from_nir(written(tmp_path / "c.nir", nodes, [*chain[:-1], ("if", "li"), ("li", "output")]))
    torch.testing.assert_close(net(torch.ones(2, 1, 3))[:, 0, 0], torch.tensor([0.5, 0.75]))


@pytest.mark.parametrize("padding", ["same", 1])
def test_padded_and_grouped_convolutions(tmp_path: Path, padding) -> None:
    weight = torch.randn(4, 1, 3, 3)
    nodes = {
        "input": nir.Input({"input": np.array([2, 6, 6])}),
        "conv": nir.Conv2d((6, 6), weight.numpy(), 1, padding, 1, 2, np.zeros(4, dtype=np.float32)),
        "if": nir.IF(r=np.ones((4, 6, 6)), v_threshold=np.ones((4, 6, 6)) * 0.5),
        "pool": nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([1, 1])),
        "output": nir.Output({"output": np.array([4, 4, 4])}),
    }
    names = list(nodes)
    path = tmp_path / "a.nir"
    nir.write(path, nir.NIRGraph(nodes, list(pairwise(names)), type_check=False))
    x = torch.rand(1, 2, 2, 6, 6)
    spikes = (torch.conv2d(x[0], weight, padding=1, groups=2) > 0.5).float()
    expected = torch.nn.functional.avg_pool2d(spikes, 2, 2, 1, divisor_override=1)
    assert torch.equal(from_nir(path)(x)[0], expected)


def test_the_reset_of_snntorch_is_asked_for(tmp_path: Path) -> None:
    ones = np.ones(1)
    nodes = {
        "input": nir.Input({"input": np.array([1])}),
        "fc": nir.Linear(np.ones((1, 1))),
        "lif": nir.LIF(tau=ones * 1e-3, r=ones * 10, v_leak=ones * 0, v_threshold=ones),
        "output": nir.Output({"output": np.array([1])}),
    }
    path = written(tmp_path / "a.nir", nodes, [("input", "fc"), ("fc", "lif"), ("lif", "output")])
    with pytest.warns(UserWarning, match="reset='subtract' or 'zero'"):
        from_nir(path)
    x = torch.full((3, 1, 1), 2.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_nir(path, reset="zero")(x * 0.3).sum() == 1
        subtracted = from_nir(path, reset="subtract")(torch.tensor([2.5, 0.0, 0.0]).view(3, 1, 1))
    assert subtracted.flatten().tolist() == [1, 1, 0]


def test_errors_name_the_node_and_say_recurrent(tmp_path: Path) -> None:
    ones = np.ones(2, dtype=np.float32)
    nodes = {
        "input": nir.Input({"input": np.array([2])}),
        "neurons": nir.CubaLI(tau_mem=ones, tau_syn=ones, r=ones, v_leak=ones),
        "back": nir.Linear(np.eye(2)),
        "output": nir.Output({"output": np.array([2])}),
    }
    edges = [("input", "neurons"), ("neurons", "back"), ("back", "neurons"), ("neurons", "output")]
    with pytest.raises(InputError, match=r"'neurons' \('CubaLI'\), in a recurrent part"):
        from_nir(written(tmp_path / "a.nir", nodes, edges))


@pytest.mark.parametrize("exact", [True, False])
def test_hooks_fire_in_a_recurrent_graph(tmp_path: Path, exact: bool) -> None:
    ones = np.ones(2, dtype=np.float32)
    nodes = {
        "input": nir.Input({"input": np.array([2])}),
        "fc": nir.Linear(np.eye(2)),
        "lif": nir.LIF(tau=ones * 1e-3, r=ones * 10, v_leak=ones * 0, v_threshold=ones),
        "back": nir.Linear(-np.eye(2)),
        "output": nir.Output({"output": np.array([2])}),
    }
    edges = [("input", "fc"), ("fc", "lif"), ("lif", "back"), ("back", "lif"), ("lif", "output")]
    net, seen = from_nir(written(tmp_path / "a.nir", nodes, edges), reset="zero", exact=exact), []
    (neuron,) = (module for module in net.modules() if isinstance(module, ul.Neuron))
    x = torch.full((9, 1, 2), 2.0)
    expected = net(x)
    neuron.register_forward_hook(lambda module, given, out: seen.append((given[0], out)))
    assert torch.equal(net(x), expected) and 0 < expected.mean() < 1
    ((current, spikes),) = seen
    assert torch.equal(spikes, expected) and current.shape == x.shape
    net(x)
    assert len(seen) == 2


def test_grouped_convolutions_are_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(4, 4, 3, groups=2)
    net = torch.nn.Sequential(ul.TimeDistributed(conv), ul.LIF(threshold=0.2))
    ul.export.to_nir(net, tmp_path / "a.nir", shape=(4, 8, 8))
    x = torch.rand(5, 2, 4, 8, 8)
    assert torch.equal(from_nir(tmp_path / "a.nir")(x), net(x))


def test_a_module_with_several_outputs_over_time() -> None:
    maxima, places = ul.TimeDistributed(torch.nn.MaxPool2d(2, return_indices=True))(torch.rand(3, 2, 1, 4, 4))
    assert maxima.shape == places.shape == (3, 2, 1, 2, 2)
