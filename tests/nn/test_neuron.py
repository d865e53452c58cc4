"""Every neuron as a module: three ways to call it, any shape, nothing kept."""

import inspect
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import ultralif as ul
from cases import CASES, Case
from ultralif.names import NEURON_NAMES

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_neuron = pytest.mark.parametrize("name", NEURON_NAMES)


@every_case
@given(cuts=st.lists(st.integers(1, 9), max_size=3, unique=True).map(sorted))
def test_pieces_of_a_run_equal_the_whole(case: Case, cuts: list[int]) -> None:
    """Bit for bit, in float64, wherever the run is cut."""
    current = case.current(10).double()
    neuron = case.module().double()
    whole, last = neuron.run(current)
    state, pieces = None, []
    for piece in current.tensor_split(cuts):
        spikes, state = neuron.run(piece, state)
        pieces.append(spikes)
    assert torch.equal(torch.cat(pieces), whole)
    assert all(map(torch.equal, state, last))


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_steps_equal_the_run(case: Case, dtype: torch.dtype) -> None:
    current = case.current(6).to(dtype)
    neuron = case.module()
    whole, last = neuron.run(current)
    state = None
    for x, expected in zip(current, whole, strict=True):
        spike, state = neuron.step(x, state)
        assert torch.equal(spike, expected)
    assert all(map(torch.equal, state, last))
    assert torch.equal(neuron(current), whole)


@every_case
def test_gradients_flow_through_a_state(case: Case) -> None:
    """Cutting a run changes its gradient no more than its value."""
    current = case.current(6).double().requires_grad_()
    neuron = case.module(learn_threshold=True).double()
    leaves = [current, *neuron.parameters()]
    whole = torch.autograd.grad(neuron(current).sum(), leaves)
    first, state = neuron.run(current[:2])
    rest, _ = neuron.run(current[2:], state)
    cut = torch.autograd.grad(first.sum() + rest.sum(), leaves)
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=1e-12)


@every_case
def test_nothing_is_kept_between_calls(case: Case) -> None:
    neuron = case.module()
    before = {name: value.clone() for name, value in neuron.state_dict().items()}
    first = neuron(case.current(5))
    neuron.run(3 * case.current(7, batch=3))
    assert torch.equal(neuron(case.current(5)), first)
    assert neuron.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in neuron.state_dict().items())


@every_case
def test_batch_first(case: Case) -> None:
    current = case.current(5, batch=3)
    spikes, state = case.module().run(current)
    swapped, swapped_state = case.module(batch_first=True).run(current.transpose(0, 1))
    assert torch.equal(swapped, spikes.transpose(0, 1))
    assert all(map(torch.equal, swapped_state, state))  # a state is [B, *features] either way


@every_case
@pytest.mark.parametrize("leading", [(3,), (2, 3)])
def test_features_of_many_axes(case: Case, leading: tuple[int, ...]) -> None:
    """More axes before the features are more of the same: every slice is a run of its own."""
    current = torch.randn(5, 2, *leading, *case.features)
    neuron = case.module()
    spikes = neuron(current)
    assert spikes.shape == current.shape
    for index in torch.cartesian_prod(*(torch.arange(n) for n in leading)).reshape(-1, len(leading)).tolist():
        here = (slice(None), slice(None), *index)
        torch.testing.assert_close(spikes[here], neuron(current[here]))


@every_case
def test_stacked_parameters_equal_single_networks(case: Case) -> None:
    """[M, 1] constants over [T, B, M, N] are M neurons: outputs and gradients, in float64."""
    names = [n for n in ("eps", "leak", "threshold", "sharpness") if n in case.constants]
    spread = torch.tensor([0.6, 1.0, 1.1], dtype=torch.float64)
    ones = (1,) * len(case.features)
    torch.set_default_dtype(torch.float64)
    try:
        learn = {f"learn_{name}": True for name in names}
        stacked = case.module(**learn, **{n: (case.constants[n] * spread).reshape(3, *ones) for n in names})
        single = [case.module(**learn, **{n: case.constants[n] * float(s) for n in names}) for s in spread]
    finally:
        torch.set_default_dtype(torch.float32)
    current = torch.randn(5, 2, 3, *case.features, dtype=torch.float64)
    spikes = stacked(current)
    spikes.sum().backward()
    for i, neuron in enumerate(single):
        alone = neuron(current[:, :, i])
        torch.testing.assert_close(spikes[:, :, i], alone, rtol=1e-12, atol=1e-12)
        alone.sum().backward()
        for name, parameter in neuron.named_parameters():
            found = stacked.get_parameter(name).grad[i].sum()
            torch.testing.assert_close(found, parameter.grad, rtol=1e-10, atol=1e-12)


@every_neuron
def test_one_parameter_per_neuron(name: str) -> None:
    """``parameter_shape`` gives each neuron a value of its own, with a gradient of its own."""
    neuron = ul.NEURONS[name](parameter_shape=(4,), learn_threshold=True)
    layer = ul.NEURONS[name](learn_threshold=True)
    current = CASES["LIF"].current(5)
    torch.testing.assert_close(neuron(current), layer(current))
    neuron(current).sum().backward()
    layer(current).sum().backward()
    for key, parameter in layer.named_parameters():
        apart = neuron.get_parameter(key)
        assert apart.shape == (4,) and len(apart.grad.unique()) > 1
        torch.testing.assert_close(apart.grad.sum(), parameter.grad, rtol=1e-5, atol=1e-6)


@every_neuron
@pytest.mark.parametrize("shape", [(3, 0, 4), (3, 2, 0), (1, 1, 1), (1, 2, 3)])
def test_small_shapes(name: str, shape: tuple[int, ...]) -> None:
    """An empty batch, no features, one of everything: the shape comes back, and backward works."""
    neuron = ul.NEURONS[name](learn_threshold=True)
    current = torch.randn(shape, requires_grad=True)
    spikes, state = neuron.run(current)
    assert spikes.shape == shape and all(tensor.shape == shape[1:] for tensor in state)
    spikes.sum().backward()
    assert current.grad.shape == shape
    assert all(torch.isfinite(p.grad).all() for p in neuron.parameters())


@every_neuron
def test_strided_currents_and_parameters(name: str) -> None:
    current = torch.randn(5, 4, 2, 6)[..., ::2].transpose(0, 2)
    neuron = ul.NEURONS[name](threshold=0.1 + 0.8 * torch.rand(3, 5).t())
    assert not current.is_contiguous() and not neuron.threshold.is_contiguous()
    torch.testing.assert_close(neuron(current), neuron(current.contiguous()))


@every_neuron
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients(name: str, context) -> None:
    neuron, current = ul.NEURONS[name](), torch.randn(4, 2, 3)
    with context():
        spikes, state = neuron.run(current)
        spike, _ = neuron.step(current[0], state)
    assert not spikes.requires_grad and not spike.requires_grad
    torch.testing.assert_close(spikes, neuron(current).detach())


@every_neuron
def test_only_what_needs_a_gradient_gets_one(name: str) -> None:
    neuron = ul.NEURONS[name]()
    assert neuron(torch.randn(2, 1, 3)).requires_grad == any(True for _ in neuron.parameters())
    neuron.requires_grad_(False)
    assert not neuron(torch.randn(2, 1, 3)).requires_grad
    current = torch.randn(3, 1, 4, requires_grad=True)
    neuron(current).sum().backward()
    assert current.grad.any()


@every_neuron
def test_threads_do_not_meet(name: str) -> None:
    """One module may serve many threads: there is nothing that they could share."""
    neuron = ul.NEURONS[name]()
    inputs = [torch.randn(6, 2, 5) for _ in range(8)]
    expected = [neuron(x).detach() for x in inputs]
    found: dict[int, Tensor] = {}

    def work(i: int) -> None:
        for _ in range(5):
            found[i] = neuron(inputs[i]).detach()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[i], expected[i]) for i in range(8))


def test_a_neuron_says_what_it_is() -> None:
    """The values of constants, learned ones included, and the choices that are not the default."""
    assert repr(ul.UltraPLIF(eps=0.25)) == (
        "UltraPLIF(eps=0.25 learned, leak=0.9 learned, threshold=0.5, mode=soft)"
    )
    shown = repr(ul.LIF(leak=torch.tensor([0.4, 0.6]), reset="subtract", synapse=0.8, mode="soft"))
    assert shown == (
        "LIF(leak=0.5 mean of (2,), surrogate_slope=2, synapse=0.8, threshold=0.5, reset=subtract, mode=soft)"
    )
    with torch.device("meta"):
        assert "eps=unknown learned" in repr(ul.UltraLIF())


def test_constants_are_numbers_as_the_neuron_uses_them() -> None:
    """Decoded, clamped, and averaged over neurons."""
    neuron = ul.DSpikePlus(leak=torch.tensor([0.2, 0.6]), sharpness_range=(0.5, 50.0))
    with torch.no_grad():
        neuron.log_sharpness.fill_(99.0)
    found = neuron.constants()
    assert found == {"threshold": 0.5, "leak": pytest.approx(0.4), "sharpness": 50.0}
    assert all(type(value) is float for value in found.values())


@every_neuron
def test_a_class_shows_its_arguments(name: str) -> None:
    """Editors and ``help`` list every option with its default, and the constructor takes them all."""
    neuron = ul.NEURONS[name]
    shown = inspect.signature(neuron).parameters
    assert {"threshold", "v_reset", "learn_threshold", "batch_first"} <= shown.keys()
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in shown.values())
    options = {key: p.default for key, p in shown.items()}
    assert all(options[f"learn_{learned}"] is True for learned in neuron.learns)
    assert options["mode"] == neuron.modes[0]
    explicit = neuron(**options)
    current = torch.randn(4, 2, 3)
    assert torch.equal(explicit(current), neuron()(current))


@every_neuron
def test_truncated_backpropagation(name: str) -> None:
    """A detached state carries the membrane on and ends the gradient."""
    neuron = ul.NEURONS[name]()
    early, late = torch.randn(3, 2, 4, requires_grad=True), torch.randn(3, 2, 4, requires_grad=True)
    _, state = neuron.run(early)
    spikes, _ = neuron.run(late, type(state)(*(tensor.detach() for tensor in state)))
    spikes.sum().backward()
    assert early.grad is None and late.grad.any()
    torch.testing.assert_close(spikes, neuron(torch.cat([early, late]))[3:])


def test_hooks_and_sequential() -> None:
    """A neuron returns one tensor, so that it fits where any layer does."""
    net = nn.Sequential(nn.Linear(6, 5), ul.UltraPLIF(), nn.Linear(5, 4), ul.LIF())
    seen = []
    net[1].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    assert net(torch.randn(7, 3, 6)).shape == (7, 3, 4)
    assert seen == [(7, 3, 5)]


@pytest.mark.parametrize("readout", ["linear", "spiking"])
def test_hooks_see_the_spikes_of_every_layer_of_a_network(readout: str) -> None:
    net = ul.Network((6, 5, 4, 3), "UltraDLIF", readout=readout)
    x = torch.rand(3, 2, 6)
    expected, seen = net.observe(x), []
    for neuron in net.neurons:
        neuron.register_forward_hook(lambda module, args, out: seen.append(out))
    found = net.observe(x)
    assert [spikes.shape[:2] for spikes in seen] == [(3, 2)] * len(net.neurons)
    for spikes, rate in zip(seen, expected.rates, strict=True):
        torch.testing.assert_close(spikes.mean(0), rate)
    torch.testing.assert_close(found.logits, expected.logits)


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_a_reset_for_each_neuron_goes_with_the_module(name: str) -> None:
    neuron, number = (ul.NEURONS[name](v_reset=value) for value in (torch.full((4,), -0.25), -0.25))
    current = torch.randn(6, 3, 4)
    torch.testing.assert_close(neuron(current), number(current))
    assert torch.equal(neuron.state_dict()["v_reset"], torch.full((4,), -0.25))
    assert neuron.double()(current.double()).dtype == torch.float64
