"""The operators for the CPU compute what `ultralif.functional` defines: outputs and every gradient."""

from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans, integers, sampled_from

import ultralif as ul
from ops.op_cases import (
    CASES,
    OPTIONS,
    SETTINGS,
    Setting,
    check,
    check_decoder,
    check_from_spikes,
    check_learned,
    check_minus_infinity,
    check_nan,
    draw,
    kernel_case,
    pairs,
)
from ultralif import functional, ops
from ultralif.functional import compute_dtype
from ultralif.ops.cpu import build, plan
from ultralif.ops.rule import Curve, Membrane, Reset, Rule

assert build.library()  # or the definition would be compared with itself

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize(("case", "setting"), pairs(*SETTINGS))
def test_float64(case, setting):
    check(case, setting, torch.float64)


@pytest.mark.parametrize(("case", "setting"), pairs("T=31 rate", "one for each"))
def test_float32(case, setting):
    check(case, setting, torch.float32)


@pytest.mark.parametrize("case", OPTIONS, ids=str)
def test_every_option(case):
    for name in ("T=100 B=1", "wide", "stack", "part of a stack"):
        check(case, SETTINGS[name], torch.float64)
    check(case, SETTINGS["T=2 from a state"], torch.float32)
    if case.name == "ultradlif":
        check(case, Setting(35, 2, (2 * 2048 + 3,), start=True), torch.float64)


def test_the_definition_takes_the_rest():
    """Nothing that a neuron can be built with is refused, and nothing else is taken."""
    taken = [
        plan.takes(Rule(*choice, curve=curve))
        for *choice, curve in product(Membrane, (False, True), Reset, (False, True), Curve)
    ]
    # Reset, detach; LSE hard and soft, MAX hard; ADD hard with 4 curves and soft with 3, but saturating with
    # the sigmoid alone.
    assert sum(taken) == 3 * 2 * (3 + 4 + 3) + 2 * (3 + 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_half_precision_is_integrated_in_float32(case, dtype):
    check(case, SETTINGS["one per neuron"], dtype)
    check(case, SETTINGS["T=100 B=1"], dtype)


@pytest.mark.parametrize("case", [case for case in CASES if case.name == "ultradlif"], ids=str)
def test_long_rings(case):
    """Rings that are cut into parts with a halo, and spans of time: both ends meet."""
    check(case, Setting(35, 2, (2 * 2048 + 3,), start=True), torch.float64)
    check(case, Setting(70, 1, (2, 2100), (2, 1), rate=True), torch.float64)
    check(case, Setting(70, 1, (2000,), start=True), torch.float64)
    check(case, Setting(10, 1, (2100,), (2100,)), torch.float32)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_strides(case):
    """Views of larger tensors, repeated samples, and gradients that are one number."""
    big = torch.randn(9, 6, 2, 10, dtype=torch.float64)
    constants = {k: torch.tensor(v, dtype=torch.float64) for k, v in case.learned.items()}
    views = [big[2:, ::2, :, 1::2], big[..., :1].expand(9, 6, 2, 5), big.permute(2, 0, 3, 1)]
    for view in views:
        found = []
        for module in (ops, functional):
            current = view.detach().requires_grad_()
            out, _ = getattr(module, case.name)(current, **constants, **case.fixed)
            found.append((out, *torch.autograd.grad(out.mean(), current)))
        torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("rate", [False, True])
def test_an_empty_batch(case, rate):
    current = torch.zeros(4, 0, 5, requires_grad=True)
    out, last = getattr(ops, case.name)(current, rate=rate, **case.learned, **case.fixed)
    assert out.shape == ((0, 5) if rate else (4, 0, 5))
    assert (last if isinstance(last, torch.Tensor) else last.v).shape == (0, 5)
    out.sum().backward()
    assert current.grad.shape == (4, 0, 5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_some_outputs_are_differentiated(case):
    """The gradients of outputs that nobody used are none at all, not memory that nobody wrote."""
    setting = SETTINGS["stack"]
    drawn = {k: v for k, v in draw(case, setting, torch.float64).items() if not k.startswith("state")}
    for index in range(2):
        found = []
        for module in (ops, functional):
            current = drawn["current"].detach().requires_grad_()
            constants = {k: drawn[k] for k in case.learned}
            out, last = getattr(module, case.name)(current, **constants, **case.fixed)
            target = (out, last if isinstance(last, torch.Tensor) else last.v)[index]
            found += torch.autograd.grad(target.square().sum(), current)
        torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=sampled_from(CASES),
    time=integers(1, 70),
    batch=integers(1, 5),
    features=integers(2, 140),
    start=booleans(),
    rate=booleans(),
)
def test_every_size(case, time, batch, features, start, rate):
    """Whatever the size, no neuron is forgotten at the end of a block, a chunk or a ring."""
    check(case, Setting(time, batch, (features,), start=start, rate=rate), torch.float64)


TOLD = [
    kernel_case("UltraLIF-soft"),
    kernel_case("UltraLIF-soft", detach_reset=True),
    kernel_case("UltraDLIF-soft", centered=True),
    kernel_case("UltraDLIF-soft", leak=0.8),
    kernel_case("UltraDLIF-soft", leak=0.8, detach_reset=True),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", TOLD, ids=str)
def test_soft_spikes_tell_the_membrane(case, dtype):
    """From whole blocks of spikes and the rest of a layer, cold and hot, and where spikes are 0 and 1."""
    check_from_spikes(case, Setting(1, 3, (130,)), dtype)
    check_from_spikes(case, Setting(2, 3, (130,), (130,), start=True), dtype)
    check_from_spikes(case, Setting(100, 2, (129,), start=True), dtype)
    check_from_spikes(case, Setting(9, 4, (3, 50), (3, 1), start=True), dtype)
    check_from_spikes(case, Setting(40, 2, (160,), eps=0.1), dtype)
    check_from_spikes(case, Setting(40, 2, (160,), eps=20.0, start=True), dtype)
    check_from_spikes(case, Setting(12, 2, (2500,), eps=0.1), dtype)
    check_from_spikes(case, Setting(12, 2, (160,), eps=0.1, start=True), dtype, scale=30.0)


def test_raw_parameters_are_read_and_differentiated():
    check_learned()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_form_of_a_constant_is_decoded_over_its_whole_range(dtype):
    check_decoder(dtype)


def test_a_constant_below_its_range_is_only_raised():
    neuron = ul.UltraLIF(eps_range=(0.1, 20.0))
    with torch.no_grad():
        neuron.log_eps.fill_(-3.0)  # 0.05
    x = torch.randn(5, 4, 32, generator=torch.Generator().manual_seed(0))
    slopes = [torch.autograd.grad(sign * neuron(x).sum(), neuron.log_eps)[0].item() for sign in (1, -1)]
    assert min(slopes) < 0 == max(slopes)


@pytest.mark.parametrize("case", TOLD, ids=str)
def test_spikes_that_were_changed_tell_nothing(case):
    found = []
    for change in (False, True):
        x = draw(case, Setting(9, 2, (160,)), torch.float32)["current"].requires_grad_()
        out, _ = getattr(ops, case.name)(x, **case.learned, **case.fixed)
        if change:
            out.detach().zero_()
        found += torch.autograd.grad(out, x, torch.ones_like(out))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_current_of_minus_infinity_is_absorbed(dtype):
    check_minus_infinity(dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_nan_is_not_hidden(case):
    check_nan(case)


def test_numbers_that_are_not_in_memory_are_resolved():
    """Lazily negated currents and gradients, and zeros without storage."""
    x = torch.randn(4, 2, 8, dtype=torch.float64)
    constants = {"eps": 0.5, "leak": 0.9, "threshold": 0.5}
    for lazy in (torch._neg_view(x), torch._efficientzerotensor((4, 2, 8), dtype=torch.float64)):
        found = []
        for module in (ops, functional):
            current = lazy.detach().requires_grad_()
            out, _ = module.ultralif(current, lazy[0], **constants)
            found.append((out, *torch.autograd.grad(out, current, torch._neg_view(x))))
        torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64], ids=str)
def test_other_dtypes_are_refused(dtype):
    """The kernels would write beyond a tensor whose numbers are shorter than theirs."""
    with pytest.raises(TypeError, match=r"float32.*got torch"):
        ops.lif(torch.zeros(64, 32, 64, dtype=dtype), leak=0.9, threshold=0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", [case for case in [*CASES, *OPTIONS] if not case.soft], ids=str)
def test_at_the_threshold_there_is_no_spike(case, dtype):
    """A neuron fires above its threshold. One whose past is far below has its current as potential."""
    start = None
    if case.name.startswith("ultra"):
        start = torch.full((2, 40), -1e4, dtype=compute_dtype(dtype))
        start[:, 20] = 0.0 if case.name == "ultradlif" else -1e4  # a ring adds its largest membrane
    for current, spike in ((0.5, 0.0), (0.50390625, 1.0)):
        x = torch.full((1, 2, 40), current, dtype=dtype)
        spikes, _ = getattr(ops, case.name)(x, start, **{**case.learned, "threshold": 0.5}, **case.fixed)
        assert (spikes[..., 20] == spike).all(), current


def test_the_halo_of_a_long_ring_is_as_wide_as_its_gradient_travels():
    """Back and forth over a span of 32 steps: a peak 40 neurons from where a ring is cut into parts."""
    n, eps = 4099, 0.5
    x = torch.randn(32, 1, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.1
    v0 = torch.zeros(1, n, dtype=torch.float64)
    for tile in range(0, n, 1025 // 5):
        v0[0, (tile + 40) % n] = v0[0, (tile - 40) % n] = 50.0
    found = []
    for module in (ops, functional):
        leaves = [x.clone().requires_grad_(), v0.clone().requires_grad_()]
        _, last = module.ultradlif(*leaves, eps=eps, threshold=1e6, mode="tropical")
        found.append((last, *torch.autograd.grad(last.square().sum(), leaves)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", [*CASES, *OPTIONS], ids=str)
def test_huge_and_infinite_currents_give_what_the_definition_gives(case, dtype):
    """With infinite ones, the spikes: then the definition's own gradients are NaN or an accident."""
    x = torch.randn(5, 2, 40, generator=torch.Generator().manual_seed(0), dtype=dtype)
    scale = torch.tensor([1e20, 1e30, 3e37, torch.inf, -1e20, -1e30, -3e37, -torch.inf], dtype=dtype)
    for huge in scale:
        current = x.clone()
        current[2, :, ::7] = huge
        found = []
        for module in (ops, functional):
            leaves = [current.clone().requires_grad_()]
            leaves += [torch.tensor(v, dtype=x.dtype, requires_grad=True) for v in case.learned.values()]
            constants = dict(zip(case.learned, leaves[1:], strict=True))
            out, _ = getattr(module, case.name)(leaves[0], **constants, **case.fixed)
            grads = torch.autograd.grad(out.sum(), leaves, allow_unused=True) if huge.isfinite() else []
            found.append((out, *grads))
        close = 1e-9 if dtype == torch.float64 else 2e-5
        torch.testing.assert_close(found[0], found[1], rtol=close, atol=close, equal_nan=True)


def test_past_and_current_that_tie_share_the_gradient():
    for module in (ops, functional):
        current = torch.full((1, 2, 40), 0.25, dtype=torch.float64, requires_grad=True)
        state = current[0].detach().clone().requires_grad_()
        _, last = module.ultralif(current, state, eps=0.5, leak=1.0, threshold=9.0, mode="tropical")
        assert all((g == 0.5).all() for g in torch.autograd.grad(last.sum(), [current, state]))
