"""The operators as PyTorch sees them: registered, traceable, frugal, differentiable once."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

import ultralif as ul
from ops.op_cases import CASES, SETTINGS, draw
from ultralif import functional, ops
from ultralif.errors import InputError
from ultralif.names import NEURON_NAMES
from ultralif.ops import autograd
from ultralif.ops.autograd import integrate, integrate_backward
from ultralif.ops.rule import Constants, Curve, Membrane, Reset, Rule, decode, encode

RULES = {
    "ultralif": Rule(Membrane.LSE, True),
    "tropical rate": Rule(Membrane.MAX, False, detach=True, rate=True, v_reset=-0.5),
    "ultradlif": Rule(Membrane.LSE, True, ring=3, centered=True, leaks=True),
    "adalif": Rule(Membrane.ADD, False, adapt=True, adapt_strength=0.1, adapt_decay=0.9),
}


def constants(learn: bool = True) -> list[torch.Tensor | list[float] | None]:
    """Return constants of all shapes for 2 x 3 features, one of them a number."""
    values = ([0.5], [[0.9], [0.8]], [[0.5, 0.4, 0.6], [0.5, 0.4, 0.3]])
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=learn) for v in values]
    return [*tensors, None, [1.0, 1.0, 1.0, 0.8]]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_survives_its_schema(rule):
    other = rule._replace(reset=Reset.SUBTRACT, curve=Curve.TRIANGLE, clipped=True, leaks=True)
    for one in (rule, other):
        assert decode(*encode(one)) == one
        assert [type(x) for x in decode(*encode(one))] == [type(x) for x in one]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("start", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own, about itself
def test_opcheck(rule, start):
    current = torch.randn(3, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    state = torch.rand(rule.states, 2, 2, 3, dtype=torch.float64, requires_grad=True) if start else None
    torch.library.opcheck(integrate, (current, state, *constants(), *encode(rule)))
    out, last = integrate(current, state, *constants(), *encode(rule))
    inputs = (current.detach(), None if state is None else state.detach(), *constants(learn=False))
    for learned in ([False] * 4, [True, True, True, False]):
        grads = (torch.randn_like(out), torch.randn_like(last))
        torch.library.opcheck(integrate_backward, (*grads, *inputs, *encode(rule), learned))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["stack", "two neurons"])
def test_fake_tensors_have_the_shapes_of_real_ones(case, dtype, name):
    setting = SETTINGS[name]
    drawn = draw(case, setting, dtype)
    function, kwargs = getattr(ops, case.name), {"rate": setting.rate, **case.fixed}
    out, _ = function(drawn["current"], **{k: drawn[k] for k in case.learned}, **kwargs)
    with FakeTensorMode() as mode:
        fake = {k: mode.from_tensor(v).requires_grad_() for k, v in drawn.items()}
        found, _ = function(fake["current"], **{k: fake[k] for k in case.learned}, **kwargs)
        grads = torch.autograd.grad(found.sum(), [fake["current"], *(fake[k] for k in case.learned)])
    assert (found.shape, found.dtype) == (out.shape, out.dtype)
    assert [(g.shape, g.dtype) for g in grads] == [
        (drawn[k].shape, drawn[k].dtype) for k in ("current", *case.learned)
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_graph_serves_every_length_and_batch():
    """Compiled for any T and B, nothing is compiled again."""
    compiled = torch.compile(
        lambda x, eps: ops.ultralif(x, eps=eps, leak=0.9, threshold=0.5)[0],
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    eps = torch.tensor([0.5, 0.6, 0.7, 0.8])
    compiled(torch.randn(5, 3, 4), eps)
    with torch.compiler.set_stance("fail_on_recompile"):
        for time, batch in ((7, 2), (2, 9)):
            current = torch.randn(time, batch, 4)
            expected = functional.ultralif(current, eps=eps, leak=0.9, threshold=0.5)[0]
            torch.testing.assert_close(compiled(current, eps), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_network_is_compiled_without_a_break():
    """Forward and backward, with neurons that learn."""
    net = ul.Network((6, 8, 3), "UltraDPLIF")
    x = torch.rand(5, 4, 6)
    found = []
    for run in (net, torch.compile(net, fullgraph=True, backend="aot_eager")):
        out = run(x)
        found.append((out, *torch.autograd.grad(out.square().sum(), list(net.parameters()))))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_registered_operator_is_the_function_that_a_plain_call_runs(rule):
    current = torch.randn(3, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    *tensors, numbers = constants()
    given = Constants(*(n if t is None else t for t, n in zip(tensors, numbers, strict=True)))
    found = []
    for spikes, last in (
        autograd.run(current, None, given, rule),
        integrate(current, None, *tensors, numbers, *encode(rule)),
    ):
        grads = torch.autograd.grad(
            spikes.square().sum() + last.square().sum(), [current, *tensors[:3]], retain_graph=True
        )
        found.append((spikes, last, *grads))
        with pytest.raises(RuntimeError, match="backend='reference'"):
            (grad,) = torch.autograd.grad(last.sum(), current, create_graph=True)
            grad.sum().backward()
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_backward_keeps_only_what_it_was_given(name):
    """Autograd holds the current and a few numbers: no membrane, no trace, not even the spikes."""
    neuron = ul.NEURONS[name](learn_threshold=True)
    current = torch.randn(20, 4, 32, requires_grad=True)
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = neuron(current)
    assert kept.pop(current.untyped_storage().data_ptr()) == current.nbytes
    assert out.untyped_storage().data_ptr() not in kept
    assert sum(kept.values()) < 200  # bytes: the constants themselves


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_second_derivative_is_refused_and_the_reference_named(case):
    current = torch.randn(3, 2, 4, requires_grad=True)
    out, _ = getattr(ops, case.name)(current, **case.learned, **case.fixed)
    (grad,) = torch.autograd.grad(out.square().sum(), current, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        grad.sum().backward()


def test_a_second_derivative_by_a_constant_is_refused():
    """Also where the current is data, and only constants are learned."""
    neuron = ul.UltraLIF().double()
    (first,) = torch.autograd.grad(
        neuron(torch.randn(5, 3, 4).double()).mean(), neuron.log_eps, create_graph=True
    )
    with pytest.raises(RuntimeError, match="reference"):
        torch.autograd.grad(first, neuron.log_eps)


def test_the_reference_gives_second_derivatives():
    current = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    neuron = ul.UltraLIF(backend="reference").double()
    assert torch.autograd.gradgradcheck(neuron, current)


def test_what_no_kernel_covers_runs_by_its_definition():
    """Transforms, and constants that no kernel takes, give the same function."""
    current = torch.randn(3, 2, 4, dtype=torch.float64)
    numbers = {"eps": 0.5, "leak": 0.9, "threshold": 0.5}
    expected = functional.ultralif(current, **numbers)[0]
    mapped = torch.func.vmap(lambda x: ops.ultralif(x, **numbers)[0], in_dims=1, out_dims=1)
    torch.testing.assert_close(mapped(current.unsqueeze(2)).squeeze(2), expected)
    reset = torch.zeros(4, dtype=torch.float64)
    torch.testing.assert_close(ops.ultralif(current, v_reset=reset, **numbers)[0], expected)
    late = {"delayed_reset": True, "reset": "saturate", **numbers}
    torch.testing.assert_close(ops.ultralif(current, **late)[0], functional.ultralif(current, **late)[0])


@pytest.mark.parametrize("shape", [(0,), (32,), (128,), (3, 2, 64)], ids=str)
@pytest.mark.parametrize("name", ["eps", "leak", "threshold"])
def test_a_constant_of_another_shape_is_refused(name, shape):
    """The kernels would read a part of it, or beyond it."""
    given = {"eps": 0.5, "leak": 0.9, "threshold": 0.5, name: torch.full(shape, 0.5)}
    with pytest.raises(InputError, match=f"{name} must be a number or broadcast"):
        ops.ultralif(torch.zeros(3, 2, 64), **given)


def test_a_clipped_curve_has_no_gradient_outside():
    """Just below 0 and above twice the threshold, also where the curve is rounded to 0 or 1."""
    given = {"leak": 0.9, "threshold": 0.782, "sharpness": 7.13}
    for mode in ("soft", "hard"):
        x = torch.tensor([[[-8.6e-5, -1e-7, 0.0, 1e-5, 1.56, 1.5641, 1.6]]]).requires_grad_()
        out, _ = ops.dspike(x, mode=mode, **given)
        (grad,) = torch.autograd.grad(out.sum(), x)
        y = x.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(functional.dspike(y, mode=mode, **given)[0].sum(), y)
        assert expected[0, 0, :2].count_nonzero() == 0 and expected[0, 0, 2:5].all()
        torch.testing.assert_close(grad.double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: ops.ultralif(x, eps=1.0, leak=0.9, threshold=1.0, mode="Soft"), "mode .*'Soft'"),
        (lambda x: ops.ultradlif(x, eps=1.0, threshold=1.0, mode="firm"), "mode .*'firm'"),
        (lambda x: ops.softlif(x, eps=1.0, leak=0.9, threshold=1.0, mode="tropical"), "mode .*'tropical'"),
        (lambda x: ops.dspike(x, leak=0.9, threshold=1.0, mode="tropical"), "mode .*'tropical'"),
        (lambda x: ops.lif(x, leak=0.9, threshold=1.0, backend="refrence"), "backend .*'refrence'"),
    ],
)
def test_a_word_that_is_no_choice_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call(torch.zeros(2, 1, 3))


def test_numbers_and_tensors_are_the_same_constants():
    current = torch.randn(5, 3, 4, dtype=torch.float64)
    numbers = {"eps": 0.5, "leak": 0.9, "threshold": 0.5}
    tensors = {k: torch.tensor(v, dtype=torch.float64) for k, v in numbers.items()}
    assert torch.equal(ops.ultralif(current, **numbers)[0], ops.ultralif(current, **tensors)[0])


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(InputError, match=r"v0 must have .* \(3, 5\), got \(5, 3\)"):
        ops.ultralif(torch.zeros(4, 3, 5), torch.zeros(5, 3), eps=1.0, leak=0.9, threshold=0.5)


def test_a_state_carries_on():
    """Two halves are the whole, and their gradients meet in the middle."""
    current = torch.randn(10, 3, 33, dtype=torch.float64, requires_grad=True)
    for case in CASES:
        function = getattr(ops, case.name)
        whole, _ = function(current, **case.learned, **case.fixed)
        first, state = function(current[:4], **case.learned, **case.fixed)
        second, _ = function(current[4:], state, **case.learned, **case.fixed)
        halves = torch.cat((first, second))
        torch.testing.assert_close(halves, whole, rtol=1e-12, atol=1e-12)
        weights = torch.randn_like(whole)
        (found,) = torch.autograd.grad((halves * weights).sum(), current)
        (expected,) = torch.autograd.grad((whole * weights).sum(), current)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
