"""Compare a converted network with its source, spike by spike."""

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ultralif.conversion.neurons import Replacement, States
from ultralif.errors import JobError
from ultralif.nn import Neuron, Recurrent
from ultralif.nn.modes import evaluating

__all__ = ["SpikeDifference", "SpikeMismatch", "compare", "copied", "first_of", "observe"]

Step = tuple[Tensor, Tensor | None]
"""A layer's spikes and membranes at one time step; the membranes are None if the library discards them."""
Output = Tensor | Sequence[Tensor]
Hook = Callable[..., None]


class SpikeDifference(NamedTuple):
    """Where the spikes of two networks first differ.

    Example:
        >>> SpikeDifference("1", 3, (0, 7), 1.01, 0.99, differing=1, spikes=640).layer
        '1'
    """

    layer: str
    """The layer's name in the source network."""
    step: int
    neuron: tuple[int, ...]
    """The sample in the batch, then the neuron's position among the features."""
    source_membrane: float | None
    membrane: float | None
    differing: int
    """How many spikes in this layer differ."""
    spikes: int
    """How many spikes were compared in this layer."""


class SpikeMismatch(JobError):
    """A converted network spikes differently from its source; `difference` shows where.

    Example:
        >>> error = SpikeMismatch(SpikeDifference("1", 3, (0, 7), 1.01, 0.99, differing=1, spikes=640))
        >>> error.difference.step
        3
    """

    def __init__(self, difference: SpikeDifference) -> None:
        at = ", ".join(map(str, difference.neuron))
        super().__init__(
            f"the converted network differs from its source: layer {difference.layer!r}, step "
            f"{difference.step}, neuron ({at}), membranes {difference.source_membrane} in the source and "
            f"{difference.membrane} here; {difference.differing} of {difference.spikes} spikes of the layer "
            "differ. Please report it, with the network"
        )
        self.difference = difference


def compare(
    source: nn.Module, net: nn.Module, replaced: dict[str, Replacement], x: Tensor, step: bool, allowed: float
) -> None:
    """Run both networks in evaluation mode and raise `SpikeMismatch` at the first spike that differs.

    Args:
        source: a copy of the original network; its states are changed.
        net: the converted network.
        replaced: the layers that were replaced, by name.
        x: the input of ``net``.
        step: whether the source takes one time step.
        allowed: the share of a layer's spikes that rounding may move; a warning reports such moves.
    """
    theirs, expected = observe(source, replaced, x, step)
    ours: dict[str, tuple[Tensor, Tensor]] = {}
    with ExitStack() as hooks, evaluating(net), torch.no_grad(), _same_draws():
        for name in theirs:
            neuron = _neuron(replaced[name].module)
            hooks.enter_context(neuron.register_forward_hook(_keep_ours(ours, name)))
        found = net(x)
    for name in theirs:  # in call order
        if name in ours:
            difference = _compare_layer(name, theirs[name], *ours[name], _neuron(replaced[name].module))
            if difference is not None and difference.differing <= allowed * difference.spikes:
                warnings.warn(
                    f"rounding moved {difference.differing} of {difference.spikes} spikes of layer {name!r}; "
                    "exact=True keeps the source's order of operations, and every spike",
                    stacklevel=3,
                )
                return
            if difference is not None:
                raise SpikeMismatch(difference)
    _compare_output(expected, found)


@torch.no_grad()
def observe(
    source: nn.Module, replaced: dict[str, Replacement], x: Tensor, step: bool
) -> tuple[dict[str, list[Step]], Output]:
    """Return the spikes and membranes of every replaced layer at every step, and the network's output.

    Args:
        source: the network, in evaluation mode during the call; its states are changed.
        replaced: its layers to observe, by name.
        x: its input, with time first.
        step: whether the network takes one time step.
    """
    theirs: dict[str, list[Step]] = {}
    modules = dict(source.named_modules())
    with ExitStack() as hooks, evaluating(source):
        for name, each in replaced.items():
            if isinstance(_neuron(each.module), Neuron | Recurrent):
                hooks.enter_context(modules[name].register_forward_hook(_keep_theirs(theirs, name, each)))
                if hasattr(modules[name], "store_v_seq"):
                    modules[name].store_v_seq = True
        reset(source)
        with _same_draws():
            return theirs, _run_steps(source, x) if step else source(x)


@contextmanager
def _same_draws() -> Iterator[None]:
    """Make every network draw the same random numbers, because some encode their input randomly."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def reset(net: nn.Module) -> None:
    """Reset neurons from other libraries."""
    for module in net.modules():
        for name in ("reset_mem", "reset"):
            method = getattr(module, name, None)
            if callable(method) and type(module).__module__.startswith(("snntorch.", "spikingjelly.")):
                if name == "reset_mem":
                    for state in ("mem", "syn", "spk"):
                        if isinstance(getattr(module, state, None), Tensor):
                            setattr(module, state, torch.zeros(0))
                else:
                    method()
                break


def _neuron(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.Sequential):
        return _neuron(module[-1])
    return module.neuron if isinstance(module, States) else module


def _keep_theirs(kept: dict[str, list[Step]], name: str, each: Replacement) -> Hook:
    def hook(module: nn.Module, given: object, out: Output) -> None:
        spikes = first_of(out)
        membrane = getattr(module, "v_seq" if each.sequence else "mem", None)
        if membrane is None and isinstance(out, tuple):
            membrane = getattr(out[-1], "v", None)
        if membrane is None and not each.sequence:
            membrane = getattr(module, "v", None)
        if not isinstance(membrane, Tensor) or membrane.shape != spikes.shape:
            membrane = None
        spikes, membrane = spikes.clone(), None if membrane is None else membrane.clone()
        steps = zip(spikes, membrane if membrane is not None else [None] * len(spikes), strict=True)
        kept.setdefault(name, []).extend(steps if each.sequence else [(spikes, membrane)])

    return hook


def _keep_ours(kept: dict[str, tuple[Tensor, Tensor]], name: str) -> Hook:
    def hook(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        kept[name] = given[0], out

    return hook


def _run_steps(source: nn.Module, x: Tensor) -> Output:
    """Run a network that takes single time steps on a sequence, and return its outputs without states."""
    outs: list[tuple[Tensor, ...]] = []
    _, *others = inspect.signature(source.forward).parameters.values()
    names = [each.name for each in others if not isinstance(each.default, int | float | str)]
    states: dict[str, object] = dict.fromkeys(names)
    for frame in x:
        out = source(frame, **states)
        if len(names) > 1 and isinstance(out, tuple) and type(out[-1]) is tuple:  # all states together
            out = (*out[:-1], *out[-1])
        if names and isinstance(out, tuple) and len(out) > len(names):  # states come last
            out, kept = out[: -len(names)], out[-len(names) :]
            states = dict(zip(names, kept, strict=True))
        outs.append(tuple(_tensors(out)))
    stacked = tuple(torch.stack(each) for each in zip(*outs, strict=True))
    return stacked if len(stacked) > 1 else stacked[0]


def first_of(out: Output) -> Tensor:
    """Return the first of several outputs; for a neuron, these are the spikes."""
    return next(_tensors(out))


def _tensors(out: object) -> Iterator[Tensor]:
    """Yield the tensors in an output; states, if any, come last."""
    if isinstance(out, Tensor):
        yield out
    elif isinstance(out, tuple | list):
        for each in out:
            yield from _tensors(each)


def _compare_layer(
    name: str,
    theirs: list[Step],
    current: Tensor,
    spikes: Tensor,
    neuron: nn.Module,
) -> SpikeDifference | None:
    expected = torch.stack([pair[0] for pair in theirs]).to(spikes)
    if expected.shape != spikes.shape:
        raise JobError(
            f"layer {name!r} returns spikes of shape {tuple(spikes.shape)}, but its source "
            f"returns {tuple(expected.shape)}; please report this network"
        )
    differing = (expected != spikes).nonzero()
    if not len(differing):
        return None
    step, *place = differing[0].tolist()
    state: object = None
    for x in current[: step + 1]:
        _, state = neuron.step(x, state)  # type: ignore[operator]
    at = tuple(place)
    membrane = theirs[step][1]
    return SpikeDifference(
        name,
        step,
        at,
        None if membrane is None else float(membrane[at]),
        float(getattr(state, "neuron", state).v[at]),  # type: ignore[attr-defined]
        len(differing),
        spikes.numel(),
    )


def _compare_output(expected: Output, found: Output) -> None:
    for one, other in zip(_tensors(expected), _tensors(found), strict=False):
        if one.shape != other.shape or not torch.allclose(one.to(other), other, rtol=1e-3, atol=1e-4):
            raise JobError(
                f"the converted network spikes like its source but returns a different output, "
                f"{tuple(other.shape)} instead of {tuple(one.shape)}; please report this network"
            )


def copied(net: nn.Module) -> nn.Module:
    """Return a copy of a network without the states of its neurons."""
    made: list[Tensor] = []  # tensors computed by the network, such as its states
    for module in net.modules():
        places = [vars(module), module._buffers, *(v for v in vars(module).values() if isinstance(v, dict))]
        made += [t for place in places for t in place.values() if isinstance(t, Tensor) and not t.is_leaf]
    found = copy.deepcopy(net, {id(tensor): tensor.detach().clone() for tensor in made})
    reset(found)
    return found
