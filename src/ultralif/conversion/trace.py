"""Trace a network's forward and rewrite it for whole sequences.

The forward is traced by torch.fx, on an example if one is given. A forward that takes one time step, or loops
over time, calls its layers many times. Calls that play the same role in every step become one call on ``[T,
B, *features]``.
"""

import inspect
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Argument, Target

from ultralif.conversion.neurons import Replacement, States
from ultralif.errors import InputError
from ultralif.nn import Neuron, Recurrent, TimeDistributed
from ultralif.nn.layers import CONVOLUTIONS

__all__ = ["Expand", "Folded", "Traced", "first_input", "name_of", "rebuild", "trace"]

THREE_LINES = (
    "Change three lines of its forward so that layers take whole sequences [T, B, ...]: remove the loop over "
    "time; call each neuron once without a state, as in `spikes = self.lif1(self.fc1(x))`; and return the "
    "output of the last layer"
)


class NextTensor:
    """A placeholder for the next tensor among a function's arguments."""


class Folded(nn.Module):
    """A function on batches, applied to sequences ``[T, B, ...]`` with time folded into the batch.

    Args:
        function: the function, or the name of a method of its first argument.
        args: its arguments; `NextTensor` stands for the next tensor.
        kwargs: its keyword arguments.
    """

    def __init__(self, function: Target, args: tuple[object, ...], kwargs: dict[str, Argument]) -> None:
        super().__init__()
        self.function, self.args, self.kwargs = function, args, kwargs

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return ``[T, B, ...]`` for tensors ``[T, B, ...]``."""
        steps, batch = tensors[0].shape[:2]
        args = _filled(self.args, iter([tensor.flatten(0, 1) for tensor in tensors]))
        if isinstance(self.function, str):
            out = getattr(args[0], self.function)(*args[1:], **self.kwargs)
        else:
            out = self.function(*args, **self.kwargs)
        if getattr(out, "shape", ())[:1] != (steps * batch,):
            raise InputError(
                f"{self.extra_repr()} mixes the samples of a batch, or time steps; call it outside the "
                "loop over time"
            )
        spread: Tensor = out.reshape(steps, batch, *out.shape[1:])
        return spread

    def extra_repr(self) -> str:
        """Show the function."""
        return getattr(self.function, "__name__", str(self.function))


def _filled(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return arguments with the placeholders replaced by tensors."""
    if isinstance(value, tuple | list):
        return type(value)([_filled(each, tensors) for each in value])
    return next(tensors) if value is NextTensor else value


class _Reshape(nn.Module):
    """Keep the first axes, time and batch, and reshape the others."""

    def __init__(self, kept: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.kept, self.shape = kept, shape

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with the axes after the kept ones reshaped."""
        return x.reshape(*x.shape[: self.kept], *self.shape)


class Expand(nn.Module):
    """Repeat an input without a time axis for a number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[T, *x.shape]``."""
        return x.unsqueeze(0).expand(self.steps, *x.shape)


def _in_place(operation: Callable[..., fx.Proxy]) -> Callable[..., fx.Proxy]:
    """Trace an operator such as ``+=`` as a new value, and note that it changes the old one."""

    def changed(value: fx.Proxy, other: object) -> fx.Proxy:
        found = operation(value, other)
        found.node.meta["in place"] = True
        return found

    return changed


class _Known(fx.Proxy):
    """A traced value with its tensor on the example, so that its shape can be read."""

    __iadd__, __isub__ = _in_place(operator.add), _in_place(operator.sub)
    __imul__, __itruediv__ = _in_place(operator.mul), _in_place(operator.truediv)

    @property
    def known(self) -> Any:
        if "value" not in self.node.meta:
            raise InputError(
                "the network's forward depends on the shape of its input; pass an example, check=x"
            )
        return self.node.meta["value"]

    def __iter__(self) -> Iterator[fx.Proxy]:
        replaced = cast(_Tracer, self.tracer).replaced
        found = replaced.get(str(self.node.target)) if "value" not in self.node.meta else None
        count = len(self.known) if found is None else 1 + len(found.states)
        return (operator.getitem(self, i) for i in range(count))

    def __len__(self) -> int:
        return len(self.known)

    def __bool__(self) -> bool:
        return bool(self.known)

    def __index__(self) -> int:
        return int(self.known)

    def size(self, axis: int | None = None) -> torch.Size | int:
        size: torch.Size = self.known.size()
        return size if axis is None else size[axis]

    def dim(self) -> int:
        return int(self.known.dim())

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "ndim", "dtype", "device", "is_sparse", "is_cuda", "requires_grad"):
            return getattr(self.known, name)
        return super().__getattr__(name)


class _Tracer(fx.Tracer):
    """Trace a network down to PyTorch's layers and the replaced ones, computing values on an example."""

    def __init__(self, replaced: dict[str, Replacement], example: Tensor | None) -> None:
        super().__init__()
        self.replaced, self.example, self.running = replaced, example, False

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is called as a whole instead of being traced."""
        ours = isinstance(m, Neuron | Recurrent | TimeDistributed)
        return (
            ours or module_qualified_name in self.replaced or super().is_leaf_module(m, module_qualified_name)
        )

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return the proxy for a value."""
        return _Known(node, self)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Trace a module call, unless its value is needed."""
        if self.running:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: object, parameter_proxy_cache: dict[str, fx.Proxy]) -> object:
        """Trace the use of a parameter, unless its value is needed."""
        if self.running:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_proxy(self, *args: Any, **kwargs: Any) -> fx.Proxy:
        """Record a call, and compute its value for the example."""
        proxy = super().create_proxy(*args, **kwargs)
        if proxy.node.op != "output" and self.example is not None:
            self.running = True
            try:
                proxy.node.meta["value"] = self._value(proxy.node)
            finally:
                self.running = False
        return proxy

    def _known(self, node: fx.Node) -> Any:
        """Return a node's value; tensors created in the forward are attributes."""
        if "value" not in node.meta:
            value = operator.attrgetter(str(node.target))(self.root)
            node.meta["value"] = value.clone() if isinstance(value, Tensor) else value
        return node.meta["value"]

    @torch.no_grad()
    def _value(self, node: fx.Node) -> object:
        if node.op == "placeholder":
            default = node.args[0] if node.args else None
            return self.example if next(iter(node.graph.nodes)) is node else default
        if node.op == "get_attr":
            return self._known(node)
        given: Any = fx.map_arg((node.args, node.kwargs), self._known)
        args, kwargs = given
        if callable(node.target):
            return node.target(*args, **kwargs)
        if node.op == "call_module":
            return self.root.get_submodule(node.target).forward(*args, **kwargs)
        return getattr(args[0], node.target)(*args[1:], **kwargs)


class Traced:
    """A traced forward, and the network whose tensors it uses."""

    def __init__(self, graph: fx.Graph, net: nn.Module, replaced: dict[str, Replacement]) -> None:
        self.graph, self.net, self.replaced = graph, net, replaced

    def calls(self, name: str) -> int:
        """Return how often a layer is called."""
        return sum(node.op == "call_module" and node.target == name for node in self.graph.nodes)

    @property
    def is_step(self) -> bool:
        """Whether the forward takes one time step: no layer is called twice, and neurons take one too."""
        steps = [name for name, each in self.replaced.items() if each.takes_step and self.calls(name)]
        once = bool(steps) and all(self.calls(name) == 1 for name in steps)
        for name, each in self.replaced.items():
            if once and each.sequence and self.calls(name):
                raise InputError(
                    f"layer {name!r} takes whole sequences, but layer {steps[0]!r} takes one step; give "
                    "all layers the same step mode, as SpikingJelly's set_step_mode(net, 'm') does"
                )
        return once


def trace(net: nn.Module, replaced: dict[str, Replacement], example: Tensor | None) -> Traced:
    """Trace the forward of a network.

    Args:
        net: a copy of the network; its states and statistics are changed.
        replaced: the layers to replace, by name.
        example: an input of the forward.
    """
    if "" in replaced:  # the network is a single layer
        net, replaced = nn.Sequential(net), {"0": replaced[""]}
    tracer = _Tracer(replaced, example)
    arguments = list(inspect.signature(net.forward).parameters.values())[1:]
    optional = {a.name: a.default for a in arguments if a.default is not inspect.Parameter.empty}
    try:
        return Traced(tracer.trace(net, concrete_args=optional or None), net, replaced)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the forward of {type(net).__name__} cannot be traced: {error}. {THREE_LINES}"
        ) from error


def rebuild(net: nn.Module, traced: Traced, step: bool) -> nn.Module:
    """Return a network over sequences ``[T, B, ...]`` from a traced one.

    Args:
        net: the network that owns the layers.
        traced: its forward.
        step: whether the forward takes one time step.
    """
    if "0" in traced.replaced and traced.calls("0") and not hasattr(net, "0"):
        net = nn.Sequential(net)
    return _Writer(net, traced, step).write()


class _Writer:
    """Rewrites a traced forward for sequences."""

    def __init__(self, net: nn.Module, traced: Traced, step: bool) -> None:
        self.net, self.replaced, self.step = net, traced.replaced, step
        self.old, self.source, self.graph = traced.graph, traced.net, fx.Graph()
        self.modules: dict[str, nn.Module] = {}
        self.done: dict[object, fx.Node] = {}
        self.roles: dict[fx.Node, int] = {}
        self.parts: dict[int, list[fx.Node]] = {}
        self.stepping: set[fx.Node] = set()
        self.writes: dict[object, list[fx.Node]] = {}
        names: dict[object, int] = {}
        for node in self.old.nodes:
            if node.op == "output":
                node.args = (self._without_states(node.args[0]),)
            elif node.target == "__setitem__":
                self.writes.setdefault(first_input(node).target, []).append(node)
            elif self._is_changed_for_others(node):
                raise InputError(
                    f"the forward changes a tensor in place by {name_of(node)} and uses it afterwards; write "
                    "`x = x + y` instead"
                )
            role = names.setdefault(self._role(node), len(names))
            self.roles[node] = role
            self.parts.setdefault(role, []).append(node)
            if self._is_neuron(node) or any(i in self.stepping for i in node.all_input_nodes):
                self.stepping.add(node)

    def _is_changed_for_others(self, node: fx.Node) -> bool:
        """Return whether a call changes a tensor that is used by its old name afterwards."""
        is_operator, name = "in place" in node.meta, name_of(node)
        if node.op == "call_module":
            in_place = bool(getattr(self.net.get_submodule(str(node.target)), "inplace", False))
        else:
            in_place = (name.endswith("_") and name[0] != "_") or bool(node.kwargs.get("inplace"))
        if not in_place and not is_operator and "out" not in node.kwargs:
            return False
        later = [user for user in first_input(node).users if user not in self.roles and user is not node]
        return bool(later) or not (node.users or is_operator)

    def _found(self, node: fx.Node) -> Replacement | None:
        return self.replaced.get(str(node.target)) if node.op == "call_module" else None

    def _is_neuron(self, node: fx.Node) -> bool:
        found = self._found(node)
        return found is not None and found.takes_step

    def _gives_tuple(self, node: object) -> bool:
        found = self._found(node) if isinstance(node, fx.Node) else None
        return found is not None and not found.alone

    def _without_states(self, value: Argument) -> Argument:
        """Return an output without the states that norse networks return after it."""
        if isinstance(value, tuple) and len(value) == 2 and self._is_state(value[1]):
            return self._without_states(value[0])
        return value

    def _is_state(self, value: Argument) -> bool:
        if isinstance(value, tuple | list):
            return all(map(self._is_state, value))
        if not isinstance(value, fx.Node) or value.target is not operator.getitem:
            return value is None
        found = self._found(first_input(value))
        return found is not None and found.packed and bool(value.args[1] == 1)

    def _role(self, node: fx.Node) -> object:
        """Return a key that nodes share if they play the same role in different time steps."""
        if self._is_neuron(node):
            return "neuron", node.target
        if node.op in ("placeholder", "get_attr"):
            return node.op, node.target
        item = self._item(node)
        if item is not None:
            base, index = item
            return "item", self._key(base), index if self._gives_tuple(base) else None
        return node.op, node.target, self._key(node.args), self._key(node.kwargs)

    def _item(self, node: fx.Node) -> tuple[fx.Node, int] | None:
        """Return the node that a node indexes, and the index of a step or of one of several outputs."""
        if node.op == "call_method" and node.target == "select" and node.args[1] == 0:
            return first_input(node), cast(int, node.args[2])
        if self._takes_column(node):
            return first_input(node), cast(tuple[slice, int], node.args[1])[1]
        step = _step_of(node.args[1]) if node.target is operator.getitem else None
        if step is None:
            return None
        base = first_input(node)
        if name_of(base) == "unbind" and base.args[1:] in ((), (0,)):
            base = first_input(base)
        return base, step

    def _takes_column(self, node: fx.Node) -> bool:
        """Return whether a node is ``x[:, t]``, a step of a sequence with the batch first."""
        index = node.args[1] if node.target is operator.getitem else None
        return isinstance(index, tuple) and index[:1] == (slice(None),) and _step_of(index[1:]) is not None

    def _key(self, value: Argument) -> object:
        if isinstance(value, fx.Node):
            return "node", self.roles[value]
        if isinstance(value, tuple | list):
            return tuple(map(self._key, value))
        if isinstance(value, dict):
            return tuple((name, self._key(each)) for name, each in value.items())
        return repr(value)

    def write(self) -> nn.Module:
        """Return the network."""
        places = [node for node in self.old.nodes if node.op == "placeholder" and self._is_input(node)]
        if len(places) != 1:
            raise InputError(
                f"the forward takes {len(places)} inputs; ul.convert supports one input and states"
            )
        self.input = self.graph.placeholder("x")
        self.done[places[0]] = self.input
        (output,) = [node for node in self.old.nodes if node.op == "output"]
        self.graph.output(self._output(output.args[0]))
        return self._sequential() or fx.GraphModule(self.modules, self.graph, "Converted")

    def _is_input(self, node: fx.Node) -> bool:
        """Return whether an argument of the forward is neither a neuron's state nor a number."""
        if isinstance(next(iter(node.args), None), int | float | str):
            return False
        users = [user for user in node.users if not name_of(user).startswith("_assert")]
        return bool(users) and not all(self._is_neuron(user) and user.args[0] is not node for user in users)

    def _output(self, value: Argument) -> fx.Node | tuple[Argument, ...]:
        if isinstance(value, tuple | list):
            kept = [self._output(each) for each in value]
            return tuple(kept) if len(kept) != 1 else kept[0]
        if not isinstance(value, fx.Node):
            raise InputError(f"the forward returns {value!r}; return tensors")
        if self._gives_tuple(value):  # a network that ends with a neuron returns spikes
            return self._roll((value,), 0) if self.step else self._single(value)
        item = value.target is operator.getitem and self._gives_tuple(value.args[0])
        if item and value.args[1] != 0 and not self._is_neuron(first_input(value)):
            raise InputError("the forward returns a norse state; return only its output")
        return self._roll((value,)) if self.step else self._single(value)

    # Calls made in every time step become one call for all steps.

    def _roll(self, nodes: tuple[fx.Node, ...], which: int = 0) -> fx.Node:
        key = (nodes, which)
        if key not in self.done:
            self.done[key] = self._rolled(nodes, which)
        return self.done[key]

    def _rolled(self, nodes: tuple[fx.Node, ...], which: int) -> fx.Node:
        first = nodes[0]
        if self.step and nodes == (first,) and first.op == "placeholder":
            return self.input
        if first.op == "get_attr":
            raise InputError(f"the forward uses the tensor {first.target!r} itself; make it a layer")
        if len(nodes) > 1 and (all(node is first for node in nodes) or self._is_constant(nodes)):
            return self._call(Expand(len(nodes)), "expand", self._single(first))
        if len({self.roles[node] for node in nodes}) > 1:
            raise InputError(
                f"the layers of {type(self.net).__name__} are not called in the same way at every step (at "
                f"{first.name!r}); feed spikes back with ul.Recurrent. {THREE_LINES}"
            )
        items = [item for item in map(self._item, nodes) if item is not None]
        if items:
            bases, which = tuple(base for base, _ in items), items[0][1]
            if self._gives_tuple(bases[0]):
                return self._neuron(bases, which)
            if [index for _, index in items] == list(range(len(nodes))) and not self.step:
                whole = self._single(bases[0])
                columns = self._takes_column(first)
                return self.graph.call_method("transpose", (whole, 0, 1)) if columns else whole
        if self._is_neuron(first):
            return self._neuron(nodes, which)
        return self._operation(nodes)

    def _is_constant(self, nodes: tuple[fx.Node, ...]) -> bool:
        """Return whether every step applies the same synapses to the same input."""
        first = nodes[0]
        layer = self.net.get_submodule(str(first.target)) if first.op == "call_module" else None
        same = all((node.args, node.kwargs) == (first.args, first.kwargs) for node in nodes)
        return same and isinstance(layer, (nn.Linear, *CONVOLUTIONS))

    def _neuron(self, calls: tuple[fx.Node, ...], which: int) -> fx.Node:
        """Write the calls to one neuron, or other replaced layer, as one call."""
        name, found = str(calls[0].target), self._found(calls[0])
        assert found is not None  # noqa: S101 - callers have checked
        if tuple(self.parts[self.roles[calls[0]]]) != calls:
            raise InputError(
                f"layer {name!r} is called twice in a time step, or not in the order in which its spikes "
                f"are used; give each call its own neuron. {THREE_LINES}"
            )
        for start in _nodes_in([*calls[0].args[1:], *calls[0].kwargs.values()]):
            value = start.meta.get("value", self._value(start)) if start.op == "get_attr" else None
            if value is not None and bool(value.any()):
                raise InputError(f"layer {name!r} starts from a state other than 0; start from 0")
            if value is not None and self.step:
                raise InputError(
                    f"layer {name!r} starts from rest in every call of the forward; loop over time in the "
                    "forward, or take the state as an argument and return it"
                )
        for earlier, call in pairwise(calls):
            for state in [*call.args[1:], *call.kwargs.values()]:
                if state is not None and not _is_item_of(state, earlier):
                    raise InputError(
                        f"layer {name!r} receives a state that is not its own from the previous step; pass "
                        "the state it returned"
                    )
        current = self._roll(tuple(map(first_input, calls)))
        if which == 0 and ("states", name) not in self.done and not self._needs_states(calls):
            return self._call(found.module, name, current)
        if ("states", name) not in self.done:
            self.done["states", name] = self._call(
                States(found.observed or found.module, found.states), name, current
            )
        return self.graph.call_function(operator.getitem, (self.done["states", name], which))

    def _needs_states(self, calls: tuple[fx.Node, ...]) -> bool:
        """Return whether a state is used for anything but the next step of the same neuron."""
        for call in calls:
            for item in call.users if self._gives_tuple(call) else ():
                is_state = item.target is operator.getitem and item.args[1] != 0
                if is_state and any(user not in calls for user in item.users):
                    return True
        return False

    def _operation(self, nodes: tuple[fx.Node, ...]) -> fx.Node:
        """Write a stateless layer or function called at every step as one call, with time in the batch."""
        first = nodes[0]
        columns = zip(*(list(_nodes_in(node.args)) for node in nodes), strict=True)
        inputs = [self._roll(tuple(column)) for column in columns]
        if not inputs or any(isinstance(value, fx.Node) for value in first.kwargs.values()):
            raise InputError(
                f"the forward calls {first.target} in a way that cannot be traced. {THREE_LINES}"
            )
        name = str(first.target) if first.op == "call_module" else first.name
        found = self._found(first)
        if found is not None:
            return self._call(found.module, name, *inputs)
        if first.op == "call_module":
            layer = self.net.get_submodule(name)
            whole = isinstance(layer, nn.Linear | nn.ReLU | nn.Identity | nn.Dropout)
            return self._call(layer if whole else TimeDistributed(layer), name, *inputs)
        shaped = self._reshaped(first)
        if shaped is not None:
            return self._call(TimeDistributed(shaped), name, inputs[0])
        shapes = {getattr(node.meta.get("value"), "shape", None) for node in first.all_input_nodes}
        alike = len(shapes) == 1 and None not in shapes
        if name_of(first) == "add" and len(inputs) == 2 and alike and not first.kwargs:
            return self.graph.call_function(operator.add, tuple(inputs))  # exports support it
        return self._call(_as_layer(first), name, *inputs)

    def _reshaped(self, node: fx.Node) -> nn.Module | None:
        """Return the layer for a view, reshape or flatten of each sample, for any batch size."""
        kind, args = name_of(node), node.args[1:]
        if kind == "flatten":
            return nn.Flatten() if args == (1,) and not node.kwargs else None
        if kind not in ("view", "reshape") or not args or "value" not in first_input(node).meta:
            return None
        sizes = cast(tuple[int, ...], tuple(args[0] if isinstance(args[0], tuple | list) else args))
        before, kept = tuple(first_input(node).meta["value"].shape), 0
        if sizes[0] == -1 and node.meta["value"].shape[0] == before[0]:
            kept, sizes = 1, (before[0], *sizes[1:])
        while kept < len(sizes) and sizes[: kept + 1] == before[: kept + 1]:
            kept += 1
        if not kept:
            return None
        return nn.Flatten(kept) if sizes[kept:] == (-1,) else _Reshape(kept, sizes[kept:])

    # Calls outside the time steps.

    def _single(self, node: fx.Node) -> fx.Node:
        if node not in self.done:
            self.done[node] = self._singly(node)
        return self.done[node]

    def _singly(self, node: fx.Node) -> fx.Node:
        found = self._found(node)
        if found is not None and found.sequence:
            return self._call(found.module, str(node.target), self._single(first_input(node)))
        item = node.target is operator.getitem and self._gives_tuple(first_input(node))
        if item and not self._is_neuron(first_input(node)):
            if node.args[1] != 0:
                raise InputError("the forward uses a norse state; use only its output")
            return self._single(first_input(node))
        stacked = cast(tuple[fx.Node, ...], node.args[0]) if node.target is torch.stack else ()
        axis = (*node.args[1:], *node.kwargs.values()) or (0,)
        if axis in ((0,), (1,)) and len({self.roles[each] for each in stacked}) == 1:
            rolled = self._roll(tuple(stacked))
            return rolled if axis == (0,) else self.graph.call_method("transpose", (rolled, 0, 1))
        part = self.parts[self.roles[node]]
        if node in self.stepping and (len(part) > 1 or self._is_neuron(node)):
            return self.graph.call_function(operator.getitem, (self._roll(tuple(part)), part.index(node)))
        if node.op == "placeholder":
            raise InputError(f"the forward uses its argument {node.target!r}, which is a state; leave it out")
        shaped = self._reshaped(node)
        if shaped is not None:
            return self._call(shaped, node.name, self._single(first_input(node)))
        if node.op == "get_attr":
            return self._tensor(node)
        args = cast(tuple[fx.Node, ...], fx.map_arg(node.args, self._single))
        if node.op == "call_module":
            layer = self.net.get_submodule(str(node.target)) if found is None else found.module
            if found is not None and isinstance(layer, TimeDistributed):  # for a single batch
                layer = layer.module
            return self._call(layer, str(node.target), *args)
        target = str(node.target).removesuffix("_") if _is_in_place(node) else node.target
        return self.graph.create_node(node.op, target, args, fx.map_arg(node.kwargs, self._single))

    def _value(self, node: fx.Node) -> Tensor:
        """Return a tensor that the forward uses directly."""
        value: Tensor = operator.attrgetter(str(node.target))(self.source)
        return value

    def _tensor(self, node: fx.Node) -> fx.Node:
        """Write a tensor created in the forward, filled step by step or with a single value."""
        writes = self.writes.get(node.target, [])
        value = self._value(node)
        steps = [_step_of(write.args[1]) for write in writes]
        if writes and steps == list(range(len(value))):
            return self._roll(tuple(cast(fx.Node, write.args[2]) for write in writes))
        made = str(node.target).startswith("_tensor_constant") and value.numel() > 0
        if writes or not made or not bool((value == value.flatten()[0]).all()):
            raise InputError(
                f"the forward uses the tensor {node.target!r} itself; make it a layer, or collect outputs in "
                "a list and return torch.stack(outputs)"
            )
        number = value.flatten()[0].item()
        return self.graph.call_method("new_full", (self.input, (), number), {"dtype": value.dtype})

    def _call(self, module: nn.Module, name: str, *inputs: fx.Node) -> fx.Node:
        name = name.replace(".", "_") or "layer"
        if not name[0].isalpha():
            name = f"layer_{name}"
        while hasattr(nn.Module, name) or self.modules.get(name, module) is not module:
            name += "_"
        self.modules[name] = module
        return self.graph.call_module(name, inputs)

    def _sequential(self) -> nn.Sequential | None:
        """Return a chain of layers as nn.Sequential."""
        last, layers = self.input, OrderedDict[str, nn.Module]()
        for node in list(self.graph.nodes)[1:]:
            if node.op == "output":
                return nn.Sequential(layers) if node.args[0] is last else None
            if node.op != "call_module" or node.args != (last,) or node.target in layers:
                return None
            layers[str(node.target)], last = self.modules[str(node.target)], node
        return None


def first_input(node: fx.Node) -> fx.Node:
    """Return the first argument of a call."""
    return cast(fx.Node, node.args[0])


def _step_of(index: object) -> int | None:
    """Return t for the indices ``t``, ``t, :`` and ``t, ...``; None for any other."""
    first, *rest = index if isinstance(index, tuple) and index else (index,)
    whole = all(each is Ellipsis or each == slice(None) for each in rest)
    return first if type(first) is int and whole else None


def _nodes_in(value: object) -> Iterator[fx.Node]:
    """Yield the traced values among arguments, including those in lists."""
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _nodes_in(each)


def _is_in_place(node: fx.Node) -> bool:
    """Return whether a call such as ``add_`` changes its first argument."""
    name = node.target if node.op == "call_method" else None
    return isinstance(name, str) and name.endswith("_") and not name.startswith("_")


def _is_item_of(value: Argument, call: fx.Node) -> bool:
    return isinstance(value, fx.Node) and value.target is operator.getitem and value.args[0] is call


def name_of(node: fx.Node) -> str:
    """Return the name of the function or method that a node calls."""
    return str(getattr(node.target, "__name__", node.target))


def _as_layer(node: fx.Node) -> nn.Module:
    """Wrap a function on batches in a layer that takes sequences, using PyTorch's own layer if one exists."""
    kind, given = name_of(node), node.args
    if kind in ("max_pool2d", "avg_pool2d", "boolean_dispatch", "_max_pool2d") and len(given) >= 2:
        layer = nn.AvgPool2d if "avg" in kind else nn.MaxPool2d
        names = ("kernel_size", "stride", "padding")
        options = dict(zip(names, given[1:], strict=False)) | dict(node.kwargs)
        options.pop("return_indices", None)
        return TimeDistributed(layer(**options))  # type: ignore[arg-type]
    if kind == "relu":
        return nn.ReLU()
    args = fx.map_arg(given, lambda each: NextTensor)  # type: ignore[arg-type, return-value]
    return Folded(node.target, cast(tuple[object, ...], args), dict(node.kwargs))
