"""Constants that are learned: how they are stored, and how they keep to their range."""

import math

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.names import NEURON_NAMES
from ultralif.nn.parameters import fits
from ultralif.ops.constants import bounded

every_neuron = pytest.mark.parametrize("name", NEURON_NAMES)

LEARNED = {
    "UltraLIF": {"log_eps"},
    "UltraPLIF": {"log_eps", "logit_leak"},
    "UltraDLIF": {"log_eps"},
    "UltraDPLIF": {"log_eps", "logit_leak"},
    "SoftLIF": {"log_eps"},
    "LIF": set(),
    "PLIF": {"logit_leak"},
    "AdaLIF": set(),
    "FullPLIF": {"logit_leak", "logit_threshold"},
    "DSpike": {"log_sharpness"},
    "DSpikePlus": {"log_sharpness", "logit_leak"},
}
"""What the paper learns in each neuron (section 4, appendix D.4)."""


@every_neuron
def test_each_neuron_learns_what_the_paper_learns(name: str) -> None:
    assert {key for key, _ in ul.NEURONS[name]().named_parameters()} == LEARNED[name]


@every_neuron
def test_constants_are_the_papers(name: str) -> None:
    """Those of appendix D.2, but for the temperature and the surrogate, which suit deep networks."""
    neuron = ul.NEURONS[name]()
    expected = {
        "threshold": 0.5,
        "leak": 0.9,
        "v_reset": 0.0,
        "eps": 0.2,
        "sharpness": 4.0,
        "surrogate_slope": 2.0,
    }
    for constant, value in expected.items():
        if hasattr(neuron, constant):
            assert torch.as_tensor(getattr(neuron, constant)).item() == pytest.approx(value, rel=1e-6)
    if name == "AdaLIF":
        assert neuron.constant("adapt_strength") == 0.1 and neuron.constant("adapt_decay") == 0.9


@every_neuron
def test_anything_can_be_learned_or_fixed(name: str) -> None:
    """``learn_*`` overrides what the class does, both ways, without changing the forward pass."""
    neuron = ul.NEURONS[name]
    switches = [p for p in neuron.__signature__.parameters if p.startswith("learn_")]
    current = torch.randn(4, 2, 3)
    fixed = neuron(**dict.fromkeys(switches, False))
    assert not list(fixed.parameters()) and not list(fixed.buffers())
    learned = neuron(**dict.fromkeys(switches, True))
    assert len(list(learned.parameters())) == len(switches)
    torch.testing.assert_close(learned(current), fixed(current))


def test_a_fixed_tensor_is_a_buffer_and_a_copy() -> None:
    leak = torch.tensor([0.5, 0.6, 0.7])
    neuron = ul.LIF(leak=leak)
    leak.zero_()
    assert neuron.leak.tolist() == pytest.approx([0.5, 0.6, 0.7])
    assert set(neuron.state_dict()) == {"fixed_leak"}
    assert neuron.double().leak.dtype == torch.float64


def test_parameters_follow_the_default_precision() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        neuron = ul.UltraPLIF(eps=0.3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert neuron.log_eps.dtype == torch.float64
    assert neuron.eps.item() == pytest.approx(0.3, rel=1e-15)
    assert neuron(torch.zeros(2, 1, 3)).dtype == torch.float32  # a spike has its current's precision


def test_a_learned_value_is_detached_and_owned() -> None:
    value = torch.tensor([0.5, 0.6], requires_grad=True)
    neuron = ul.UltraPLIF(eps=1.0, leak=value, parameter_shape=(2,))
    assert neuron.logit_leak.is_leaf and neuron.log_eps.is_contiguous()
    with torch.no_grad():
        neuron.log_eps[0] = 1.0
    assert neuron.log_eps.tolist() == [1.0, 0.0]  # the entries share no memory


def test_modules_can_be_built_without_memory() -> None:
    """On the meta device, as large models are before their weights are loaded."""
    with torch.device("meta"):
        net = ul.Network((4, 5, 3), neuron="UltraDPLIF", neuron_options={"threshold": torch.full((5,), 0.5)})
    assert all(p.is_meta for p in net.parameters())
    weights = ul.Network((4, 5, 3), neuron="UltraDPLIF", neuron_options={"threshold": torch.full((5,), 0.5)})
    net.load_state_dict(weights.state_dict(), assign=True)
    x = torch.randn(3, 2, 4)
    assert torch.equal(net(x), weights(x))


@pytest.mark.parametrize(
    ("shape", "features", "expected"),
    [
        ((), (5,), True),
        ((5,), (5,), True),
        ((1,), (5,), True),
        ((3, 1), (3, 5), True),
        ((5,), (3, 5), True),
        ((5,), (1,), False),
        ((4,), (5,), False),
        ((2, 5), (5,), False),
        ((1, 5), (5,), False),
    ],
)
def test_which_shapes_fit(shape: tuple[int, ...], features: tuple[int, ...], expected: bool) -> None:
    assert fits(shape, features) is expected


LOW, HIGH = 0.1, 20.0


@pytest.mark.parametrize("x", [0.01, LOW, 1.0, HIGH, 99.0])
@pytest.mark.parametrize("pull", [-1.0, 1.0])
def test_a_bound_stops_only_what_leads_outside(x: float, pull: float) -> None:
    """Descent moves against the gradient: at the lower bound only a negative one leads back."""
    leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    value = bounded(leaf, LOW, HIGH)
    assert value.item() == min(max(x, LOW), HIGH)
    (pull * value).backward()
    outward = (x <= LOW and pull > 0) or (x >= HIGH and pull < 0)
    assert leaf.grad.item() == (0.0 if outward else pull)


def test_bounds_hold_entry_by_entry() -> None:
    leaf = torch.tensor([LOW, LOW, 1.0, HIGH, HIGH], requires_grad=True)
    pull = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])
    (pull * bounded(leaf, LOW, HIGH)).sum().backward()
    assert leaf.grad.tolist() == [0.0, -1.0, 1.0, 1.0, 0.0]
    rows = torch.func.vmap(torch.func.grad(lambda x, p: p * bounded(x, LOW, HIGH)))(leaf.detach(), pull)
    assert rows.tolist() == leaf.grad.tolist()


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("bound", [LOW, HIGH])
def test_eps_comes_back_from_its_bound(
    optimizer: type[torch.optim.SGD | torch.optim.Adam], bound: float
) -> None:
    """Driven into a bound it stops there; pulled back, it leaves, which a plain clamp forbids."""
    neuron = ul.UltraLIF(eps=1.0)
    steps = optimizer(neuron.parameters(), lr=0.1)

    def drive(target: float, times: int) -> None:
        for _ in range(times):
            steps.zero_grad()
            (neuron.eps.log() - math.log(target)).square().backward()
            steps.step()

    drive(1e-3 if bound == LOW else 1e3, 60)
    assert neuron.eps.item() == pytest.approx(bound)
    drive(1.0, 200)
    assert neuron.eps.item() == pytest.approx(1.0, rel=0.05)


def test_eps_at_its_bound_in_a_network() -> None:
    """The same through a whole loss: at the bound the gradient has the sign that leads inside, or is zero."""
    current = torch.randn(5, 8, 6)
    for target in (0.0, 1.0):
        neuron = ul.UltraLIF(eps=LOW)
        free = ul.UltraLIF(eps=LOW, eps_range=(1e-3, HIGH))
        for module in (neuron, free):
            (module(current).mean() - target).square().backward()
        outward = free.log_eps.grad > 0
        expected = torch.zeros(()) if outward else free.log_eps.grad
        torch.testing.assert_close(neuron.log_eps.grad, expected)


def test_learned_constants_keep_to_their_range() -> None:
    """However far an optimizer runs, in either direction."""
    neuron = ul.UltraPLIF(learn_threshold=True)
    slope = ul.LIF(learn_slope=True)
    sharp = ul.DSpike()
    for far in (-80.0, 80.0):
        with torch.no_grad():
            for parameter in nn.ModuleList([neuron, slope, sharp]).parameters():
                parameter.fill_(far)
        assert neuron.eps.item() * (1 + 1e-6) >= LOW and neuron.eps.item() <= HIGH
        assert 0 <= neuron.leak.item() <= 1 and 0 <= neuron.threshold.item() <= 1
        assert 0.05 * (1 - 1e-6) <= slope.surrogate_slope.item() <= 100
        assert 0.1 * (1 - 1e-6) <= sharp.sharpness.item() <= 100
