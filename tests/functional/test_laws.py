"""What must hold for the neurons' dynamics, whatever the numbers."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.ndimage import grey_dilation
from torch import Tensor

from ultralif import functional
from ultralif.functional import adalif, lif, softlif, ultradlif, ultralif

pytestmark = pytest.mark.usefixtures("float64")

LEAK, THRESHOLD = 0.9, 0.5
NEVER = 1e9
"""A threshold that no membrane reaches: dynamics without reset."""

temperature = st.floats(0.05, 5)


def currents(timesteps: int = 6, *features: int, bound: float = 3) -> st.SearchStrategy[Tensor]:
    shape = (timesteps, 1, *(features or (5,)))
    elements = st.floats(-bound, bound, allow_subnormal=False)
    return arrays.arrays(np.float64, shape, elements=elements).map(torch.from_numpy)


def potentials(current: Tensor, run: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
    """Return the membranes before reset, for a run that spikes where they exceed the threshold."""
    v, found = torch.zeros_like(current[0]), []
    for x in current:
        _, v_free = run(x[None], v, threshold=NEVER)
        _, v = run(x[None], v, threshold=THRESHOLD)
        found.append(v_free)
    return torch.stack(found)


@given(currents(6), st.sampled_from([1e-3, 1e-4]))
def test_tropical_ultralif_is_the_limit(current: Tensor, eps: float) -> None:
    """Away from the threshold, with the error that theorem A of the corrected proposition allows."""
    kappa = 1.0
    hard = partial(ultralif, eps=1.0, leak=LEAK, mode="tropical")
    margin = (potentials(current, hard) - THRESHOLD).abs().min()
    assume(margin > eps * (math.log(7) + kappa + math.log((3 + eps) * 6 / (kappa * eps))))
    spikes, v = ultralif(current, eps=eps, leak=LEAK, threshold=THRESHOLD)
    limit, v_limit = ultralif(current, eps=eps, leak=LEAK, threshold=THRESHOLD, mode="tropical")
    assert (spikes - limit).abs().max() < 1e-3
    assert (v - v_limit).abs().max() <= eps * (math.log(7) + kappa + kappa / 6)


@given(currents(5))
def test_tropical_ultradlif_is_the_limit(current: Tensor) -> None:
    eps, steps = 1e-4, 5
    hard = partial(ultradlif, eps=1.0, mode="tropical")
    margin = (potentials(current, hard) - THRESHOLD).abs().min()
    assume(margin > eps * (steps * math.log(3) + 1 + math.log(steps * 16 / eps)))
    spikes, v = ultradlif(current, eps=eps, threshold=THRESHOLD)
    limit, v_limit = ultradlif(current, eps=eps, threshold=THRESHOLD, mode="tropical")
    assert (spikes - limit).abs().max() < 1e-3
    assert (v - v_limit).abs().max() <= eps * (steps * math.log(3) + 2)


def test_the_limit_of_ultralif_is_not_lif() -> None:
    """The counterexample to proposition 5.2: LIF adds up to a spike, the max-plus limit does not."""
    current = torch.full((2, 1, 1), 0.3)
    assert lif(current, leak=LEAK, threshold=THRESHOLD)[0].flatten().tolist() == [0.0, 1.0]
    soft = ultralif(current, eps=1e-3, leak=LEAK, threshold=THRESHOLD)[0]
    hard = ultralif(current, eps=1e-3, leak=LEAK, threshold=THRESHOLD, mode="tropical")[0]
    assert soft.max() < 1e-80 and hard.flatten().tolist() == [0.0, 0.0]


@given(currents(20))
def test_tropical_ultralif_has_no_memory(current: Tensor) -> None:
    """It spikes exactly where the current exceeds the threshold; delayed reset adds a rest."""
    spikes, _ = ultralif(current, eps=1.0, leak=LEAK, threshold=THRESHOLD, mode="tropical")
    above = (current > THRESHOLD).double()
    assert torch.equal(spikes, above)
    delayed, _ = ultralif(
        current, eps=1.0, leak=LEAK, threshold=THRESHOLD, mode="tropical", delayed_reset=True
    )
    before = torch.zeros_like(current[0])
    for now, spike in zip(above, delayed, strict=True):
        before = now * (1 - before)
        assert torch.equal(spike, before)


@given(currents(1, 12), st.integers(1, 8))
def test_ultradlif_dilates(field: Tensor, steps: int) -> None:
    """With no input its limit is t dilations; the soft form is at most t eps log 3 above."""
    v0, silence = field[0], torch.zeros(steps, *field.shape[1:])
    _, v = ultradlif(silence, v0, eps=1.0, threshold=NEVER, mode="tropical")
    assert np.array_equal(v, grey_dilation(v0, size=(1, 2 * steps + 1), mode="wrap"))
    eps = 0.01
    _, soft = ultradlif(silence, v0, eps=eps, threshold=NEVER)
    excess = soft - v
    assert excess.min() >= -1e-12 and excess.max() <= steps * eps * math.log(3) + 1e-12


@given(currents(5, 6), temperature, st.integers(-7, 7), st.booleans())
def test_the_ring_has_no_beginning(current: Tensor, eps: float, shift: int, reverse: bool) -> None:
    """A current that is rolled gives spikes that are rolled, to the bit; mirrored, likewise."""
    spikes, v = ultradlif(current, eps=eps, threshold=THRESHOLD)
    rolled, v_rolled = ultradlif(current.roll(shift, -1), eps=eps, threshold=THRESHOLD)
    assert torch.equal(rolled, spikes.roll(shift, -1)) and torch.equal(v_rolled, v.roll(shift, -1))
    if reverse:  # the three terms are then added in another order
        mirrored, _ = ultradlif(current.flip(-1), eps=eps, threshold=THRESHOLD)
        torch.testing.assert_close(mirrored, spikes.flip(-1), rtol=1e-9, atol=1e-10)


@given(currents(1, 7), temperature, st.permutations(range(7)))
def test_one_step_from_rest_has_no_neighbours(current: Tensor, eps: float, order: list[int]) -> None:
    """At T = 1 UltraDLIF is sigma((I - theta) / eps + log 3), neuron by neuron, whatever the leak."""
    spikes, _ = ultradlif(current, eps=eps, threshold=THRESHOLD)
    torch.testing.assert_close(spikes, torch.sigmoid((current - THRESHOLD) / eps + math.log(3)))
    assert torch.equal(ultradlif(current[..., order], eps=eps, threshold=THRESHOLD)[0], spikes[..., order])
    leaky, _ = ultradlif(current, eps=eps, threshold=THRESHOLD, leak=LEAK)
    assert torch.equal(leaky, spikes)


@pytest.mark.parametrize("eps", [0.1, 1.0, 20.0])
def test_a_centered_membrane_does_not_drift(eps: float) -> None:
    silence, v0 = torch.zeros(50, 1, 4, 6), torch.full((1, 4, 6), -0.3)
    run = {"eps": eps, "threshold": NEVER}
    _, centered = ultradlif(silence, v0, centered=True, **run)
    torch.testing.assert_close(centered, v0, rtol=1e-11, atol=1e-11)
    _, drifted = ultradlif(silence, v0, **run)
    torch.testing.assert_close(drifted, v0 + 50 * eps * math.log(3))
    _, limit = ultradlif(silence, v0, mode="tropical", centered=True, **run)
    assert torch.equal(limit, v0)


@given(currents(1, 6), temperature, st.integers(1, 6))
def test_a_centered_membrane_preserves_its_mean(field: Tensor, eps: float, steps: int) -> None:
    """The mean of exp(V / eps), which diffusion preserves, for any field."""
    v0, silence = field[0], torch.zeros(steps, *field.shape[1:])
    _, v = ultradlif(silence, v0, eps=eps, threshold=NEVER, centered=True)
    before, after = (torch.logsumexp(x / eps, -1) for x in (v0, v))
    torch.testing.assert_close(after, before, rtol=1e-11, atol=1e-11)


@given(currents(6), temperature)
def test_the_papers_form_is_the_centered_one_with_more_current(current: Tensor, eps: float) -> None:
    spikes, v = ultradlif(current, eps=eps, threshold=THRESHOLD)
    more, v_more = ultradlif(current + eps * math.log(3), eps=eps, threshold=THRESHOLD, centered=True)
    torch.testing.assert_close(more, spikes, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(v_more, v, rtol=1e-9, atol=1e-10)


@given(currents(6), st.floats(0.2, 5))
def test_ultralif_without_reset_is_a_linear_leaky_integrator(current: Tensor, eps: float) -> None:
    """In u = exp(V / eps): u <- leak^(1/eps) u + exp(I / eps), and s = u / (u + exp(theta / eps))."""
    _, v = ultralif(current, eps=eps, leak=LEAK, threshold=NEVER)
    u = torch.ones_like(current[0])
    for x in current:
        u = LEAK ** (1 / eps) * u + torch.exp(x / eps)
    torch.testing.assert_close(torch.exp(v / eps), u, rtol=1e-10, atol=0)
    spike = ultralif(current[:1], eps=eps, leak=LEAK, threshold=THRESHOLD)[0][0]
    u = LEAK ** (1 / eps) + torch.exp(current[0] / eps)
    torch.testing.assert_close(spike, u / (u + math.exp(THRESHOLD / eps)))


@given(currents(8), temperature, st.sampled_from(["ultralif", "ultradlif", "softlif"]))
def test_the_gradient_of_a_spike_is_bounded(current: Tensor, eps: float, name: str) -> None:
    """One step moves a spike by at most |dI| / (4 eps), and never down."""
    constants = {"eps": eps, "threshold": THRESHOLD} | ({} if name == "ultradlif" else {"leak": LEAK})
    last = current[-1:].clone().requires_grad_()
    _, v = getattr(functional, name)(current[:-1], **constants)
    getattr(functional, name)(last, v, **constants)[0].sum().backward()
    assert last.grad.min() >= 0 and last.grad.max() <= 1 / (4 * eps) * (1 + 1e-12)


@given(currents(30), temperature, st.sampled_from(["hard", "tropical"]))
def test_the_gradient_of_a_binary_spike_is_bounded_over_time(current: Tensor, eps: float, mode: str) -> None:
    """By 1 / (4 eps) for UltraLIF, however long ago the current: no step of the membrane amplifies."""
    current.requires_grad_()
    spikes, _ = ultralif(current, eps=eps, leak=LEAK, threshold=THRESHOLD, mode=mode)
    (slope,) = torch.autograd.grad(spikes[-1].sum(), current)
    assert slope.abs().max() <= 1 / (4 * eps) * (1 + 1e-12)


@given(currents(8), temperature)
def test_soft_spikes_lie_in_the_unit_interval_and_hard_ones_at_its_ends(current: Tensor, eps: float) -> None:
    for mode, allowed in (("soft", None), ("hard", {0.0, 1.0}), ("tropical", {0.0, 1.0})):
        for spikes, _ in (
            ultralif(current, eps=eps, leak=LEAK, threshold=THRESHOLD, mode=mode),
            ultradlif(current, eps=eps, threshold=THRESHOLD, mode=mode),
        ):
            assert spikes.min() >= 0 and spikes.max() <= 1
            assert allowed is None or set(spikes.unique().tolist()) <= allowed


@given(currents(10))
def test_softlif_tends_to_lif(current: Tensor) -> None:
    """The control's limit, unlike that of UltraLIF, is LIF: away from the threshold."""
    assume((potentials(current, partial(lif, leak=LEAK)) - THRESHOLD).abs().min() > 0.05)
    spikes, v = lif(current, leak=LEAK, threshold=THRESHOLD)
    soft, v_soft = softlif(current, eps=1e-4, leak=LEAK, threshold=THRESHOLD)
    torch.testing.assert_close(soft, spikes, rtol=0, atol=1e-9)
    torch.testing.assert_close(v_soft, v, rtol=0, atol=1e-9)


@given(currents(10))
def test_adalif_is_lif_until_it_has_fired(current: Tensor) -> None:
    spikes, _ = lif(current, leak=LEAK, threshold=THRESHOLD)
    adaptive, _ = adalif(current, leak=LEAK, threshold=THRESHOLD, adapt_strength=0.0)
    assert torch.equal(adaptive, spikes)
    adaptive, _ = adalif(current, leak=LEAK, threshold=THRESHOLD, adapt_strength=5.0)
    silent_before = spikes.cumsum(0) - spikes == 0
    assert torch.equal(adaptive[silent_before], spikes[silent_before])


def test_adalif_reads_its_spike_two_steps_later() -> None:
    """A spike at once, then a drive that only the raised threshold withstands."""
    current = torch.tensor([0.6, 0.55, 0.55, 0.55]).reshape(4, 1, 1)
    run = {"leak": 1e-9, "threshold": 0.5, "adapt_strength": 1.0, "adapt_decay": 0.9}
    assert adalif(current, **run)[0].flatten().tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("run", "spikes"),
    [
        (lambda x: ultralif(x, eps=1e6, leak=0.3, threshold=0.7), [2 / 3, 0.6932, 0.6955]),
        (lambda x: ultradlif(x, eps=1e6, threshold=0.7), [3 / 4, 0.7979, 0.7984]),
        (lambda x: ultradlif(x, eps=1e6, threshold=0.7, centered=True), [1 / 2, 1 / 2, 1 / 2]),
    ],
    ids=["temporal", "spatial", "centered"],
)
def test_a_hot_neuron_forgets_its_input(run, spikes: list[float]) -> None:
    """As eps grows, spikes tend to constants: 2/3 and 3/4 at first, worked out by hand."""
    found, _ = run(torch.randn(3, 1, 4))
    torch.testing.assert_close(
        found, torch.tensor(spikes).reshape(3, 1, 1).expand(3, 1, 4), rtol=0, atol=1e-4
    )


@given(currents(), temperature)
def test_ultralif_without_reset_is_linear_in_exponentials(current: Tensor, eps: float) -> None:
    """u = exp(V / eps) decays by exp(log_decay) and gains exp(I / eps)."""
    _, v = ultralif(current, eps=eps, leak=LEAK, threshold=NEVER)
    log_decay = functional.log_decay(LEAK, eps)
    terms = torch.cat([current / eps, torch.zeros_like(current[:1])])  # at rest u is 1
    steps = torch.tensor([*reversed(range(len(current))), len(current)]).view(-1, 1, 1)
    expected = torch.logsumexp(terms + log_decay * steps, 0)
    torch.testing.assert_close(v / eps, expected, rtol=1e-10, atol=1e-10)


def test_a_leaky_integrator_holds_what_came_and_then_decays() -> None:
    impulse = torch.tensor([2.0, 0.0, 0.0, 1.0]).view(4, 1, 1)
    i, last = functional.leaky_integrator(impulse, leak=0.5)
    assert i.flatten().tolist() == [2.0, 1.0, 0.5, 1.25] and last.item() == 1.25
