"""Build a network from any NIR graph: joins, cycles, and neurons in norse's arithmetic."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ultralif.conversion.neurons import ConvertedNeuron, Integrator, NorseBox, Surrogate
from ultralif.conversion.streaming import with_lif
from ultralif.errors import InputError
from ultralif.export.nir_file import NirGraph, NirNode
from ultralif.nn import DelayedLinear, Neuron, Recurrent
from ultralif.nn.layers import is_watched, shown

__all__ = ["NirNetwork", "imported"]

MAX_DELAY = 10_000


class NirNetwork(nn.Module):
    """A network over ``[T, B, *input]`` built from a NIR file's nodes; each node sums its inputs.

    Args:
        layers: the layer for each node, in computation order.
        feeds: the nodes that feed each node.
        late: edges whose value arrives one step later, because they close a cycle. At the first step they
            carry nothing, so a bias in the feedback takes effect from the second step.
        source: the Input.
        target: the Output.
    """

    def __init__(
        self,
        layers: dict[str, nn.Module],
        feeds: dict[str, list[str]],
        late: set[tuple[str, str]],
        source: str,
        target: str,
    ) -> None:
        super().__init__()
        self.names, self.layers = list(layers), nn.ModuleList(layers.values())
        self.feeds, self.late, self.source, self.target = feeds, late, source, target

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the file's last node at every step, ``[T, B, *output]``."""
        if self.late:
            return self.run(x)[0]
        values = {self.source: x}
        for name, layer in zip(self.names, self.layers, strict=True):
            given = _added([values[feed] for feed in self.feeds[name]])
            if hasattr(layer, "step"):
                values[name] = layer(given)
            else:
                out = layer(given.flatten(0, 1))
                values[name] = out.reshape(*given.shape[:2], *out.shape[1:])
        return values[self.target]

    keeps_state = True

    def run(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the output at every step and the state to continue from."""
        outs = []
        with _watched(self):
            for step in x:
                out, state = self.step(step, state)
                outs.append(out)
        return torch.stack(outs), state

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the output for one time step ``[B, *input]`` and the state to continue from."""
        states, before = ({}, {}) if state is None else state
        states, values = dict(states), {self.source: x}
        for name, layer in zip(self.names, self.layers, strict=True):
            known = (before if (feed, name) in self.late else values for feed in self.feeds[name])
            given = [each[feed] for each, feed in zip(known, self.feeds[name], strict=True) if feed in each]
            if not given:
                continue
            if hasattr(layer, "step"):
                stepped: Any = layer
                values[name], states[name] = stepped.step(_added(given), states.get(name))
            else:
                values[name] = layer(_added(given))
        kept = {feed: values[feed] for feed, _ in self.late if feed in values}
        return values[self.target], (states, kept)


@contextmanager
def _watched(net: nn.Module) -> Iterator[None]:
    """Call every neuron's hooks once at the end, with the inputs and outputs of all its single steps."""
    calls: dict[Neuron[Any], list[tuple[Tensor, Tensor]]] = {
        module: [] for module in net.modules() if isinstance(module, Neuron) and is_watched(module)
    }
    for neuron in calls:
        neuron.__dict__["step"] = partial(_recorded, calls[neuron], neuron.step)
    try:
        yield
    finally:
        for neuron in calls:
            del neuron.__dict__["step"]
    for neuron, steps in calls.items():
        if steps:
            shown(neuron, *(torch.stack(each) for each in zip(*steps, strict=True)))


def _recorded(
    steps: list[tuple[Tensor, Tensor]], step: Callable[..., tuple[Tensor, Any]], x: Tensor, state: Any = None
) -> tuple[Tensor, Any]:
    spike, state = step(x, state)
    steps.append((x, spike))
    return spike, state


def _added(values: Iterable[Tensor]) -> Tensor:
    first, *others = values
    for other in others:
        first = first + other
    return first


class _Scale(nn.Module):
    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.register_buffer("factor", factor)

    factor: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class _Delay(nn.Module):
    """Delay every feature by its own number of steps; the input before the first step is 0."""

    def __init__(self, steps: Tensor) -> None:
        super().__init__()
        self.register_buffer("steps", steps.long())

    steps: Tensor

    def forward(self, x: Tensor) -> Tensor:
        state, outs = None, []
        for step in x:
            out, state = self.step(step, state)
            outs.append(out)
        return torch.stack(outs)

    def step(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        past = x.new_zeros(int(self.steps.max()), *x.shape) if state is None else state
        recent = torch.cat([past, x.unsqueeze(0)])
        places = (len(recent) - 1 - self.steps).expand(x.shape).unsqueeze(0)
        return recent.gather(0, places)[0], recent[1:]


class _Driven(nn.Module):
    """A neuron preceded by factors and a synapse: ``neuron(r * synapse(w_in * x))``."""

    def __init__(
        self, neuron: nn.Module, r: Tensor, w_in: Tensor | None = None, synapse: Integrator | None = None
    ) -> None:
        super().__init__()
        self.neuron, self.synapse = neuron, synapse
        self.register_buffer("r", r)
        self.register_buffer("w_in", w_in)

    r: Tensor
    w_in: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.w_in is None else self.w_in * x
        spikes: Tensor = self.neuron(self.r * (x if self.synapse is None else self.synapse(x)))
        return spikes

    def as_lif(self) -> nn.Module:
        """Return the LIF with the same spikes up to rounding; an integrator is returned unchanged."""
        neuron: Any = self.neuron
        if not isinstance(neuron, ConvertedNeuron):
            return self
        gain = self.r if self.w_in is None else self.r * self.w_in
        if self.synapse is None:
            return neuron.as_lif(gain)
        if bool(self.synapse.v_leak.any()):
            raise InputError("its synaptic current rests at v_leak, unlike LIF's; set v_leak to 0")
        rate: Any = self.synapse.rate
        return neuron.as_lif(gain * rate, 1 - rate)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        inner, i = (None, None) if state is None else state
        x = x if self.w_in is None else self.w_in * x
        if self.synapse is not None:
            x, i = self.synapse.step(x, i)
        neuron: Any = self.neuron
        spike, inner = neuron.step(self.r * x, inner)
        return spike, (inner, i)


def imported(graph: NirGraph, dt: float, reset: str | None, exact: bool) -> NirNetwork:
    """Return the network of a graph, or raise a ValueError that names the node that cannot be read.

    Args:
        graph: the graph.
        dt: the time step.
        reset: ``subtract`` or ``zero``; None means ``zero``.
        exact: keep sums over windows. If False, write them as means, as exports require, and scale weights.
    """
    unknown = sorted({name for edge in graph.edges for name in edge} - set(graph.nodes))
    if unknown:
        raise ValueError(f"its edges name {unknown[0]!r}, but there is no such node")
    ends = {kind: [n for n, node in graph.nodes.items() if node.kind == kind] for kind in ("Input", "Output")}
    for kind, names in ends.items():
        if len(names) != 1:
            raise ValueError(
                f"it has {len(names)} {kind} nodes instead of one{': ' if names else ''}{names or ''}"
            )
    (source,), (target,) = ends["Input"], ends["Output"]
    order, late = _order(graph, source)
    if target not in order:
        raise ValueError(f"no path leads from its Input {source!r} to its Output {target!r}")
    feeds = {name: [a for a, b in graph.edges if b == name and a in order] for name in order}
    layers = {}
    for name in order:
        if name != source:
            try:
                layers[name] = _layer(graph.nodes[name], dt, reset == "subtract")
            except (ValueError, KeyError, IndexError, RuntimeError) as error:
                where = ", in a recurrent part of the graph," if _in_cycle(name, late, graph) else ""
                what = f"has no {error}" if isinstance(error, KeyError) else str(error)
                raise ValueError(f"its node {name!r} ({graph.nodes[name].kind!r}){where} {what}") from error
    if not any(hasattr(layer, "step") for layer in layers.values()):
        raise ValueError("it has no spiking layer and no integrator")
    if not exact:
        _average(layers, feeds)
        layers = {name: with_lif(layer) for name, layer in layers.items()}
        _fold_feedback(layers, feeds, late)
        _fold_delays(layers, feeds)
    return NirNetwork(layers, feeds, late, source, target)


def _average(layers: dict[str, nn.Module], feeds: dict[str, list[str]]) -> None:
    """Replace sums over windows by means where only synapses read them, in place."""
    for name, layer in layers.items():
        if not isinstance(layer, nn.AvgPool2d) or layer.divisor_override is None or any(_pair(layer.padding)):
            continue
        readers = {name}
        while passed := [each for each in readers if isinstance(layers[each], PASSIVE)]:
            readers -= set(passed)
            readers |= {each for each in layers for feed in passed if feed in feeds[each]}
        if all(isinstance(layers[each], nn.Linear | nn.Conv2d) and len(feeds[each]) == 1 for each in readers):
            layer.divisor_override = None
            for each in readers:
                synapses: Any = layers[each]
                synapses.weight.data.mul_(math.prod(_pair(layer.kernel_size)))


def _fold_feedback(
    layers: dict[str, nn.Module], feeds: dict[str, list[str]], late: set[tuple[str, str]]
) -> None:
    """Write neurons that feed back only to themselves, without a bias, as `Recurrent`, in place."""
    for name, back in list(layers.items()):
        readers = [each for each in layers if name in feeds[each]]
        if not isinstance(back, nn.Linear) or bool(back.bias.any()) or len(readers) != 1:
            continue
        (reader,) = readers
        neuron = layers[reader]
        cycle = {(name, reader), (reader, name)}
        if feeds[name] == [reader] and len(late & cycle) == 1 and isinstance(neuron, Neuron):
            layers[reader] = Recurrent(neuron, back)
            feeds[reader] = [feed for feed in feeds[reader] if feed != name]
            late -= cycle
            del layers[name], feeds[name]


def _fold_delays(layers: dict[str, nn.Module], feeds: dict[str, list[str]]) -> None:
    """Write a delay that only linear layers read as `DelayedLinear`, in place."""
    for name, delay in list(layers.items()):
        readers = [each for each in layers if name in feeds[each]]
        linear: list[Any] = [layers[each] for each in readers]
        if not isinstance(delay, _Delay) or not delay.steps.any() or not readers:
            continue
        if any(feeds[each] != [name] or not isinstance(layers[each], nn.Linear) for each in readers):
            continue
        for reader, synapses in zip(readers, linear, strict=True):
            made = DelayedLinear(
                synapses.in_features, synapses.out_features, max_delay=int(delay.steps.max())
            )
            made.weight, made.bias = synapses.weight, synapses.bias
            made.delay.data = delay.steps.expand_as(made.weight).float().clone()
            layers[reader], feeds[reader] = made, feeds[name]
        del layers[name], feeds[name]


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


PASSIVE = (nn.AvgPool2d, nn.Flatten)


def _order(graph: NirGraph, source: str) -> tuple[list[str], set[tuple[str, str]]]:
    """Return the nodes after the input in computation order, and the edges that close cycles."""
    after: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for a, b in graph.edges:
        after[a].append(b)
    done: list[str] = []
    late: set[tuple[str, str]] = set()
    path, open_, seen = [(source, iter(after[source]))], {source}, {source}
    while path:
        name, rest = path[-1]
        for each in rest:
            if each in open_:
                late.add((name, each))
            elif each not in seen:
                seen.add(each)
                open_.add(each)
                path.append((each, iter(after[each])))
                break
        else:
            path.pop()
            open_.discard(name)
            done.append(name)
    return done[::-1], late


def _in_cycle(name: str, late: set[tuple[str, str]], graph: NirGraph) -> bool:
    return any(name in edge for edge in late) or graph.nodes[name].kind == "Pass"


def _layer(node: NirNode, dt: float, subtract: bool) -> nn.Module:
    kind = node.kind
    if kind in ("Output", "Pass"):
        return nn.Identity()
    if kind in ("Affine", "Linear"):
        weight = _tensor(node, "weight")
        if weight.dim() != 2:
            raise ValueError(f"has weights of shape {tuple(weight.shape)}; only matrices are supported")
        return _weighted(nn.Linear(weight.shape[1], weight.shape[0], device="meta"), node, weight)
    if kind in ("Conv1d", "Conv2d"):
        return _convolution(node, int(kind[4]))
    if kind in ("AvgPool2d", "SumPool2d"):
        size, stride, padding = (_whole(node, key, 2) for key in ("kernel_size", "stride", "padding"))
        return nn.AvgPool2d(size, stride, padding, divisor_override=1 if kind == "SumPool2d" else None)  # type: ignore[arg-type]
    if kind == "Flatten":
        return nn.Flatten(1)
    if kind == "Scale":
        return _Scale(_tensor(node, "scale"))
    if kind == "Delay":
        steps = (_tensor(node, "delay") / dt).round()
        if not 0 <= float(steps.min()) <= float(steps.max()) <= MAX_DELAY:
            raise ValueError(
                f"delays by {float(steps.max()):g} steps of dt={dt:g}; 0 to {MAX_DELAY} are supported"
            )
        return _Delay(steps)
    if kind in ("LI", "I"):
        tau, leak = (_rate(node, "tau", dt), _tensor(node, "v_leak")) if kind == "LI" else (None, None)
        return _Driven(Integrator(tau, leak), _tensor(node, "r") * (dt if kind == "I" else 1.0))
    return _neuron(node, dt, subtract)


def _neuron(node: NirNode, dt: float, subtract: bool) -> nn.Module:
    kind, zero = node.kind, torch.zeros(())
    if kind not in ("LIF", "IF", "CubaLIF", "Threshold"):
        raise ValueError("has an unsupported type; write it as a LIF, or as a ul.Stepped neuron")
    rate, leak = None, zero
    if kind == "Threshold":  # a membrane that forgets everything
        rate = torch.ones(())
    elif kind != "IF":
        rate = _rate(node, "tau" if kind == "LIF" else "tau_mem", dt)
        leak = _tensor(node, "v_leak")
    neuron = NorseBox(
        fire=Surrogate("superspike"),
        start=leak,
        membrane_rate=rate,
        v_leak=leak,
        limit=_tensor(node, "threshold" if kind == "Threshold" else "v_threshold"),
        v_reset=_tensor(node, "v_reset") if "v_reset" in node.arrays else zero,
        subtract=subtract and kind != "Threshold",
    )
    if kind != "CubaLIF":
        return neuron if kind == "Threshold" else _Driven(neuron, _tensor(node, "r"))
    w_in = _tensor(node, "w_in") if "w_in" in node.arrays else torch.ones(())
    return _Driven(neuron, _tensor(node, "r"), w_in, Integrator(_rate(node, "tau_syn", dt), leak))


def _convolution(node: NirNode, axes: int) -> nn.Module:
    weight, groups = _tensor(node, "weight"), _whole(node, "groups", 1)[0]
    if weight.dim() != axes + 2 or groups < 1 or len(weight) % groups:
        raise ValueError(f"has weights of shape {tuple(weight.shape)} and {groups} groups")
    made: Any = nn.Conv1d if axes == 1 else nn.Conv2d
    padding: Any = node.arrays["padding"]
    padding = str(padding) if padding.dtype.kind == "U" else _whole(node, "padding", axes)
    stride, dilation = _whole(node, "stride", axes), _whole(node, "dilation", axes)
    shape = tuple(weight.shape[2:])
    layer = made(
        weight.shape[1] * groups, len(weight), shape, stride, padding, dilation, groups, device="meta"
    )
    return _weighted(layer, node, weight)


def _weighted(layer: Any, node: NirNode, weight: Tensor) -> nn.Module:
    bias = _tensor(node, "bias") if "bias" in node.arrays else weight.new_zeros(len(weight))
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"has weights of shape {tuple(weight.shape)} but biases of {tuple(bias.shape)}")
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    made: nn.Module = layer
    return made


def _rate(node: NirNode, key: str, dt: float) -> Tensor:
    """Return dt / tau, rounded as norse does."""
    tau = _tensor(node, key)
    if not bool((tau > 0).all()):
        raise ValueError(f"has a time constant {key} that is not positive")
    return dt * (1 / tau)


def _whole(node: NirNode, key: str, count: int) -> tuple[int, ...]:
    values = node.arrays[key].flatten().tolist()
    if len(values) not in (1, count) or any(v != int(v) or not 0 <= v < 1 << 16 for v in values):
        raise ValueError(f"has {key} {values}, not {count} integers")
    return tuple(map(int, values * (count // len(values))))


def _tensor(node: NirNode, key: str) -> Tensor:
    array = node.arrays[key]
    if array.dtype.kind not in "fiub" or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"has {key} that is empty or not finite")
    return torch.tensor(array.astype(np.float32))
