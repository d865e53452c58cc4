"""The loop over time: precision, signatures, and that it touches nothing of the caller's."""

import inspect

import pytest
import torch

from cases import CASES, Case, membrane
from ultralif import functional

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
FUNCTIONS = ["ultralif", "ultradlif", "lif", "adalif", "dspike", "softlif"]


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision(case: Case, dtype: torch.dtype) -> None:
    """Spikes have the current's precision; half precision is integrated in float32."""
    current = case.current(5).to(dtype)
    spikes, state = case.function(current)
    assert spikes.dtype == dtype and spikes.shape == current.shape
    assert membrane(state).dtype == (dtype if dtype == torch.float64 else torch.float32)
    if dtype in (torch.float16, torch.bfloat16):
        full, full_state = case.function(current.float())
        assert torch.equal(spikes, full.to(dtype))
        assert torch.equal(membrane(state), membrane(full_state))


@every_case
def test_constants_take_the_precision_of_the_membrane(case: Case) -> None:
    """A float64 threshold must not turn a float32 run into a float64 one."""
    current = case.current(4).float()
    wide = {"dtype": torch.float64}  # with axes: a lone float64 number would not change the precision
    constants = {
        name: torch.full(case.features, case.constants[name], **wide) for name in ("threshold", "v_reset")
    }
    spikes, state = case.function(current, **constants)
    assert spikes.dtype == membrane(state).dtype == torch.float32
    torch.testing.assert_close(spikes, case.function(current)[0])


@every_case
def test_arguments_are_left_alone(case: Case) -> None:
    current, v0 = case.current(4), case.current(1)[0]
    constants = {"threshold": torch.tensor(0.4)}
    kept = current.clone(), v0.clone(), constants["threshold"].clone()
    case.function(current, v0, **constants)
    assert all(map(torch.equal, (current, v0, constants["threshold"]), kept))


@every_case
def test_strided_currents(case: Case) -> None:
    """A view with any strides gives what its copy gives."""
    wide = torch.randn(2, *case.features, 6, 3)
    current = wide[..., ::2, 1].movedim(-1, 0)
    assert not current.is_contiguous()
    spikes, state = case.function(current)
    copied, copied_state = case.function(current.contiguous())
    assert torch.equal(spikes, copied) and torch.equal(membrane(state), membrane(copied_state))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_signature_of_its_step(name: str) -> None:
    run, step = getattr(functional, name), getattr(functional, f"{name}_step")
    parameters = list(inspect.signature(run).parameters.values())
    assert [p.name for p in parameters[:2]] == ["current", "v0"] and parameters[1].default is None
    assert parameters[2:] == list(inspect.signature(step).parameters.values())[2:]
    assert run.__name__ == name and run.__module__ == step.__module__ and f"{name}_step" in run.__doc__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_misspelt_constant_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="treshold"):
        getattr(functional, name)(torch.zeros(2, 1, 3), treshold=0.5)


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("ultralif", "mode", "sofd"),
        ("ultradlif", "mode", "Hard"),
        ("dspike", "mode", "tropical"),
        ("softlif", "mode", "tropical"),
    ],
)
def test_an_unknown_choice_is_refused(name: str, argument: str, value: str) -> None:
    """Rather than taken for the last of the choices."""
    constants = {"threshold": 0.5, "leak": 0.9} | ({} if name == "dspike" else {"eps": 1.0})
    with pytest.raises(ValueError, match=f"{argument} must be one of .*, got '{value}'"):
        getattr(functional, name)(torch.zeros(2, 1, 3), **constants, **{argument: value})


def test_minus_infinity_is_no_input_to_ultralif() -> None:
    """A current of -inf, and a membrane that starts there, are absorbed; gradients stay finite."""
    current = torch.randn(6, 1, 4)
    current[2:4] = -torch.inf
    current.requires_grad_()
    eps = torch.tensor(0.5, requires_grad=True)
    v0 = torch.full((1, 4), -torch.inf, requires_grad=True)
    spikes, v = functional.ultralif(current, v0, eps=eps, leak=0.9, threshold=0.5)
    assert torch.isfinite(spikes).all() and torch.isfinite(v).all()
    (spikes.sum() + v.sum()).backward()
    for leaf in (current, eps, v0):
        assert torch.isfinite(leaf.grad).all()
    assert not current.grad[2:4].any()
