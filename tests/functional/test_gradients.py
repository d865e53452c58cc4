"""Backward is the derivative of forward: gradcheck in float64, and the closed forms of one step."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from cases import EXACT, Case, membrane
from ultralif import functional

pytestmark = pytest.mark.usefixtures("float64")

every_exact_case = pytest.mark.parametrize("case", EXACT.values(), ids=EXACT)


def learnable(case: Case) -> dict[str, Tensor]:
    """Return the constants that can be learned, as leaves of the graph."""
    names = [name for name in ("eps", "leak", "threshold", "sharpness", "v_reset") if name in case.constants]
    return {name: torch.tensor(case.constants[name], requires_grad=True) for name in names}


@every_exact_case
@pytest.mark.parametrize("timesteps", [1, 2, 7])
def test_gradients_are_exact(case: Case, timesteps: int) -> None:
    """Spikes and last membrane, differentiated by current, initial membrane and every constant."""
    current = case.current(timesteps, batch=1).requires_grad_()
    v0 = (0.3 * case.current(1, batch=1)[0]).requires_grad_()
    constants = learnable(case)

    def run(current: Tensor, v0: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        spikes, state = case.function(current, v0, **dict(zip(constants, values, strict=True)))
        return spikes, membrane(state)

    assert gradcheck(run, (current, v0, *constants.values()))


@every_exact_case
@pytest.mark.parametrize("timesteps", [1, 2, 7])
def test_gradients_of_the_raw_parameters_are_exact(case: Case, timesteps: int) -> None:
    """Through the module: exponential, sigmoid and clamp are differentiated too."""
    learn = {
        f"learn_{name}": True for name in ("eps", "leak", "threshold", "sharpness") if name in case.constants
    }
    neuron = case.module(**learn)
    names, values = zip(*neuron.named_parameters(), strict=True)
    assert len(names) == len(learn)

    def run(current: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        spikes, state = torch.func.functional_call(
            Run(neuron), {f"neuron.{name}": v for name, v in zip(names, values, strict=True)}, (current,)
        )
        return spikes, state.v

    current = case.current(timesteps, batch=1).requires_grad_()
    assert gradcheck(run, (current, *(value.detach().requires_grad_() for value in values)))


class Run(torch.nn.Module):
    """Call ``run`` where a module's forward is called."""

    def __init__(self, neuron: torch.nn.Module) -> None:
        super().__init__()
        self.neuron = neuron

    def forward(self, current: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.neuron.run(current)


@pytest.mark.parametrize("name", ["UltraLIF-soft", "UltraDLIF-soft", "SoftLIF"])
def test_second_derivatives_are_exact(name: str) -> None:
    case = EXACT[name]
    current = case.current(2, batch=1).requires_grad_()
    eps = torch.tensor(0.7, requires_grad=True)
    assert gradgradcheck(lambda current, eps: case.function(current, eps=eps), (current, eps))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own
@every_exact_case
def test_forward_mode_agrees(case: Case) -> None:
    """A directional derivative forward equals the gradient's product with that direction."""
    current, direction = case.current(3, batch=1), torch.cos(case.current(3, batch=1))
    _, ahead = torch.func.jvp(lambda x: case.function(x)[0].sum(), (current,), (direction,))
    back = torch.func.grad(lambda x: case.function(x)[0].sum())(current)
    torch.testing.assert_close(ahead, (back * direction).sum(), rtol=1e-10, atol=1e-12)


class OneStep:
    """One step at many points at once, and its gradients in closed form.

    With z = (P - threshold) / eps for the potential P before reset, g = s(1 - s) / eps and
    d = P - v_reset, a loss c_s * spike + c_v * v pulls on P by u = c_s * g + c_v * (1 - s - g * d).
    """

    def __init__(self) -> None:
        self.current, self.v = self.leaf(-3, 3), self.leaf(-3, 3)
        self.log_leak, self.eps, self.threshold = self.leaf(-3, -0.01), self.leaf(0.1, 3), self.leaf(0.1, 2)
        self.v_reset = self.leaf(-0.5, 0.5)

    @staticmethod
    def leaf(low: float, high: float) -> Tensor:
        return torch.empty(1, 200).uniform_(low, high).requires_grad_()

    def differentiate(
        self, spike: Tensor, after: Tensor, entropy: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Fill the leaves' gradients by autograd; return u and the closed forms.

        Args:
            spike: what the step returned.
            after: the membrane that it returned.
            entropy: dP/d eps, the entropy of the log-sum-exp's weights.
        """
        c_s, c_v = torch.rand_like(spike), torch.rand_like(spike)
        (c_s * spike + c_v * after).sum().backward()
        with torch.no_grad():
            z = torch.logit(spike)
            g = spike * (1 - spike) / self.eps
            d = self.threshold + self.eps * z - self.v_reset
            u = c_s * g + c_v * (1 - spike - g * d)
            return u, {
                "eps": u * entropy - c_s * g * z + c_v * g * z * d,
                "threshold": -c_s * g + c_v * g * d,
                "v_reset": c_v * spike,
            }

    def check(self, expected: dict[str, Tensor]) -> None:
        for name, gradient in expected.items():
            found = getattr(self, name).grad
            torch.testing.assert_close(
                found, gradient.sum_to_size(found.shape), rtol=1e-9, atol=1e-12, msg=name
            )


def test_one_step_of_ultralif_has_the_closed_form() -> None:
    x = OneStep()
    p = torch.sigmoid((x.v + x.log_leak - x.current) / x.eps).detach()
    spike, after = functional.ultralif_step(
        x.current, x.v, eps=x.eps, leak=x.log_leak.exp(), threshold=x.threshold, v_reset=x.v_reset
    )
    u, expected = x.differentiate(spike, after, torch.special.entr(p) + torch.special.entr(1 - p))
    x.check({"current": u * (1 - p), "v": u * p, "log_leak": u * p, **expected})


@pytest.mark.parametrize("centered", [False, True])
def test_one_step_of_ultradlif_has_the_closed_form(centered: bool) -> None:
    x = OneStep()
    x.eps = torch.tensor(0.6, requires_grad=True)
    around = torch.stack([x.v.roll(1, -1), x.v, x.v.roll(-1, -1)])
    weights = torch.softmax(around / x.eps, 0).detach()
    spike, after = functional.ultradlif_step(
        x.current, x.v, eps=x.eps, threshold=x.threshold, v_reset=x.v_reset, centered=centered
    )
    u, expected = x.differentiate(spike, after, torch.special.entr(weights).sum(0) - math.log(3) * centered)
    from_left, own, from_right = weights * u
    x.check({"current": u, "v": from_left.roll(-1, -1) + own + from_right.roll(1, -1), **expected})
