"""Convert norse neurons and containers."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ultralif.conversion.neurons import Fire, Foreign, Integrator, NorseBox, NorseLIF, Replacement, Surrogate
from ultralif.errors import InputError
from ultralif.nn import Recurrent

__all__ = ["replace"]


def replace(module: nn.Module, name: str) -> Replacement | None:
    """Return the replacement for a norse module; None to convert its children, or if it is not from norse.

    Args:
        module: a layer.
        name: its name, for messages.
    """
    from norse.torch.module import snn
    from norse.torch.module.leaky_integrator import LILinearCell

    kind = type(module)
    known = snn.SNN | snn.SNNCell | snn.SNNRecurrent | snn.SNNRecurrentCell | LILinearCell
    if not isinstance(module, known):
        if kind.__module__.startswith("norse.") and kind.__name__ not in ("SequentialState", "Lift"):
            raise InputError(
                f"layer {name!r} is a {kind.__name__}, which ul.convert does not support; remove it from the "
                "network, or write it as a ul.Stepped neuron"
            )
        return None
    layer: Foreign = module
    makers: dict[str, Callable[[Foreign], nn.Module]] = {
        "LIF": _lif,
        "LIFBox": _box,
        "IAF": _iaf,
        "LI": _li,
        "LIBox": _li,
        "LILinear": lambda layer: nn.Sequential(_linear(layer.input_weights), _li(layer)),
        "LIFRecurrent": _recurrent,
    }
    maker = makers.get(kind.__name__.removesuffix("Cell"))
    if maker is None or not kind.__module__.startswith("norse."):
        raise InputError(
            f"layer {name!r} is a {kind.__name__}, which ul.convert does not support; it converts "
            f"{', '.join(makers)} and their cells. Write it as a ul.Stepped neuron"
        )
    if getattr(layer.p, "method", "super") == "adjoint":
        raise InputError(
            f"layer {name!r}, {kind.__name__}, has method='adjoint'; convert it with method='super'"
        )
    if getattr(layer, "record_states", False):
        raise InputError(
            f"layer {name!r}, {kind.__name__}, has record_states=True; build it without that and use "
            "ul.plot.record on the converted network"
        )
    sequence = isinstance(module, snn.SNN | snn.SNNRecurrent)
    return Replacement(maker(layer), states=("v",), packed=True, sequence=sequence)


def _lif(layer: Foreign, detach: bool = False) -> NorseLIF:
    p = layer.p
    return NorseLIF(
        fire=_surrogate(p),
        start=torch.as_tensor(p.v_leak),
        synapse_rate=layer.dt * torch.as_tensor(p.tau_syn_inv),
        membrane_rate=layer.dt * torch.as_tensor(p.tau_mem_inv),
        v_leak=torch.as_tensor(p.v_leak),
        limit=torch.as_tensor(p.v_th),
        v_reset=torch.as_tensor(p.v_reset),
        detach=detach,
    )


def _box(layer: Foreign) -> NorseBox:
    p = layer.p
    reset = getattr(p.reset_method, "__name__", "")
    if reset not in ("reset_value", "reset_subtract"):
        raise InputError(f"a LIFBoxCell has reset_method={p.reset_method}; use reset_value or reset_subtract")
    rate, rest = layer.dt * torch.as_tensor(p.tau_mem_inv), torch.as_tensor(p.v_leak)
    return _neuron(p, rate, rest, subtract=reset == "reset_subtract")


def _iaf(layer: Foreign) -> NorseBox:
    return _neuron(layer.p, None, torch.as_tensor(layer.p.v_reset), subtract=False)


def _neuron(p: Foreign, rate: Tensor | None, rest: Tensor, *, subtract: bool) -> NorseBox:
    limit, v_reset = torch.as_tensor(p.v_th), torch.as_tensor(p.v_reset)
    return NorseBox(
        fire=_surrogate(p),
        start=rest,
        membrane_rate=rate,
        v_leak=rest,
        limit=limit,
        v_reset=v_reset,
        subtract=subtract,
    )


def _li(layer: Foreign) -> Integrator:
    p = layer.p
    synapse = getattr(p, "tau_syn_inv", None)
    return Integrator(
        layer.dt * torch.as_tensor(p.tau_mem_inv),
        torch.as_tensor(p.v_leak),
        None if synapse is None else layer.dt * torch.as_tensor(synapse),
    )


def _recurrent(layer: Foreign) -> nn.Module:
    feed, back = _linear(layer.input_weights), _linear(layer.recurrent_weights)
    if not layer.autapses and back.weight.requires_grad:
        back.weight.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: gradient.clone().fill_diagonal_(0.0)
        )
    return nn.Sequential(feed, Recurrent(_lif(layer, detach=True), back))


def _linear(weight: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, requires_grad=False)
    return linear


def _surrogate(p: Foreign) -> Fire:
    """Return our equivalent of a norse threshold function; unknown ones are kept."""
    if p.method == "super":  # it ignores alpha
        return Surrogate("superspike")
    if p.method == "tanh":
        return Surrogate("tanh", float(p.alpha))
    if p.method == "triangle":
        return Surrogate("triangle", 1.0, float(p.alpha))
    from norse.torch.functional.threshold import threshold

    return partial(threshold, method=p.method, alpha=p.alpha)
