"""Convert networks from snnTorch, SpikingJelly and norse to plain PyTorch with our neurons."""

import sys
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ultralif.conversion.check import SpikeDifference, SpikeMismatch, compare, copied, first_of, observe
from ultralif.conversion.neurons import ConvertedNeuron, Replacement
from ultralif.conversion.streaming import streaming, with_lif
from ultralif.conversion.trace import Traced, rebuild, trace
from ultralif.errors import InputError
from ultralif.nn import Recurrent
from ultralif.nn.modes import evaluating

__all__ = ["SpikeDifference", "SpikeMismatch", "convert", "is_foreign", "run_source", "streaming", "with_lif"]

_LIBRARIES = ("snntorch", "spikingjelly", "norse")
ROUNDING = 1e-3
"""The largest share of a layer's spikes that rounding may move."""


def convert(
    net: nn.Module, *, check: Tensor | None = None, share: bool = False, exact: bool = False
) -> nn.Module:
    """Return a network from snnTorch, SpikingJelly or norse as plain PyTorch with our neurons.

    The converted network takes and returns sequences ``[T, B, ...]`` and starts every call at rest. A network
    whose forward loops over time by itself takes the same input as before. Learned constants remain the same
    parameters, and surrogate gradients keep their width and height.

    Args:
        net: the network.
        check: an input for the converted network. Both networks run on it in evaluation mode, and every spike
            of every layer is compared. The first difference raises `SpikeMismatch`. The input also serves as
            the example if the forward depends on its shape.
        share: share parameters with ``net`` instead of copying them.
        exact: keep the source's order of operations, so that every spike is the same. If False, neurons
            become a `LIF`, which has kernels, wherever the gradients are the same. It rounds differently,
            which may occasionally move a spike; with ``check``, a warning reports it.

    Example:
        >>> import snntorch, torch
        >>> net = nn.Sequential(nn.Linear(8, 4), snntorch.Leaky(beta=0.9, init_hidden=True))
        >>> convert(net, check=torch.rand(20, 2, 8))(torch.rand(50, 3, 8)).shape
        torch.Size([50, 3, 4])
    """
    source = copied(net)
    net = net if share else copied(net)
    replaced = _replacements(net, exact)
    if not replaced:
        raise InputError(
            f"net is a {type(net).__name__} without snnTorch, SpikingJelly or norse neurons; there is "
            "nothing to convert"
        )
    traced, step = _trace(source, replaced, check)
    made = rebuild(net, traced, step)
    if is_foreign(made):
        raise InputError("the converted network still contains a foreign neuron; please report it")
    made.train(net.training)
    if check is not None:
        compare(source, made, replaced, check, step, 0.0 if exact else ROUNDING)
    return made


class Observed(NamedTuple):
    """How a network from another library responds to an input."""

    spikes: tuple[Tensor, ...]
    """``[T, B, *features]`` for each layer, in call order."""
    scores: Tensor
    """The output ``[B, *output]``, averaged over time if it has a time axis."""


def run_source(net: nn.Module, x: Tensor) -> Observed:
    """Run a network from snnTorch, SpikingJelly or norse without changing it.

    Args:
        net: the network.
        x: an input for the converted network.

    Example:
        >>> from ultralif import LIF
        >>> observed = run_source(nn.Sequential(nn.Linear(4, 2), LIF()), torch.rand(5, 3, 4))
        >>> observed.scores.shape
        torch.Size([3, 2])
    """
    source, replaced = copied(net), _replacements(copied(net), exact=True)
    _, step = _trace(copied(net), replaced, x)
    theirs, output = observe(source, replaced, x, step)
    spikes = tuple(torch.stack([spike for spike, _ in steps]) for steps in theirs.values())
    scores = first_of(output)
    return Observed(spikes, scores.mean(0) if scores.dim() > 2 else scores)


def is_foreign(net: nn.Module) -> bool:
    """Return whether a network contains snnTorch, SpikingJelly or norse layers.

    Example:
        >>> from ultralif import LIF
        >>> is_foreign(nn.Sequential(nn.Linear(4, 2), LIF()))
        False
    """
    return bool(_replacements(net, exact=True))


def _replacements(net: nn.Module, exact: bool) -> dict[str, Replacement]:
    """Return the replacements for layers from other libraries, by name."""
    libraries = {type(module).__module__.split(".")[0] for module in net.modules()}
    derived = {base.__module__.split(".")[0] for module in net.modules() for base in type(module).__mro__}
    found: dict[str, Replacement] = {}
    for library in _LIBRARIES:
        if library not in libraries | derived or library not in sys.modules:
            continue
        replace = import_module(f"ultralif.conversion.{library}").replace
        for name, module in net.named_modules():
            inside = any(name.startswith(f"{outer}.") or not outer for outer in found)
            replacement = None if inside else replace(module, name)
            if replacement is not None:
                fast = replacement.module if exact else _with_kernels(replacement.module)
                found[name] = replacement._replace(module=fast, observed=replacement.module)
    return found


def _with_kernels(module: nn.Module) -> nn.Module:
    """Return a layer with its neuron replaced by a `LIF`, if the gradients are the same."""
    if isinstance(module, ConvertedNeuron):
        return module.or_lif()
    if isinstance(module, Recurrent) and isinstance(module.neuron, ConvertedNeuron):
        return Recurrent(module.neuron.or_lif(), module.linear)
    if isinstance(module, nn.Sequential):
        return nn.Sequential(*map(_with_kernels, module))
    return module


def _trace(source: nn.Module, replaced: dict[str, Replacement], x: Tensor | None) -> tuple[Traced, bool]:
    """Trace a network, and return whether its forward takes one time step."""
    problem: InputError | None = None
    given = x
    if x is not None:
        try:  # a forward that loops over time, or takes sequences, accepts x itself
            traced = trace(copied(source), replaced, x)
            if not traced.is_step:
                return traced, False
        except InputError as error:
            problem = error
        x = x[0] if x.dim() > 1 else x
    try:
        traced = trace(copied(source), replaced, x)
    except InputError as error:
        if problem is not None and given is not None:
            _check_runs(source, given)
        raise (problem or error) from None
    if not traced.is_step and problem is not None:
        raise problem
    return traced, traced.is_step


def _check_runs(source: nn.Module, x: Tensor) -> None:
    """Raise an error if a network accepts neither an input nor its first step."""
    for example in (x[0], x):
        try:
            with evaluating(source), torch.no_grad():
                copied(source)(example)
            return
        except Exception as error:
            problem = error
    raise InputError(
        f"the network fails on check, which has shape {tuple(x.shape)}, and on its first step: {problem}. "
        "Pass [T, B, ...], or the input that its forward expects"
    ) from problem
