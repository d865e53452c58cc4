"""The parallel scan: it is the loop, its products are associative, and its error stays small."""

import math

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

from ultralif.functional.parallel import membranes, prefix_products, product, step_matrices
from ultralif.maxplus import lse


def loop(current: Tensor, v0: Tensor, eps: float, leak: float, v_sat: float, tropical: bool) -> Tensor:
    """Step by step, as the formulas say."""
    out, v = [v0], v0
    for x in current:
        if tropical:
            v = torch.maximum(v + math.log(leak), x).clamp(max=v_sat)
        else:
            v = lse(torch.stack((v + math.log(leak), x)), eps, dim=0)
            v = v - lse(torch.stack((torch.zeros_like(v), v - v_sat)), eps, dim=0)
        out.append(v)
    return torch.stack(out)


@pytest.mark.parametrize("time", [1, 2, 3, 7, 64, 101])
@pytest.mark.parametrize("v_sat", [math.inf, 0.8])
@pytest.mark.parametrize("tropical", [False, True])
def test_it_is_the_loop(time: int, v_sat: float, tropical: bool) -> None:
    generator = torch.Generator().manual_seed(time)
    current = torch.randn(time, 2, 5, generator=generator, dtype=torch.float64)
    v0 = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    got = membranes(current, v0, eps=0.2, leak=0.9, v_sat=v_sat, tropical=tropical)
    torch.testing.assert_close(got, loop(current, v0, 0.2, 0.9, v_sat, tropical), rtol=0, atol=1e-12)


@hypothesis.given(
    st.lists(st.floats(-20, 20), min_size=3, max_size=3),
    st.floats(0.05, 2),
    st.floats(0.05, 0.999),
    st.floats(-2, 5) | st.just(math.inf),
    st.booleans(),
)
def test_products_are_associative(
    currents: list[float], eps: float, leak: float, v_sat: float, tropical: bool
) -> None:
    """Also after each is brought to a largest entry of 0: the scan may group steps as it likes."""
    current = torch.tensor(currents, dtype=torch.float64).view(3, 1)
    a, b, c = step_matrices(current, eps=eps, leak=leak, v_sat=v_sat, tropical=tropical).unbind(2)
    left = product(product(a, b, eps, tropical), c, eps, tropical)
    right = product(a, product(b, c, eps, tropical), eps, tropical)
    torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


def test_integers_stay_exact_in_tropical_mode() -> None:
    """The maximum of integers is an integer: 4,096 steps lose nothing, not even in float32."""
    current = torch.randint(-50, 50, (4096, 1, 8), generator=torch.Generator().manual_seed(0)).float()
    v0 = torch.zeros(1, 8)
    got = membranes(current, v0, eps=1.0, leak=math.exp(-3.0), v_sat=40.0, tropical=True)
    whole = loop(current.double(), v0.double(), 1.0, math.exp(-3.0), 40.0, True)
    assert torch.equal(got.round(), whole.round().float())


@pytest.mark.parametrize("v_sat", [math.inf, 1.0])
def test_error_over_a_long_sequence(v_sat: float) -> None:
    """Float32 at T = 4,096 stays within 2e-5 of the float64 loop."""
    current = torch.randn(4096, 1, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    v0 = torch.zeros(1, 8, dtype=torch.float64)
    exact = loop(current.float().double(), v0, 0.1, 0.999, v_sat, False)
    got = membranes(current.float(), v0.float(), eps=0.1, leak=0.999, v_sat=v_sat)
    assert (got - exact).abs().max() < 2e-5


def test_gradients_are_those_of_the_loop() -> None:
    current = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    v0 = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    constants = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.3, 0.8, 0.7)]

    def run(current: Tensor, v0: Tensor, eps: Tensor, leak: Tensor, v_sat: Tensor) -> Tensor:
        return membranes(current, v0, eps=eps, leak=leak, v_sat=v_sat)

    assert torch.autograd.gradcheck(run, (current, v0, *constants))


def test_the_whole_product_is_the_last_prefix() -> None:
    matrices = step_matrices(torch.randn(5, 1, dtype=torch.float64), eps=0.5, leak=0.9, v_sat=1.0)
    whole = matrices[:, :, 0]
    for t in range(1, 5):
        whole = product(matrices[:, :, t], whole, 0.5)
    torch.testing.assert_close(prefix_products(matrices, 0.5)[:, :, -1], whole)
