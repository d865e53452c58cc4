"""The neurons compute what the paper says: against numpy written from it, and against stored traces."""

import numpy as np
import pytest
import torch

from cases import CASES, Case, membrane

pytestmark = pytest.mark.usefixtures("float64")

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
@pytest.mark.parametrize("timesteps", [1, 2, 25])
def test_function_and_module_follow_the_paper(case: Case, timesteps: int) -> None:
    current = case.current(timesteps)
    spikes, v = case.oracle(current.numpy())
    found, state = case.function(current)
    np.testing.assert_allclose(found, spikes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(membrane(state), v, rtol=1e-12, atol=1e-12)
    found, state = case.module().run(current)
    np.testing.assert_allclose(found.detach(), spikes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.v.detach(), v, rtol=1e-12, atol=1e-12)
    if timesteps == 25:  # the comparison means something: neurons fire, and not always
        assert 0.05 < spikes.mean() < 0.95


@every_case
def test_any_initial_membrane(case: Case) -> None:
    current, v0 = case.current(5), case.current(3)[2]
    spikes, v = case.oracle(current.numpy(), v0.numpy())
    found, state = case.function(current, v0)
    np.testing.assert_allclose(found, spikes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(membrane(state), v, rtol=1e-12, atol=1e-12)


@every_case
def test_per_neuron_constants(case: Case) -> None:
    """One constant for each neuron equals as many layers of one neuron's constants."""
    names = [name for name in ("eps", "leak", "threshold", "sharpness") if name in case.constants]
    spread = torch.linspace(0.7, 1.2, int(np.prod(case.features))).reshape(case.features)
    constants = {name: case.constants[name] * spread for name in names}
    current = case.current(6)
    spikes, v = case.oracle(current.numpy(), **{name: value.numpy() for name, value in constants.items()})
    found, state = case.function(current, **constants)
    np.testing.assert_allclose(found, spikes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(membrane(state), v, rtol=1e-12, atol=1e-12)


@every_case
def test_golden_trace(case: Case, golden, request) -> None:
    """The traces that were stored have not moved, and the oracle agrees with them."""
    current = case.current(8, batch=1)
    spikes, state = case.function(current)
    name = request.node.callspec.id
    traced = {"current": current.numpy(), "spikes": spikes.numpy(), "v": membrane(state).numpy()}
    golden.check(name, traced)
    kept = golden.load(name)
    spikes, v = case.oracle(np.array(kept["current"]))
    np.testing.assert_allclose(kept["spikes"], spikes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kept["v"], v, rtol=1e-12, atol=1e-12)
