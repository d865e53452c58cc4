"""ONNX and torch.export: the same numbers elsewhere, streaming and in one go."""

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import ultralif as ul
from ultralif.errors import JobError
from ultralif.export.onnx import Streaming, state_names, to_onnx, to_torch

STEPS = 4


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


@pytest.mark.parametrize(("neuron", "mode"), [("UltraLIF", "soft"), ("AdaLIF", "hard")])
def test_a_stream_in_onnxruntime(tmp_path, neuron, mode):
    net = network(neuron)
    assert to_onnx(net, tmp_path / "model.onnx", mode=mode) < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = [entry.name for entry in session.get_inputs()]
    assert names == ["x", *state_names(net)]
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
    for batch in (1, 7):
        x = spikes(batch)
        (found,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), expected(net, x, mode), rtol=1e-4, atol=1e-5)
    operators = {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}
    assert "Sigmoid" not in operators  # nothing of the backward pass is left
    assert mode != "tropical" or not operators & {"Exp", "Log"}


@pytest.mark.parametrize("neuron", ul.NEURONS)
def test_a_stream_of_torch_export(tmp_path, neuron):
    net, x, outputs = network(neuron, sizes=(12, 10, 4)), spikes(7), []
    to_torch(net, tmp_path / "model.pt2", mode="hard")
    program = torch.export.load(tmp_path / "model.pt2").module()
    states = [torch.zeros(7, 10) for _ in state_names(net)]
    for step in x:
        output, *states = program(step, *states)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs).mean(0), expected(net, x, "hard"))


@pytest.mark.parametrize("mode", ["soft", "tropical"])
def test_a_sequence_of_torch_export(tmp_path, mode):
    net, x = network("UltraDLIF"), spikes(7)
    to_torch(net, tmp_path / "model.pt2", mode=mode, timesteps=STEPS)
    program = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(program(x), expected(net, x, mode))
    assert net.neurons[0].mode == "soft"  # as it was


def test_states_are_named():
    assert state_names(network("LIF")) == ["v1", "v2"]
    assert state_names(network("AdaLIF"))[:3] == ["v1", "b1", "spike1"]


def test_a_wrong_program_is_not_left_behind(tmp_path, monkeypatch):
    honest = Streaming.forward

    def forward(self, x, *states):
        output, *after = honest(self, x, *states)
        return (output + torch.compiler.is_exporting(), *after)

    monkeypatch.setattr(Streaming, "forward", forward)
    with pytest.raises(JobError, match="onnxruntime is"):
        to_onnx(network("LIF", sizes=(12, 10, 4)), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
