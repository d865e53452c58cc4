"""Describe any network by running it once and recording its layers as they are called."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ultralif.errors import InputError
from ultralif.export.graph import (
    Flatten,
    Geometry,
    Graph,
    Input,
    Last,
    Leaky,
    Node,
    Norm,
    Op,
    Pooling,
    PoolKind,
    Spikes,
    Sum,
    Synapses,
    evaluating,
    norm_constants,
)
from ultralif.nn import DelayedLinear, LeakyIntegrator, Network, Neuron, Recurrent

__all__ = ["describe", "input_shape"]

STEPS, BATCH = 2, 3  # sizes in the recorded run; they and their product must all differ
NOTHING = (nn.Identity, nn.Dropout, nn.Dropout2d)
LAYERS = (
    nn.Linear,
    nn.Conv2d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.AvgPool2d,
    nn.MaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.Flatten,
    *NOTHING,
)
SAME = {"contiguous", "clone", "detach", "to", "float", "double", "flatten", "reshape", "view", "unflatten"}
ADD = {"add", "add_", "__add__", "__radd__", "__iadd__"}


@dataclass(frozen=True)
class _TimeMean:
    """The mean over time, which `describe` moves to the end."""


@dataclass(frozen=True)
class _Feedback:
    """Neurons and their feedback synapses, which `describe` writes as four nodes."""

    synapses: Synapses
    neuron: Neuron[Any]


@dataclass(frozen=True)
class Unknown:
    """A module that a graph cannot express."""

    reason: str
    instead: str = "use Linear, Conv2d, batch norm, pooling, Flatten, Dropout and ultralif neurons"


BATCH_FIRST = Unknown("has batch_first=True", "put the time first, [T, B, ...], and leave it out")


class Noted(NamedTuple):
    """A recorded operation, with the positions of its inputs."""

    name: str
    op: Op | _TimeMean | _Feedback | Unknown
    inputs: tuple[int, ...]
    shape: tuple[int, ...]


def describe(net: nn.Module, shape: Sequence[int] | None = None) -> Graph:
    """Return the operations of a network over ``[T, B, *shape]``, with batch normalization folded in.

    The network is run once on zeros, in evaluation mode. Its layers may be Linear, Conv2d, BatchNorm,
    average and maximum pooling, Flatten, Dropout, our neurons, sums of two branches, `TimeDistributed`,
    and a mean over time before or after the last linear layers. The graph leaves that mean out: the mean of
    its outputs over time is the network's output.

    Args:
        net: any module with our neurons.
        shape: the feature shape of one time step, such as ``(1, 28, 28)``; not needed if the network
            begins with Linear.

    Example:
        >>> from torch import nn
        >>> from ultralif.nn import LIF
        >>> len(describe(nn.Sequential(nn.Linear(4, 8), LIF(), nn.Linear(8, 2))).nodes)
        4
    """
    shape = input_shape(net, shape)
    for name, module in net.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise InputError(
                f"layer {name or type(module).__name__!r} has a forward hook, which an export would leave "
                "out; remove it first (hook.remove(), or torch.nn.utils.prune.remove for a pruned layer)"
            )
    parameter = next(net.parameters(), torch.zeros(()))
    x = torch.zeros(STEPS, BATCH, *shape, dtype=parameter.dtype, device=parameter.device)
    watch = _Watch(net, x)
    try:
        with evaluating(net), torch.no_grad(), watch:
            output = net(x)
    except (RuntimeError, IndexError) as error:
        raise InputError(
            f"the network cannot be run on an input of shape {(STEPS, BATCH, *shape)}: {error}"
        ) from error
    finally:
        watch.forget()
    return watch.graph(output)


def input_shape(net: nn.Module, shape: Sequence[int] | None) -> tuple[int, ...]:
    """Return a network's input shape, as given or as read from its NIR file or first layer."""
    shape = getattr(net, "input_shape", None) if shape is None else shape
    if shape is not None:
        if not shape or any(size < 1 for size in shape):
            raise InputError(f"shape must be positive sizes, such as (1, 28, 28), got {tuple(shape)}")
        return tuple(shape)
    if isinstance(net, Network):
        return (net.sizes[0],)
    layers = [m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d | DelayedLinear)]
    if layers and isinstance(layers[0], nn.Linear):
        return (layers[0].in_features,)
    if layers and isinstance(layers[0], DelayedLinear):
        return (layers[0].inputs,)
    raise InputError(
        "shape is needed for a network that does not begin with Linear; pass the feature shape of one time "
        "step, such as shape=(1, 28, 28)"
    )


class _Watch(TorchFunctionMode):
    """Records the calls of a network's modules, and of torch functions between them."""

    def __init__(self, net: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.nodes: list[Noted] = []
        self.places: dict[int, int] = {}
        self.kept: list[Tensor] = []  # kept alive, so that no other tensor gets the same id
        self.inside = 0
        self.hooks: list[Any] = []
        for name, module in net.named_modules():
            if _is_leaf(module):
                self.hooks.append(module.register_forward_pre_hook(self._enter))
                self.hooks.append(module.register_forward_hook(self._leave(name or type(module).__name__)))
        self._note("input", Input(), (), x)

    def forget(self) -> None:
        """Restore the network."""
        for hook in self.hooks:
            hook.remove()
        self.kept.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a torch function, and record it unless a layer called it."""
        kwargs = kwargs or {}
        self.inside += 1
        try:
            out = func(*args, **kwargs)
        finally:
            self.inside -= 1
        if not self.inside:
            given = [part for part in (*args, *kwargs.values()) if isinstance(part, Tensor)]
            inputs = tuple(self.places[id(part)] for part in given if id(part) in self.places)
            if _writes(func, args, kwargs, self.places):
                raise InputError(
                    f"the network changes a tensor in place after layer {self.nodes[inputs[0]].name!r} "
                    f"({func.__name__}), which cannot be exported; write the result to a new tensor"
                )
            for part in out if isinstance(out, tuple | list) else (out,):
                if inputs and isinstance(part, Tensor):
                    name = getattr(func, "__name__", "an operation")
                    self._function(name, inputs, args, kwargs, part)
        return out

    def _enter(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        self.inside += 1

    def _leave(self, name: str) -> Any:
        def leave(module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
            self.inside -= 1
            if self.inside or not isinstance(out, Tensor) or not given or id(given[0]) not in self.places:
                return
            place = self.places[id(given[0])]
            foreign = _foreign(module)
            if foreign is not None:
                self._note(name, foreign, (place,), out)
            elif isinstance(module, NOTHING):
                self._same(place, out)
            elif isinstance(module, nn.Flatten):
                self._reshape(name, "Flatten", place, out)
            else:
                self._note(name, operation(module, self.nodes[place].shape), (place,), out)

        return leave

    def _function(self, name: str, inputs: tuple[int, ...], args: Any, kwargs: Any, out: Tensor) -> None:
        """Record a function between layers."""
        shape = self.nodes[inputs[0]].shape
        label = f"{name.strip('_')} {len(self.nodes)}"
        if name in ADD and len(inputs) == 2 and not kwargs and self.nodes[inputs[1]].shape == shape:
            self._note(label, Sum(), inputs, out)
        elif name in SAME and len(inputs) == 1:
            self._reshape(label, name, inputs[0], out)
        elif name == "mean" and len(inputs) == 1:
            self._mean(label, inputs[0], args, kwargs, out)
        else:
            instead = "between layers, only sums, means, flattening and reshaping are supported"
            self._note(label, Unknown(f"is the operation {name!r}", instead), inputs, out)

    def _mean(self, label: str, place: int, args: Any, kwargs: Any, out: Tensor) -> None:
        """Record a mean over time, over the positions of a map, or over both."""
        x, shape = args[0], self.nodes[place].shape
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        axes = {a % x.dim() for a in (axis if isinstance(axis, tuple | list) else (axis,)) if a is not None}
        time = {0} if x.shape[:2] == (STEPS, BATCH) else set()
        places = {x.dim() - 2, x.dim() - 1} if len(shape) == 3 else set()
        if not axes or axes not in (time, places, time | places) or kwargs.get("keepdim", len(args) > 2):
            instead = "average over time (0), over a whole map (-2, -1), or over both"
            self._note(label, Unknown(f"is a mean over {axis!r}", instead), (place,), out)
            return
        if places and axes >= places:
            size = (shape[1], shape[2])
            self._note(label, Pooling("mean", size, size), (place,), out, (shape[0], 1, 1))
            self._note(f"flatten {len(self.nodes)}", Flatten(), (len(self.nodes) - 1,), out, shape[:1])
        if time and axes >= time:
            before = len(self.nodes) - 1 if places and axes >= places else place
            self._note(label, _TimeMean(), (before,), out)

    def _reshape(self, label: str, name: str, place: int, out: Tensor) -> None:
        """Record a function that only rearranges values, such as folding time into the batch."""
        shape = self.nodes[place].shape
        if _features(out) == shape:
            self._same(place, out)
        elif _features(out) == (math.prod(shape),):
            self._note(label, Flatten(), (place,), out)
        else:
            instead = "flatten all features of a time step, or fold time into the batch"
            self._note(label, Unknown(f"is {name!r} to shape {tuple(out.shape)}", instead), (place,), out)

    def _same(self, place: int, out: Tensor) -> None:
        self.places[id(out)] = place
        self.kept.append(out)

    def _note(
        self,
        name: str,
        op: Op | _TimeMean | _Feedback | Unknown,
        inputs: tuple[int, ...],
        out: Tensor,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self._same(len(self.nodes), out)
        self.nodes.append(Noted(name, op, inputs, _features(out) if shape is None else shape))

    def graph(self, output: Any) -> Graph:
        """Return the operations that lead to the output."""
        output = output[0] if isinstance(output, tuple) else output
        if not isinstance(output, Tensor) or id(output) not in self.places:
            raise InputError(
                "the network's output could not be traced back to its input; return a tensor computed by its "
                "layers, outside torch.no_grad or numpy"
            )
        last = self.places[id(output)]
        reached = {last}
        for place in range(last, -1, -1):
            if place in reached:
                reached.update(self.nodes[place].inputs)
        return _simplified({i: self.nodes[i] for i in sorted(reached)})


def _writes(func: Any, args: Any, kwargs: Any, places: dict[int, int]) -> bool:
    """Return whether a torch function changes a traced tensor in place, except by a sum, which is traced."""
    name = getattr(func, "__name__", "")
    if not args or id(args[0]) not in places or name in (*ADD, "requires_grad_", "retain_grad"):
        return False
    inplace = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    operator = (
        name.startswith("__i") and name.endswith("__") and name not in ("__index__", "__int__", "__invert__")
    )
    return inplace or operator or name == "__set__" or id(kwargs.get("out")) in places


def _foreign(module: nn.Module) -> Unknown | None:
    """Refuse a subclass of a layer that computes something else, or a layer whose forward was replaced."""
    for kind in LAYERS:
        if isinstance(module, kind) and type(module) is not kind:
            for name in ("forward", "__call__", "_conv_forward"):
                if getattr(type(module), name, None) is not getattr(kind, name, None):
                    return Unknown(
                        f"is {type(module).__name__}, a {kind.__name__} with its own {name}, which an export "
                        "would leave out",
                        f"use {kind.__name__} itself",
                    )
    if isinstance(module, LAYERS) and "forward" in vars(module):
        return Unknown(
            "has a forward that was replaced, which an export would leave out",
            "restore it: del layer.forward",
        )
    return None


def _is_leaf(module: nn.Module) -> bool:
    return isinstance(module, Neuron | Recurrent) or not any(True for _ in module.children())


def _features(x: Tensor) -> tuple[int, ...]:
    """Return a shape without its time and batch axes, which may be folded into one."""
    if x.shape[:2] == (STEPS, BATCH):
        return tuple(x.shape[2:])
    return tuple(x.shape[1:]) if x.shape[:1] in ((BATCH,), (STEPS * BATCH,)) else tuple(x.shape)


def _simplified(noted: dict[int, Noted]) -> Graph:
    """Refuse unknown operations, move the mean over time to the end, fold batch normalization."""
    moved: dict[int, int] = {}  # maps each node's recorded position to its current one
    nodes: list[Node] = []
    averaged: set[int] = set()
    for place, (name, op, inputs, shape) in noted.items():
        if isinstance(op, Unknown):
            raise InputError(f"layer {name!r} {op.reason} and cannot be exported; {op.instead}")
        after_mean = any(i in averaged for i in inputs)
        if after_mean and (_remembers(op) or (isinstance(op, Pooling) and op.kind == "max")):
            raise InputError(f"layer {name!r} follows the mean over time; take that mean after it")
        if after_mean or isinstance(op, _TimeMean):
            averaged.add(place)
        taken = tuple(moved[i] for i in inputs)
        synapses = _foldable(noted, inputs[0], op) if isinstance(op, Norm) else None
        if isinstance(op, _TimeMean):
            moved[place] = taken[0]
        elif isinstance(op, _Feedback):
            here = len(nodes)
            moved[place] = here + 3
            nodes += [
                Node(f"{name}.last", Last(here + 3), (), shape),
                Node(f"{name}.linear", op.synapses, (here,), shape),
                Node(f"{name}.sum", Sum(), (taken[0], here + 1), shape),
                Node(name, Spikes(op.neuron), (here + 2,), shape),
            ]
        elif isinstance(op, Norm) and synapses is not None:
            before = nodes[moved[synapses]]
            if isinstance(before.op, Synapses):
                nodes[moved[synapses]] = replace(before, op=replace(before.op, norm=op.module))
            moved[place] = taken[0]
            _flip(nodes, taken[0], op)
        else:
            moved[place] = len(nodes)
            nodes.append(Node(name, op, taken, shape))
    if not any(isinstance(node.op, Spikes) for node in nodes):
        raise InputError("the network has no ultralif neurons between its input and its output")
    return Graph(tuple(nodes))


def _remembers(op: Any) -> bool:
    """Return whether an operation depends on earlier time steps."""
    return isinstance(op, Spikes | Leaky | _Feedback) or (isinstance(op, Synapses) and op.delay is not None)


def _flip(nodes: list[Node], place: int, norm: Norm) -> None:
    """Turn the maxima between synapses and a normalization into minima where its scale is negative."""
    scale, _, _ = norm_constants(norm.module)
    flipped = tuple((scale < 0).nonzero().flatten().tolist())
    while isinstance(op := nodes[place].op, Pooling):
        if op.kind == "max":
            nodes[place] = replace(nodes[place], op=replace(op, flipped=flipped))
        (place,) = nodes[place].inputs


def _foldable(noted: dict[int, Noted], place: int, norm: Norm) -> int | None:
    """Return the synapses that a normalization follows, directly or after pooling; None if it cannot fold.

    A mean commutes with any normalization; a maximum becomes a minimum where the scale is negative.
    """
    while True:
        _, op, inputs, _ = noted[place]
        readers = sum(other.inputs.count(place) for other in noted.values())
        if readers == 1 and isinstance(op, Synapses):
            return place
        if readers > 1 or not isinstance(op, Pooling):
            return None
        (place,) = inputs


def operation(module: nn.Module, shape: tuple[int, ...]) -> Op | _Feedback | Unknown:
    """Return the operation of a module."""
    if isinstance(module, nn.Linear | DelayedLinear):
        return Synapses(module, None)
    if isinstance(module, nn.Conv2d):
        return _convolution(module)
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_mean is not None:
        return Norm(module)
    if isinstance(module, Neuron):
        return BATCH_FIRST if module.batch_first else Spikes(module)
    if isinstance(module, nn.AvgPool2d | nn.MaxPool2d):
        return _pool(module)
    if isinstance(module, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d):
        wanted = _pair(module.output_size)
        sizes = [(have, want or have) for have, want in zip(shape[1:], wanted, strict=True)]
        if any(have % want for have, want in sizes):
            instead = "choose an output size that divides the map"
            return Unknown(f"pools {shape[1:]} to {wanted}, which no single window divides", instead)
        rows, columns = (have // want for have, want in sizes)
        kind: PoolKind = "mean" if isinstance(module, nn.AdaptiveAvgPool2d) else "max"
        return Pooling(kind, (rows, columns), (rows, columns))
    if isinstance(module, LeakyIntegrator):
        return BATCH_FIRST if module.batch_first else Leaky(module.leak, module)
    if isinstance(module, Recurrent):
        feedback = operation(module.linear, shape)
        if module.neuron.batch_first or not isinstance(feedback, Synapses) or feedback.delay is not None:
            return Unknown(
                "is Recurrent with batch_first=True or feedback other than Linear and Conv2d",
                "use Linear or Conv2d for the feedback, and put the time first",
            )
        return _Feedback(feedback, module.neuron)
    return Unknown(f"is {type(module).__name__}")


def _convolution(module: nn.Conv2d) -> Op | Unknown:
    if module.padding_mode != "zeros":
        return Unknown(f"is a Conv2d with padding_mode={module.padding_mode!r}", "use padding_mode='zeros'")
    dilation, stride, kernel = (_pair(part) for part in (module.dilation, module.stride, module.kernel_size))
    padding = module.padding
    if padding == "same":
        reach = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        if any(part % 2 for part in reach):
            return Unknown("is a Conv2d with padding='same' and an even kernel", "use an odd kernel")
        padding = (reach[0] // 2, reach[1] // 2)
    padding = (0, 0) if isinstance(padding, str) else _pair(padding)
    return Synapses(module, Geometry(stride, padding, dilation, module.groups))


def _pool(module: nn.AvgPool2d | nn.MaxPool2d) -> Op | Unknown:
    size, stride = _pair(module.kernel_size), _pair(module.stride)
    other = getattr(module, "divisor_override", None), getattr(module, "dilation", 1)
    if _pair(module.padding) != (0, 0) or module.ceil_mode or other != (None, 1):
        return Unknown(
            f"is {type(module).__name__} with padding, dilation, ceil_mode or divisor_override",
            "leave these options at their defaults",
        )
    return Pooling("mean" if isinstance(module, nn.AvgPool2d) else "max", size, stride)


def _pair(value: Any) -> tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, tuple | list) else (value, value)
