"""Every neuron under what PyTorch offers: compile, export, ONNX, vmap, autocast, copies, precision."""

import copy
import io
import pickle
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

import ultralif as ul
from ultralif.names import NEURON_NAMES

every_neuron = pytest.mark.parametrize("name", NEURON_NAMES)


@pytest.fixture
def current() -> Tensor:
    return torch.randn(3, 2, 5)


def build(name: str, mode: str | None = None) -> ul.Neuron:
    """Return a neuron in which all that is usually learned is learned, per neuron."""
    neuron = ul.NEURONS[name](learn_threshold=True, parameter_shape=(5,))
    if mode is not None:
        neuron.mode = mode
    return neuron


def gradients(call: nn.Module, neuron: nn.Module, current: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the spikes and the gradients of a weighted sum, for the current and every parameter."""
    leaves = (current.clone().requires_grad_(), *neuron.parameters())
    spikes = call(leaves[0])
    weights = torch.linspace(-1, 1, spikes.numel()).reshape(spikes.shape)
    return spikes, torch.autograd.grad((spikes * weights).sum(), leaves)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own, about itself
class TestCompile:
    @pytest.fixture(autouse=True)
    def fresh_compiler(self):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    @pytest.mark.parametrize(
        ("name", "mode"), [(name, mode) for name in NEURON_NAMES for mode in ul.NEURONS[name].modes]
    )
    def test_full_graph(self, name: str, mode: str, current: Tensor) -> None:
        """No graph break, the same spikes, the same gradients."""
        neuron = build(name, mode)
        compiled = torch.compile(neuron, fullgraph=True, backend="aot_eager")
        spikes, found = gradients(compiled, neuron, current)
        expected_spikes, expected = gradients(neuron, neuron, current)
        torch.testing.assert_close(spikes, expected_spikes)
        torch.testing.assert_close(found, expected)

    @pytest.mark.parametrize("name", ["UltraDPLIF", "AdaLIF"])
    def test_inductor(self, name: str, current: Tensor) -> None:
        """Through the code generator too, for one neuron of each family."""
        neuron = build(name)
        compiled = torch.compile(neuron, fullgraph=True)
        spikes, found = gradients(compiled, neuron, current)
        expected_spikes, expected = gradients(neuron, neuron, current)
        torch.testing.assert_close(spikes, expected_spikes)
        torch.testing.assert_close(found, expected)

    def test_a_network_and_its_modes(self) -> None:
        """A mode that is switched is seen by the compiled network."""
        net = ul.Network((4, 5, 3), neuron="UltraDLIF")
        compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
        x = torch.randn(3, 2, 4)
        for mode in ("soft", "hard", "tropical", "soft"):
            ul.set_mode(net, mode)
            torch.testing.assert_close(compiled(x), net(x))

    def test_run_and_step(self, current: Tensor) -> None:
        """States go in and out of a compiled function."""
        neuron = ul.AdaLIF()
        run = torch.compile(neuron.run, fullgraph=True, backend="aot_eager")
        spikes, state = run(current)
        more, _ = run(current, state)
        expected, expected_state = neuron.run(torch.cat([current, current]))
        assert torch.equal(torch.cat([spikes, more]), expected)
        assert isinstance(state, type(expected_state))


@pytest.mark.slow
@every_neuron
def test_export(name: str, current: Tensor) -> None:
    """``torch.export`` with a batch of any size, saved and loaded."""
    neuron = build(name)
    batch = torch.export.Dim("batch")
    program = torch.export.export(neuron, (current,), dynamic_shapes={"current": {1: batch}})
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    for size in (2, 7):
        x = torch.randn(3, size, 5)
        torch.testing.assert_close(loaded(x), neuron(x))


@pytest.mark.slow
@every_neuron
def test_onnx(name: str, current: Tensor) -> None:
    """ONNX Runtime gives the same spikes, in every mode."""
    for mode in ul.NEURONS[name].modes:
        neuron = build(name, mode).eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own, about itself
            program = torch.onnx.export(neuron, (current,), dynamo=True, verbose=False)
        buffer = io.BytesIO()
        program.save(buffer)
        session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
        (entry,) = session.get_inputs()
        (spikes,) = session.run(None, {entry.name: current.numpy()})
        np.testing.assert_allclose(spikes, neuron(current).detach().numpy(), rtol=1e-5, atol=1e-6)


@every_neuron
def test_vmap_over_an_ensemble(name: str, current: Tensor) -> None:
    """Gradients of several sets of parameters at once equal those of one at a time."""
    members = [build(name) for _ in range(3)]
    with torch.no_grad():
        for member in members:
            for parameter in member.parameters():
                parameter += 0.2 * torch.randn_like(parameter)
    parameters, buffers = stack_module_state(members)
    skeleton = copy.deepcopy(members[0]).to("meta")
    weights = torch.randn_like(current)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return (functional_call(skeleton, (parameters, buffers), (x,)) * weights).sum()

    found = vmap(grad(loss), in_dims=(0, 0, None))(parameters, buffers, current)
    for i, member in enumerate(members):
        _, *expected = torch.autograd.grad(
            (member(current.requires_grad_()) * weights).sum(), (current, *member.parameters())
        )
        for (key, _), gradient in zip(member.named_parameters(), expected, strict=True):
            torch.testing.assert_close(found[key][i], gradient)


@every_neuron
def test_gradients_of_every_sample(name: str, current: Tensor) -> None:
    """``vmap`` over the batch, as differentially private training does."""
    neuron = build(name)
    parameters = {key: value.detach() for key, value in neuron.named_parameters()}

    def loss(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(neuron, parameters, (sample.unsqueeze(1),)).sum()

    each = vmap(grad(loss), in_dims=(None, 1))(parameters, current)
    neuron(current).sum().backward()
    for key, parameter in neuron.named_parameters():
        torch.testing.assert_close(each[key].sum(0), parameter.grad, rtol=1e-4, atol=1e-6)


@every_neuron
def test_functional_call_leaves_the_module_alone(name: str, current: Tensor) -> None:
    """Also for a copy that is made while the parameters are swapped."""
    neuron = build(name)
    before = copy.deepcopy(neuron.state_dict())
    swapped = {key: value.detach() - 0.5 for key, value in neuron.named_parameters()}
    other = build(name)
    other.load_state_dict(swapped)
    assert torch.equal(functional_call(neuron, swapped, (current,)), other(current))
    copies = []
    neuron.register_forward_pre_hook(lambda module, args: copies.append(copy.deepcopy(module)))
    functional_call(neuron, swapped, (current,))
    assert torch.equal(copies[0](current), other(current))
    assert all(torch.equal(value, before[key]) for key, value in neuron.state_dict().items())


@every_neuron
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(name: str, dtype: torch.dtype) -> None:
    """Linear layers in half precision around a membrane in float32; gradients arrive in float32."""
    net = nn.Sequential(nn.Linear(6, 5), build(name), nn.Linear(5, 2))
    x = torch.randn(4, 3, 6)
    with torch.autocast("cpu", dtype=dtype):
        hidden = net[0](x)
        spikes, state = net[1].run(hidden)
        output = net(x)
    assert hidden.dtype == spikes.dtype == output.dtype == dtype
    assert all(tensor.dtype == torch.float32 for tensor in state)
    output.float().sum().backward()
    for parameter in net.parameters():
        assert parameter.grad.dtype == torch.float32 and torch.isfinite(parameter.grad).all()
    if net[1].mode == "soft":  # binary spikes may flip where the current was rounded across the threshold
        torch.testing.assert_close(output.float(), net(x), rtol=0.05, atol=0.05)


@every_neuron
def test_deepcopy_and_state_dict(name: str, current: Tensor) -> None:
    """A copy and a reloaded neuron compute the same and share nothing."""
    neuron = build(name)
    with torch.no_grad():
        for parameter in neuron.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    expected = neuron(current)
    twin = copy.deepcopy(neuron)
    fresh = build(name)
    fresh.load_state_dict(pickle.loads(pickle.dumps(neuron.state_dict())))  # noqa: S301
    saved = io.BytesIO()
    torch.save(neuron.state_dict(), saved)
    saved.seek(0)
    reloaded = build(name)
    reloaded.load_state_dict(torch.load(saved, weights_only=True))
    whole = pickle.loads(pickle.dumps(neuron))  # noqa: S301
    for copied in (twin, fresh, reloaded, whole):
        assert torch.equal(copied(current), expected)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.fill_(0.1)
    assert torch.equal(neuron(current), expected)


@every_neuron
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_to_another_precision(name: str, dtype: torch.dtype, current: Tensor) -> None:
    """``.to(dtype)`` moves parameters and fixed tensors; half precision keeps its membrane in float32."""
    neuron = ul.NEURONS[name](threshold=torch.full((5,), 0.5), learn_threshold=True, v_reset=0.1).to(dtype)
    fixed = ul.NEURONS[name](threshold=torch.full((5,), 0.5), learn_threshold=False).to(dtype)
    assert neuron.threshold.dtype == fixed.threshold.dtype == dtype
    spikes, state = neuron.run(current.to(dtype))
    assert spikes.dtype == dtype
    assert all(t.dtype == (torch.float64 if dtype == torch.float64 else torch.float32) for t in state)
    spikes.sum().backward()
    assert all(p.grad.dtype == dtype for p in neuron.parameters())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["UltraLIF", "AdaLIF"])
def test_traced_by_torch_jit(name: str, current: Tensor) -> None:
    """As tools that draw a network do; also where a call like it was prepared before."""
    neuron = build(name)
    neuron(current)
    other = torch.randn_like(current)
    torch.testing.assert_close(torch.jit.trace(neuron, current)(other), neuron(other))
