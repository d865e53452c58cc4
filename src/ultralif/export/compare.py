"""Compare an exported description with the network itself, before anything is written.

`compared` runs the network on random inputs and on the caller's own, records what every layer receives and
returns, and checks that the description computes the same outputs from the same inputs. Each layer receives
the outputs of the network's own earlier layers. So a difference is found in the layer where it starts, and a
spike moved by rounding does not propagate. `compare_integers` does the same for a quantized network,
allowing for rounding.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, linear, max_pool2d

from ultralif.errors import InputError
from ultralif.export.graph import (
    Flatten,
    Graph,
    Input,
    Last,
    Leaky,
    Norm,
    Pooling,
    Spikes,
    Sum,
    Synapses,
    evaluating,
)
from ultralif.export.graph import norm_constants as constants_of
from ultralif.export.integer import (
    Decay,
    IntegerLeaky,
    IntegerNetwork,
    IntegerNeuron,
    IntegerSynapses,
    Multiply,
    Shifts,
    earlier,
)
from ultralif.export.trace import describe
from ultralif.functional import Mode
from ultralif.nn import DelayedLinear
from ultralif.nn import mode as in_mode

__all__ = ["check_own_neurons", "compare_integers", "compared", "draw"]

STEPS, BATCH = 4, 6  # time steps and batch size of the random inputs
MOST = 16  # the maximum number of samples used from the caller's inputs
REMEDY = "build the network from unchanged layers, or write this part as a separate layer"


class Call(NamedTuple):
    """A layer's input and output, ``[T * B, *features]``, or ``[B, *features]`` after a mean."""

    given: Tensor
    returned: Tensor


def compared(net: nn.Module, shape: Sequence[int] | None, mode: Mode, inputs: Tensor | None = None) -> Graph:
    """Return a network's description, after checking that it computes the same as the network.

    Args:
        net: the network.
        shape: the feature shape of one time step; None to take it from the first layer.
        mode: the mode to export.
        inputs: ``[T, B, *input]``, compared in addition to random inputs; at most 16 samples are used.
    """
    graph = describe(net, shape)
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Synapses) and not all(bool(torch.isfinite(part).all()) for part in op.folded()):
            raise InputError(
                f"layer {node.name!r} has weights that are not finite; load a checkpoint from before they "
                "diverged, or train again with a lower learning rate"
            )
    parameter = next(net.parameters(), torch.zeros(()))
    probes = [draw(graph, kind) for kind in ("spikes", "values")]
    if inputs is not None:
        if inputs.dim() < 3 or math.prod(inputs.shape[2:]) != math.prod(graph.nodes[0].shape):
            raise InputError(
                f"inputs must be [T, B, *input] with {math.prod(graph.nodes[0].shape)} values per sample, "
                f"got shape {tuple(inputs.shape)}"
            )
        probes.append(inputs[:, :MOST].reshape(len(inputs), -1, *graph.nodes[0].shape))
    for x in probes:
        x = x.to(parameter)
        calls, output = _watched(net, graph, mode, x)
        with in_mode(net, mode), evaluating(net), torch.no_grad():
            _check_layers(graph, x, calls, output)
            again = _output(net(x))
            limit = 0.02 * max(1.0, float(output.abs().max()))
            if again.shape != output.shape or not float((again - output).abs().mean()) <= limit:
                raise InputError(
                    "the output of the network changes when its layers are observed, so its description "
                    "cannot be checked; remove anything that uses hooks, random numbers or earlier calls"
                )
    return graph


def draw(graph: Graph, kind: str, steps: int = STEPS, batch: int = BATCH) -> Tensor:
    """Return random inputs ``[T, B, *input]``: ``spikes`` from sparse to dense, or real ``values``."""
    generator = torch.Generator().manual_seed(0)
    shape = (steps, batch, *graph.nodes[0].shape)
    wide = (1, batch, *[1] * len(graph.nodes[0].shape))
    if kind == "spikes":
        return (torch.rand(shape, generator=generator) < torch.linspace(0.1, 0.9, batch).view(wide)).float()
    return torch.randn(shape, generator=generator) * torch.logspace(-1, 1, batch).view(wide)


def check_own_neurons(graph: Graph) -> None:
    """Refuse neurons with custom formulas, which only torch graphs can express."""
    for place in graph.spiking:
        neuron = graph.neuron(place)
        foreign = _foreign(neuron)
        if foreign is not None:
            raise InputError(
                f"layer {graph.nodes[place].name!r} is {type(neuron).__name__}, which changes {foreign!r} of "
                "an ultralif neuron, so this format cannot express it; export to onnx or torch"
            )


def _foreign(neuron: nn.Module) -> str | None:
    """Return the name of a method that a class outside this library overrides, or None."""
    kept = {"__init__", "__new__", "__doc__", "__module__", "extra_repr", "__repr__"}
    for kind in type(neuron).__mro__:
        if kind.__module__.startswith("ultralif."):
            break
        for name, value in vars(kind).items():
            if name not in kept and (
                callable(value) or isinstance(value, classmethod | staticmethod | property)
            ):
                return name
    return next((name for name in ("forward", "integrate", "run", "step") if name in vars(neuron)), None)


def _output(output: Any) -> Tensor:
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found.mean(0) if found.dim() > 2 else found


def _watched(net: nn.Module, graph: Graph, mode: Mode, x: Tensor) -> tuple[dict[int, Call], Tensor]:
    """Run a network; return the calls of the graph's layers, by position, and the output."""
    calls: dict[int, list[Call]] = {}

    def note(module: nn.Module, given: tuple[Tensor, ...], returned: Tensor) -> None:
        calls.setdefault(id(module), []).append(Call(received.pop(id(module)), returned.detach().clone()))

    def receive(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        received[id(module)] = given[0].detach().clone()

    received: dict[int, Tensor] = {}
    modules = {
        place: module for place, node in enumerate(graph.nodes) if (module := _module(node.op)) is not None
    }
    hooks = []
    for module in {id(module): module for module in modules.values()}.values():
        hooks += [module.register_forward_pre_hook(receive), module.register_forward_hook(note)]
    try:
        with in_mode(net, mode), evaluating(net), torch.no_grad():
            output = _output(net(x)).detach().clone()
    except (RuntimeError, IndexError) as error:
        raise InputError(f"the network cannot be run on {tuple(x.shape)}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    found = {}
    for place, module in modules.items():
        mine = calls.get(id(module), [])
        inputs = graph.nodes[place].inputs
        if inputs and isinstance(graph.nodes[inputs[0]].op, Last):  # feedback is called at every time step
            found[place] = Call(*(torch.cat(part) for part in zip(*mine, strict=True)))
        elif mine:
            found[place] = mine.pop(0)
    return found, output


def _module(op: Any) -> nn.Module | None:
    if isinstance(op, Synapses | Norm | Leaky):
        return op.module
    return op.neuron if isinstance(op, Spikes) else None


def _check_layers(graph: Graph, x: Tensor, calls: dict[int, Call], output: Tensor) -> None:
    """Compare each layer with its description, given the outputs of the layers before it."""
    steps, batch = x.shape[:2]
    values: list[Tensor] = []
    for place, node in enumerate(graph.nodes):
        taken = [values[i] for i in node.inputs]
        call = calls.get(place)
        if isinstance(node.op, Spikes):
            if call is None:
                raise InputError(
                    f"layer {node.name!r} was not called again; the network's path depends on its input"
                )
            if not bool(torch.isfinite(call.given).all()):
                raise InputError(
                    f"layer {node.name!r} receives infinite or NaN currents; its weights are too large"
                )
            if not _close(call.given, taken[0], steps):
                raise InputError(
                    f"layer {node.name!r} does not receive the outputs of the layers before it, so the "
                    f"export would be a different network; {REMEDY}"
                )
            spikes = node.op.neuron.run(call.given)[0]
            if not _close(call.returned, spikes, steps):
                raise InputError(
                    f"layer {node.name!r} does not return the result of its neurons' formula, so the export "
                    f"would be a different network; {REMEDY}"
                )
            value = call.returned.flatten(0, 1).double().cpu()
        elif isinstance(node.op, Last):
            value = _feedback(calls, node.op, steps)
        else:
            value = _value(node.op, taken, x)
            if call is not None and not (isinstance(node.op, Synapses) and node.op.norm is not None):
                if not _close(call.returned, value, steps):
                    raise InputError(
                        f"layer {node.name!r} does not return the result of its weights, so the export would "
                        f"be a different network; {REMEDY}"
                    )
                if call.returned.numel() == value.numel():
                    value = call.returned.double().cpu().reshape(value.shape)
        values.append(value)
    mean = values[-1].reshape(steps, batch, *graph.nodes[-1].shape).mean(0)
    if not _close(output, mean, 1):
        raise InputError(
            f"the network does not return the output of its last layer, {graph.nodes[-1].name!r}, averaged "
            f"over time, so the export would be a different network; {REMEDY}"
        )


def _feedback(calls: dict[int, Call], op: Last, steps: int) -> Tensor:
    """Return the spikes ``[T * B, *features]`` that neurons fired at the previous time step."""
    if op.of not in calls:
        raise InputError("a recurrent layer was not called again; the network's path depends on its input")
    return earlier(calls[op.of].returned.flatten(0, 1).double().cpu(), steps, 1)


def _close(found: Tensor, expected: Tensor, steps: int) -> bool:
    """Compare a layer's output with the expected one, which may first be averaged over time."""
    found, eps = found.double().cpu().flatten(), torch.finfo(found.dtype).eps
    expected = expected.double().cpu()
    if found.numel() * steps == expected.numel() and steps > 1:
        expected = expected.reshape(steps, -1).mean(0)
    expected = expected.flatten()
    if found.shape != expected.shape or not bool(torch.isfinite(found).all()):
        return False
    limit = min(1e3 * eps, 0.05) * max(float(expected.abs().max()), 1e-3)
    return float((found - expected).abs().max()) <= limit


def _value(op: Any, taken: list[Tensor], x: Tensor) -> Tensor:
    """Return the output ``[T * B, *features]`` of a stateless operation, using only its constants."""
    match op:
        case Input():
            return x.flatten(0, 1).double().cpu()
        case Leaky():
            factor = torch.as_tensor(op.leak).detach().double().cpu()
            i = torch.zeros_like(taken[0][: x.shape[1]])
            return torch.cat(
                [i := factor * i + part for part in taken[0].split_with_sizes([len(i)] * len(x))]
            )
        case Synapses():
            weight, bias = op.folded()
            if isinstance(op.module, DelayedLinear):
                taps = op.module.taps.detach().double().cpu()
                parts = (earlier(taken[0], len(x), late) @ tap.mT for late, tap in enumerate(taps.unbind(-1)))
                return torch.stack(list(parts)).sum(0) + bias
            if op.geometry is None:
                return linear(taken[0], weight, bias)
            g = op.geometry
            return conv2d(taken[0], weight, bias, g.stride, g.padding, g.dilation, g.groups)
        case Norm():
            scale, mean, shift = (
                part.view(-1, *[1] * (taken[0].dim() - 2)) for part in constants_of(op.module)
            )
            return (taken[0] - mean) * scale + shift
        case Pooling():
            return op(taken[0])
        case Flatten():
            return taken[0].flatten(1)
        case Sum():
            return taken[0] + taken[1]
    raise TypeError(f"{type(op).__name__} has memory")


class Rounded(NamedTuple):
    """Integer currents ``[N, *features]``, and how far they may differ from the floating-point ones."""

    value: Tensor
    limit: Tensor
    """In the real-valued units of the synapses."""


def compare_integers(
    net: nn.Module, graph: Graph, integer: IntegerNetwork, mode: Mode, inputs: Tensor | None = None
) -> None:
    """Raise an InputError if an integer network differs from the network by more than rounding error.

    Args:
        net: the network.
        graph: its description.
        integer: the integer network.
        mode: the mode to export.
        inputs: ``[T, B, *input]``, compared in addition to random inputs where the integer network accepts
            them.
    """
    parameter = next(net.parameters(), torch.zeros(()))
    for x in _acceptable(graph, integer, inputs):
        calls, output = _watched(net, graph, mode, x.to(parameter))
        counts = integer._check(x)
        with in_mode(net, mode), evaluating(net), torch.no_grad():
            _check_integers(graph, integer, counts, x.shape[0], calls, output.double().cpu())


def _acceptable(graph: Graph, integer: IntegerNetwork, inputs: Tensor | None) -> Iterator[Tensor]:
    """Yield the inputs that an integer network accepts."""
    steps = min(STEPS, integer.timesteps)
    if integer.levels is not None:
        low, high = (end * integer.levels.step for end in (integer.levels.low, integer.levels.high))
        x = torch.rand(draw(graph, "values", steps).shape, generator=torch.Generator().manual_seed(1))
        yield low + (high - low) * x
    else:
        x = draw(graph, "spikes", steps)
        flat = x.flatten(2)
        yield (flat * (flat.cumsum(-1) <= integer.max_events)).view_as(x)
    if inputs is not None:
        x = inputs[: integer.timesteps, :MOST].float().cpu()
        x = x.reshape(len(x), -1, *graph.nodes[0].shape)
        if integer.levels is not None:  # beyond the range, levels saturate and floats do not
            x = x.clamp(low, high)
        yield x


def _check_integers(
    graph: Graph, integer: IntegerNetwork, counts: Tensor, steps: int, calls: dict[int, Call], output: Tensor
) -> None:
    values: list[Tensor | Rounded] = []
    for place, (node, made) in enumerate(zip(graph.nodes, integer.nodes, strict=True)):
        taken = [values[i] for i in node.inputs]
        if isinstance(made.op, IntegerNeuron):
            current, call = taken[0], calls[place]
            if not isinstance(current, Rounded):
                raise TypeError(f"{node.name!r} has no current")
            _check_neurons(graph, place, made.op, current, _unit(graph, integer, place), steps, call)
            values.append(call.returned.flatten(0, 1).cpu().round().long())
        elif isinstance(made.op, Last):
            values.append(_feedback(calls, made.op, steps).round().long())
        elif (
            isinstance(made.op, IntegerLeaky) and isinstance(node.op, Leaky) and isinstance(taken[0], Rounded)
        ):
            unit = _unit(graph, integer, place).view(-1, *[1] * (len(node.shape) - 1))
            values.append(_rounded_leaky(made.op, node.op, taken[0], unit, steps))
        elif isinstance(made.op, IntegerSynapses):
            given = taken[0]
            if isinstance(given, Rounded):
                raise TypeError(f"{node.name!r} receives currents")
            values.append(_rounded_synapses(made.op, given, integer, place in graph.near_input, steps))
        elif integer.is_count[place]:
            values.append(_counted(made.op, taken, counts))
        else:
            values.append(_rounded(made.op, [part for part in taken if isinstance(part, Rounded)]))
    last = values[-1]
    if isinstance(last, Rounded):
        unit = _unit(graph, integer, len(values) - 1).view(-1, *[1] * (last.value.dim() - 2))
        found = (last.value * unit).reshape(steps, -1, *graph.nodes[-1].shape).mean(0)
        limit = last.limit.reshape(steps, -1, *graph.nodes[-1].shape).mean(0)
        wrong = (found.flatten() - output.flatten()).abs() > (limit + 1e-4 * output.abs().max()).flatten()
        if bool(wrong.any()):
            raise _other(graph.nodes[-1].name)


def _other(name: str) -> InputError:
    return InputError(
        f"quantized layer {name!r} differs from the network by more than rounding error, so nothing was "
        "written; please report this with the network, and export to onnx in the meantime"
    )


def _counted(op: Any, taken: list[Any], counts: Tensor) -> Tensor:
    """Return spike counts or input levels; a mean becomes a sum."""
    match op:
        case Input():
            return counts
        case Flatten():
            return torch.as_tensor(taken[0].flatten(1))
        case Sum():
            return torch.as_tensor(taken[0] + taken[1])
        case Pooling(kind="max"):
            return torch.as_tensor(op(taken[0].double())).long()
    return torch.as_tensor(avg_pool2d(taken[0].double(), op.size, op.stride) * op.count).round().long()


def _rounded(op: Any, taken: list[Rounded]) -> Rounded:
    match op:
        case Flatten():
            return Rounded(*(part.flatten(1) for part in taken[0]))
        case Sum():
            return Rounded(taken[0].value + taken[1].value, taken[0].limit + taken[1].limit)
        case Pooling(kind="max"):
            return Rounded(op(taken[0].value.double()).long(), max_pool2d(taken[0].limit, op.size, op.stride))
    total = avg_pool2d(taken[0].value.double(), op.size, op.stride) * op.count
    return Rounded(total.round().long(), avg_pool2d(taken[0].limit, op.size, op.stride))


def _rounded_leaky(made: IntegerLeaky, op: Leaky, given: Rounded, unit: Tensor, steps: int) -> Rounded:
    """Return decaying currents; their error limits also decay, and grow with the rounding of each decay."""
    values, limits = (part.reshape(steps, -1, *part.shape[1:]) for part in given)
    found = made.over_time(values, None)
    error, reach = _decay_error(made.decay, op.leak), torch.zeros_like(limits[0])
    kept = []
    for now, limit in enumerate(limits):
        before = found[now - 1].abs() * unit if now else 0.0
        reach = reach + limit + unit * 4 + error * before + 1e-4 * (before + reach)
        kept.append(reach)
    return Rounded(found.flatten(0, 1), torch.cat(kept))


def _rounded_synapses(
    op: IntegerSynapses, given: Tensor, integer: IntegerNetwork, graded: bool, steps: int
) -> Rounded:
    """Return currents from rounded or clipped weights and input levels; bias and sum are integers."""
    grid = op.grid
    wide = (-1, *[1] * (given.dim() - 2)) if op.geometry is not None else (-1,)
    halves = 1 + 2 * (torch.zeros_like(op.weight, dtype=torch.int64) if op.clipped is None else op.clipped)
    inputs = op.sums(given.abs(), halves, steps)
    limit = inputs * (grid / 2).view(wide) + op.unit.view(wide) * 1.5
    if graded and integer.levels is not None:
        limit = limit + op.sums(torch.ones_like(given), op.weight.long().abs() + 1) * (grid / 2).view(wide)
    reach = op.sums(given.abs(), op.weight.long().abs(), steps)
    return Rounded(op(given, steps), limit + 1e-5 * reach * grid.view(wide))


def _unit(graph: Graph, integer: IntegerNetwork, place: int) -> Tensor:
    """Return the real value, per channel, of one integer unit of the current into neurons or the readout."""
    start = graph.nodes[place].inputs[0] if isinstance(graph.nodes[place].op, Spikes) else place
    source, averaged = next(iter(graph.sources(start).items()))
    op = integer.nodes[source].op
    if not isinstance(op, IntegerSynapses):
        raise TypeError(f"{graph.nodes[source].name!r} has no unit")
    unit = op.unit / averaged
    return unit if len(unit) == graph.nodes[place].shape[0] else unit[:1]


def _check_neurons(
    graph: Graph, place: int, made: IntegerNeuron, current: Rounded, unit: Tensor, steps: int, call: Call
) -> None:
    """Compare membranes step by step, each from the network's own membrane at the previous step."""
    node, neuron = graph.nodes[place], graph.neuron(place)
    unit = unit.view(-1, *[1] * (len(node.shape) - 1))
    ints, limits = (part.reshape(steps, -1, *node.shape) for part in current)
    eps = torch.as_tensor(getattr(neuron, "eps", 0.0)).detach().double().cpu().amax()
    maxima = 0 if made.table is None else {"add": 0, "max": 1, "ring": 2}[made.coupling]
    constant = maxima * (0.02 * eps + unit) + 4 * unit
    state, before = None, torch.zeros_like(ints[0]).double()
    rise, last = torch.zeros_like(ints[0]), torch.zeros_like(ints[0]).bool()
    adapt = torch.as_tensor(0.0 if made.adapt is None else neuron.constant("adapt_decay"))
    loose = unit * (0 if made.adapt is None else 3 / (1 - float(adapt.max())))
    for now, (value, limit) in enumerate(zip(ints, limits, strict=True)):
        spikes, state = neuron.step(call.given.reshape(steps, -1, *node.shape)[now], state)
        after = state.v.double().cpu()
        started = (before / unit).round().long()
        membrane = made.membrane(value, started)
        found, kept = made.step(value, started, rise)
        error = _decay_error(made.decay, getattr(neuron, "leak", 1.0))
        reach = limit + constant + loose + error * before.abs() + 1e-4 * before.abs().amax()
        if made.coupling == "ring":
            reach = reach + reach.amax()
        limit_now = made.threshold + rise
        near = (((kept if made.delayed else membrane) - limit_now) * unit).abs() <= reach + unit
        if made.delayed:  # rounding also decides whether the last step fired
            near |= (started - made.threshold).abs() <= 1
        wrong = (found != (spikes.cpu() > 0.5)) | ((kept * unit - after).abs() > reach + 1e-4 * after.abs())
        if made.floor is not None:
            wrong &= membrane > made.floor
        if bool((wrong & ~near).any()):
            raise _other(node.name)
        rise, last = made.risen(rise, last), spikes.cpu() > 0.5
        before = after


def _decay_error(decay: Decay | None, leak: Any) -> float:
    """Return the difference between a decay's factor and the leak."""
    leak = torch.as_tensor(leak).detach().double().cpu()
    if isinstance(decay, Multiply):
        return 2.0**-15
    if isinstance(decay, Shifts):
        factor = 1 + sum(sign * 2.0**-distance for sign, distance in decay.terms)
        return float((leak - factor).abs().max())
    return 0.0
