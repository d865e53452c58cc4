"""Prepare converted networks for export by making them take sequences and use LIF neurons."""

import copy
from collections.abc import Callable, Sequence

from torch import Tensor, fx, nn

from ultralif.conversion.check import copied
from ultralif.conversion.neurons import States
from ultralif.conversion.trace import Expand, first_input, name_of
from ultralif.errors import InputError

__all__ = ["streaming", "with_lif"]

SUMMARIES = ("sum", "mean", "add", "iadd", "truediv", "itruediv", "mul", "stack", "getitem")
"""The operations with which a forward may combine its outputs across time steps."""


def with_lif(net: nn.Module) -> nn.Module:
    """Return a converted network in which every neuron is a `LIF`, as exports require.

    Learned constants become numbers. A network without converted neurons is returned unchanged.

    Example:
        >>> from ultralif import LIF
        >>> net = nn.Sequential(nn.Linear(4, 2), LIF())
        >>> with_lif(net) is net  # a plain PyTorch network is returned unchanged
        True
    """
    if not any(hasattr(module, "as_lif") for module in net.modules()):
        return net
    made = copied(net)
    for name, module in list(made.named_modules()):
        make: Callable[[], nn.Module] | None = getattr(module, "as_lif", None)
        parent, _, last = name.rpartition(".")
        if make is None or (name and hasattr(made.get_submodule(parent), "as_lif")):
            continue
        try:
            lif = make()
        except InputError as error:
            raise InputError(f"layer {name!r}: {error}") from error
        if not name:
            return lif
        setattr(made.get_submodule(parent), last, lif)
    return made


def streaming(net: nn.Module) -> tuple[nn.Module, bool]:
    """Return a converted network whose input has a time axis, and whether its source's input had none.

    A network whose forward loops over time with one static input takes ``[T, B, ...]`` here. Operations on
    all time steps together, such as a sum or a mean, are left out, and so are membranes.

    Example:
        >>> from ultralif import LIF
        >>> net, took_none = streaming(nn.Sequential(nn.Linear(4, 2), LIF()))
        >>> took_none
        False
    """
    net = with_lif(net)
    if not isinstance(net, fx.GraphModule):
        return net, False
    made = copy.deepcopy(net)
    graph = made.graph
    for node in list(graph.nodes):
        module = made.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, States):
            setattr(made, str(node.target), module.neuron)
            for item in [user for user in node.users if user.args[1] == 0]:
                item.replace_all_uses_with(node)
    (output,) = (node for node in graph.nodes if node.op == "output")
    output.args = (_per_step(output.args[0]),)
    graph.eliminate_dead_code()
    spread = [node for node in graph.nodes if _repeats(node, made)]
    if spread:
        (x,) = (node for node in graph.nodes if node.op == "placeholder")
        with graph.inserting_after(x):
            folded = graph.call_method("flatten", (x, 0, 1))
        x.replace_all_uses_with(folded, lambda user: user is not folded)
        for node in spread:
            with graph.inserting_before(node):
                repeated = first_input(node)
                source = repeated if node.op == "call_module" else first_input(repeated)
                node.replace_all_uses_with(graph.call_function(_unfolded, (source, x)))
        graph.eliminate_dead_code()
    made.recompile()
    return made, bool(spread)


def _unfolded(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape(*x.shape[:2], *values.shape[1:])


def _repeats(node: fx.Node, net: nn.Module) -> bool:
    """Return whether a node repeats an input over time, as ``x.unsqueeze(0).repeat(T, 1, 1)`` does."""
    if node.op == "call_module":
        return isinstance(net.get_submodule(str(node.target)), Expand)
    if node.op != "call_method" or node.target not in ("repeat", "expand"):
        return False
    base = first_input(node)
    return base.target == "unsqueeze" and base.args[1:] == (0,)


def _per_step(value: fx.Node | Sequence[fx.Node]) -> fx.Node:
    """Return the layer whose outputs a forward sums over time."""
    found: set[fx.Node] = set()
    open_ = [value if isinstance(value, fx.Node) else value[0]]
    while open_:
        node = open_.pop()
        if name_of(node) in SUMMARIES and node.op != "call_module":
            open_ += node.all_input_nodes
        elif name_of(node) != "new_full":  # the initial value of a sum
            found.add(node)
    if len(found) != 1:
        names = ", ".join(sorted(str(node.target) for node in found))
        raise InputError(
            f"the network returns a combination of several layers, {names}; return one layer's output"
        )
    return found.pop()
