"""ONNX and torch.export: the same numbers elsewhere, streaming and in one go."""

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from export.networks import SHAPE, events, made
from ultralif.errors import JobError
from ultralif.export.onnx import Stepwise, to_onnx, to_torch

STEPS = 4

pytestmark = pytest.mark.slow


def network(neuron: str, sizes=(12, 10, 8, 4)) -> ul.Network:
    torch.manual_seed(0)
    net = ul.Network(sizes, neuron=neuron)
    with torch.no_grad():
        for linear in net.linears:
            linear.weight.mul_(3)
    return net


def spikes(batch: int) -> Tensor:
    return (torch.rand(STEPS, batch, 12, generator=torch.Generator().manual_seed(1)) < 0.4).float()


@torch.no_grad()
def expected(net: ul.Network, x: Tensor, mode: str) -> Tensor:
    with ul.mode(net, mode):
        assert all(0.02 < rate.mean() < 0.98 for rate in net.observe(x).rates)
        return net(x)


def operators_of(graph) -> set[str]:
    """Return the operators of a graph and of the bodies of its loops."""
    bodies = [part.g for node in graph.node for part in node.attribute if part.HasField("g")]
    return {node.op_type for node in graph.node}.union(*map(operators_of, bodies))


@pytest.mark.parametrize(("neuron", "mode"), [("UltraLIF", "soft"), ("AdaLIF", "hard")])
def test_a_stream_in_onnxruntime(tmp_path, neuron, mode):
    net = network(neuron)
    assert to_onnx(net, tmp_path / "model.onnx", mode=mode) < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = [entry.name for entry in session.get_inputs()]
    assert names == ["x", *Stepwise(net, None).names()]
    for batch in (1, 7):
        x, outputs = spikes(batch), []
        states = [torch.zeros(batch, entry.shape[1]).numpy() for entry in session.get_inputs()[1:]]
        for step in x:
            output, *states = session.run(None, dict(zip(names, [step.numpy(), *states], strict=True)))
            outputs.append(torch.from_numpy(output))
        torch.testing.assert_close(torch.stack(outputs).mean(0), expected(net, x, mode), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("neuron", "mode"), [("UltraDLIF", "hard"), ("UltraLIF", "tropical")])
def test_a_sequence_in_onnxruntime(tmp_path, neuron, mode):
    net = network(neuron)
    assert to_onnx(net, tmp_path / "model.onnx", mode=mode, timesteps=STEPS) < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for batch, repeats in ((1, 1), (7, 3)):  # sequences of other lengths too
        x = spikes(batch).repeat(repeats, 1, 1)
        (found,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), expected(net, x, mode), rtol=1e-4, atol=1e-5)
    operators = operators_of(onnx.load(tmp_path / "model.onnx").graph)
    assert "Scan" in operators  # one loop, not a copy for each step
    assert "Sigmoid" not in operators  # nothing of the backward pass is left
    assert mode != "tropical" or not operators & {"Exp", "Log"}


@pytest.mark.parametrize("neuron", ul.NEURONS)
def test_a_stream_of_torch_export(tmp_path, neuron):
    net, x, outputs = network(neuron, sizes=(12, 10, 4)), spikes(7), []
    to_torch(net, tmp_path / "model.pt2", mode="hard")
    program = torch.export.load(tmp_path / "model.pt2").module()
    states = [torch.zeros(7, 10) for _ in Stepwise(net, None).names()]
    for step in x:
        output, *states = program(step, *states)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs).mean(0), expected(net, x, "hard"))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, where a scan runs eagerly
def test_a_sequence_of_torch_export(tmp_path):
    net, x = network("UltraDLIF"), spikes(7)
    to_torch(net, tmp_path / "model.pt2", mode="soft", timesteps=STEPS)
    program = torch.export.load(tmp_path / "model.pt2").module()
    with torch.no_grad():
        torch.testing.assert_close(program(x), expected(net, x, "soft"))
    assert net.neurons[0].mode == "soft"  # as it was


def test_states_are_named():
    assert Stepwise(network("LIF"), None).names() == ["v1", "v2"]
    assert Stepwise(network("AdaLIF"), None).names()[:3] == ["v1", "b1", "spike1"]


def test_a_wrong_program_is_not_left_behind(tmp_path, monkeypatch):
    honest = Stepwise.forward

    def forward(self, x, *states):
        output, *after = honest(self, x, *states)
        return (output + torch.compiler.is_exporting(), *after)

    monkeypatch.setattr(Stepwise, "forward", forward)
    with pytest.raises(JobError, match="onnxruntime differs by 1 "):
        to_onnx(network("LIF", sizes=(12, 10, 4)), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_whole_sequences_of_a_network_with_max_pooling(tmp_path, scale):
    """A negative scale behind the pooling makes it take minima."""
    norm = nn.BatchNorm2d(2)
    with torch.no_grad():
        norm.weight[0] = scale
    layers = (ul.TimeDistributed(layer) for layer in (nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), norm))
    net = nn.Sequential(*layers, ul.LIF(), ul.TimeDistributed(nn.Flatten()), nn.Linear(18, 3)).eval()
    assert to_onnx(net, tmp_path / "model.onnx", timesteps=4, shape=(2, 9, 8)) < 1e-4


@pytest.mark.parametrize(("kind", "timesteps"), [("vgg", None), ("residual", 5)])
def test_networks_as_people_build_them(tmp_path, kind, timesteps):
    net, x = made(kind, 1, ul.UltraLIF, eps=0.3), events(2)
    assert to_onnx(net, tmp_path / "model.onnx", mode="hard", timesteps=timesteps, shape=SHAPE) < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    if timesteps:
        (found,) = session.run(None, {"x": x.numpy()})
        with ul.mode(net, "hard"), torch.no_grad():
            scores = net(x)
        scores = scores.mean(0) if scores.dim() > 2 else scores
        torch.testing.assert_close(torch.from_numpy(found), scores, rtol=1e-4, atol=1e-4)
    else:
        assert [entry.shape[1:] for entry in session.get_inputs()] == [[2, 9, 8], [6, 4, 4], [4, 3, 3]]
