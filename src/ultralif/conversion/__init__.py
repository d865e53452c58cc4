"""Networks of snnTorch, SpikingJelly and norse, as plain PyTorch with our neurons."""

import sys
from importlib import import_module

from torch import Tensor, nn

from ultralif.conversion.check import SpikeDifference, SpikeMismatch, compare, copied
from ultralif.conversion.neurons import Replacement
from ultralif.conversion.trace import Traced, rebuild, trace
from ultralif.errors import InputError

__all__ = ["SpikeDifference", "SpikeMismatch", "convert"]

_LIBRARIES = ("snntorch", "spikingjelly", "norse")


def convert(net: nn.Module, *, check: Tensor | None = None, share: bool = False) -> nn.Module:
    """Return a network of snnTorch, SpikingJelly or norse as plain PyTorch with our neurons.

    The converted network takes and returns sequences ``[T, B, ...]`` and starts every call at rest. A network
    whose forward loops over time by itself takes what that forward took. Learned constants stay the same
    parameters and surrogate gradients keep their width and height.

    Args:
        net: the network.
        check: an input of the converted network. Both networks run on it in evaluation mode and every spike
            of every layer is compared; the first difference raises `SpikeMismatch`. It also serves as the
            example for a forward that depends on the shape of its input.
        share: share parameters with ``net`` instead of copying them.

    Example:
        >>> import snntorch, torch
        >>> net = nn.Sequential(nn.Linear(8, 4), snntorch.Leaky(beta=0.9, init_hidden=True))
        >>> convert(net, check=torch.rand(20, 2, 8))(torch.rand(50, 3, 8)).shape
        torch.Size([50, 3, 4])
    """
    source = copied(net)
    net = net if share else copied(net)
    replaced = _replacements(net)
    if not replaced:
        raise InputError(
            f"net is a {type(net).__name__} without neurons of snnTorch, SpikingJelly or norse; there is "
            "nothing to convert"
        )
    traced, step = _trace(source, replaced, check)
    made = rebuild(net, traced, step)
    made.train(net.training)
    if check is not None:
        compare(source, made, replaced, check, step)
    return made


def _replacements(net: nn.Module) -> dict[str, Replacement]:
    """Return what replaces the layers of other libraries, by name."""
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
                found[name] = replacement
    return found


def _trace(source: nn.Module, replaced: dict[str, Replacement], x: Tensor | None) -> tuple[Traced, bool]:
    """Trace a network, and tell whether its forward takes one time step."""
    problem: InputError | None = None
    if x is not None:
        try:  # a forward that loops over time, or takes sequences, takes x as it is
            traced = trace(copied(source), replaced, x)
            if not traced.is_step:
                return traced, False
        except InputError as error:
            problem = error
        x = x[0] if x.dim() > 1 else x
    try:
        traced = trace(copied(source), replaced, x)
    except InputError as error:
        raise (problem or error) from None
    if not traced.is_step and problem is not None:
        raise problem
    return traced, traced.is_step
