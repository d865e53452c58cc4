"""Write NIR, the exchange format for spiking networks, and refuse what it cannot express exactly.

NIR's LIF is ``tau dv/dt = (v_leak - v) + r I``, with a spike where ``v > v_threshold`` and then
``v = v_reset``. With time steps dt that is our LIF of ``leak = 1 - dt / tau``, its current scaled by
``r * (1 - leak)``. Readers differ in how they treat r and dt. So r is 1, its inverse is folded into the
weights, and dt is 1e-4, which all of them support.
"""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import h5py
import numpy as np
import torch
from torch import Tensor, nn

from ultralif import functional
from ultralif.errors import InputError, check_choice, need
from ultralif.export.compare import check_own_neurons, compared, draw
from ultralif.export.graph import (
    Flatten,
    Graph,
    Input,
    Last,
    Leaky,
    Node,
    Norm,
    Pooling,
    Spikes,
    Sum,
    Synapses,
)
from ultralif.export.harden import answer
from ultralif.export.quantize import each as channelwise
from ultralif.functional import Constant, Mode
from ultralif.nn import LIF, AdaLIF, DelayedLinear, DSpike, SoftLIF, UltraDLIF, UltraDPLIF, UltraLIF
from ultralif.nn import mode as in_mode
from ultralif.nn.network import AnyNeuron

__all__ = ["DT", "Drift", "to_nir"]

DT = 1e-4
ROUNDING = 0.01  # the largest share of spikes that rounding may move in an exact network
NO_LEAK = 1 - 2.0**-10  # the leak that approximates neurons without one


class Drift(NamedTuple):
    """Difference between an approximation and its network on given inputs.

    Example:
        >>> Drift(spikes=0.02, decisions=0.0).spikes  # 2 % of the spikes differ
        0.02
    """

    spikes: float
    """Share of the spikes of all layers that differ."""
    decisions: float
    """Share of decisions that differ."""


class WrittenLIF(NamedTuple):
    """A LIF layer: ``v <- leak v + (I + shift)``, with float64 constants that broadcast to the features."""

    leak: Tensor
    threshold: Tensor
    v_reset: Tensor
    shift: Tensor
    synapse: Tensor | None = None
    """The decay factor of a synaptic current, as in CubaLIF."""


WrittenPooling = Literal["average", "sum"]


def to_nir(
    net: nn.Module,
    path: str | Path,
    *,
    mode: Mode = "hard",
    dt: float = DT,
    margin: float = 0.0,
    approximate: Tensor | None = None,
    shape: Sequence[int] | None = None,
    pooling: WrittenPooling = "average",
    inputs: Tensor | None = None,
) -> Drift:
    """Write a network as a NIR file; return how far the written network differs from ``net``.

    LIF, PLIF, FullPLIF, and DSpike and SoftLIF in hard mode are exact. So is UltraLIF in tropical mode,
    which spikes where its current exceeds the threshold, as a LIF with ``tau = dt`` does. Layers are Affine,
    Conv2d (batch normalization folded in), AvgPool2d or SumPool2d, and Flatten; a sum of branches is two
    edges into one node. A synaptic current becomes a CubaLIF, `Recurrent` a cycle, `DelayedLinear` a Delay
    for every step, and `LeakyIntegrator` an LI. norse and snnTorch ignore a ``v_reset`` other than 0 when
    they read the file.

    Args:
        net: a trained network; `describe` lists the supported layers.
        path: the file, conventionally ``.nir``.
        mode: ``hard`` or ``tropical``.
        dt: the time step for readers, in seconds.
        margin: time constants exceed dt by at least this share of it. SpikingJelly refuses ``tau = dt``, and
            reads a tropical network with a margin of 1e-6.
        approximate: inputs ``[T, B, *input]``. If given, neurons that NIR cannot express are written as LIF,
            which is exact for one time step, and the drift is measured on these inputs.
        shape: the feature shape of one time step; not needed if the network begins with Linear.
        pooling: write means as ``average``, which snnTorch and SpikingJelly read, or as ``sum`` with weights
            divided by the window sizes, which norse reads.
        inputs: ``[T, B, *input]``, used in addition to random spikes to compare the written network with
            ``net``. A network that differs is refused unless ``approximate`` is given.

    Example:
        >>> import tempfile
        >>> from ultralif.nn import LIF
        >>> net = nn.Sequential(nn.Linear(4, 8), LIF(), nn.Linear(8, 2))
        >>> to_nir(net, tempfile.mkdtemp() + "/net.nir").spikes
        0.0
    """
    if mode not in ("hard", "tropical"):
        raise InputError(f"mode must be hard or tropical, since NIR's spikes are binary, got {mode!r}")
    if not (dt > 0 and 0 <= margin < 1):
        raise InputError(f"dt must be positive and margin in [0, 1), got dt={dt} and margin={margin}")
    check_choice("pooling", pooling, get_args(WrittenPooling))
    nir = need("nir", "nir")
    graph = compared(net, shape, mode, inputs if approximate is None else approximate)
    check_own_neurons(graph)
    cells = {place: _written(graph, place, mode, approximate is not None) for place in graph.spiking}
    kind = type(graph.neuron(graph.spiking[0])).__name__
    metadata: dict[str, Any] = {"ultralif:neuron": kind, "ultralif:mode": mode, "ultralif:dt": dt}
    written = _graph(nir, graph, cells, dt, margin, pooling)
    x = inputs if approximate is None else approximate
    drift = _drift(net, graph, cells, mode, draw(graph, "spikes") if x is None else x)
    if approximate is not None:
        metadata |= {f"ultralif:drift_{name}": value for name, value in drift._asdict().items()}
    elif drift.spikes > ROUNDING:
        raise InputError(
            f"written as NIR, the network differs in {100 * drift.spikes:.2g} % of its spikes, so nothing "
            "was written; export to onnx, or allow an approximation (option approximate)"
        )
    written.metadata = metadata
    _write(nir, written, Path(path))
    return drift


def _written(graph: Graph, place: int, mode: Mode, approximate: bool) -> WrittenLIF:
    """Express a layer as LIF, or raise an error that explains why this is impossible."""
    node, neuron = graph.nodes[place], graph.neuron(place)
    name = f"layer {node.name!r}, {type(neuron).__name__},"
    if neuron.reset != "zero":
        raise InputError(
            f"{name} has reset={neuron.reset!r}, which NIR's LIF cannot represent; export to c or onnx"
        )

    def each(constant: Constant) -> Tensor:
        return channelwise(constant, node.shape)

    zero, threshold = each(0.0), each(neuron.threshold)
    if getattr(neuron, "delayed_reset", False):
        raise InputError(f"{name} has delayed_reset=True, but NIR resets immediately; export to c or onnx")
    synapse = neuron.constant("synapse") if "synapse" in neuron.declared() else None
    if isinstance(neuron, LIF | DSpike | SoftLIF):
        decay = None if synapse is None else each(synapse)
        return WrittenLIF(each(neuron.leak), threshold, each(neuron.v_reset), zero, decay)
    if synapse is not None:
        raise InputError(f"{name} has a synaptic current, which NIR has only for LIF; export to c or onnx")
    if isinstance(neuron, UltraLIF):
        decay = each(neuron.leak).log()
        if bool((each(neuron.v_reset) + decay > threshold).any()):
            raise InputError(
                f"{name} is reset above its threshold, which NIR's LIF cannot represent; export to onnx"
            )
        if mode == "tropical":
            return WrittenLIF(zero, threshold, zero, zero)
        if approximate:  # the current at which a membrane at rest exceeds the threshold
            eps = each(neuron.eps)
            return WrittenLIF(
                zero, threshold, zero, -eps * torch.log1p(-torch.exp((decay - threshold) / eps))
            )
        raise InputError(
            f"{name} in hard mode has a log-sum-exp membrane, which NIR cannot represent; export "
            "mode='tropical', which is exact, or to c or onnx, or allow an approximation (option "
            "approximate)"
        )
    if isinstance(neuron, UltraDLIF):
        if approximate:
            return _uncoupled(neuron, mode, each)
        raise InputError(
            f"{name} takes the maximum of its neighbours, which NIR cannot represent; export to c or onnx, "
            "or allow an approximation (option approximate)"
        )
    what = "a threshold that adapts" if isinstance(neuron, AdaLIF) else "a membrane"
    raise InputError(
        f"{name} has {what}, which NIR cannot represent; export to onnx, or train LIF or FullPLIF"
    )


def _uncoupled(neuron: UltraDLIF, mode: Mode, each: Callable[[Constant], Tensor]) -> WrittenLIF:
    """Express a ring of neurons as if all neighbours had the same membrane, as at rest."""
    shift = each(0.0)
    if mode == "hard" and not neuron.centered:
        shift = each(neuron.eps) * math.log(3)
    leak = each(neuron.leak if isinstance(neuron, UltraDPLIF) else NO_LEAK)
    return WrittenLIF(leak, each(neuron.threshold), each(neuron.v_reset), shift)


@torch.no_grad()
def _drift(net: nn.Module, graph: Graph, cells: dict[int, WrittenLIF], mode: Mode, x: Tensor) -> Drift:
    """Compare the network with the LIF layers of the file, driven by its own synapses."""
    x = x.reshape(*x.shape[:2], *graph.nodes[0].shape).to(next(net.parameters(), x))
    with in_mode(net, mode):
        scores, expected = answer(net, x)

    def replaced(cell: WrittenLIF) -> Callable[[AnyNeuron, tuple[Tensor], Tensor], Tensor]:
        def hook(neuron: AnyNeuron, given: tuple[Tensor], spikes: Tensor) -> Tensor:
            current = given[0].double().cpu() + cell.shift
            if cell.synapse is not None:
                current, _ = functional.leaky_integrator(current, None, leak=cell.synapse)
            found, _ = functional.lif(current, leak=cell.leak, threshold=cell.threshold, v_reset=cell.v_reset)
            return found.to(spikes)

        return hook

    hooks = [graph.neuron(place).register_forward_hook(replaced(cell)) for place, cell in cells.items()]
    try:
        found, trains = answer(net, x)
    finally:
        for hook in hooks:
            hook.remove()
    differing = torch.cat([(a != b).flatten() for a, b in zip(trains, expected, strict=True)])
    decided = found.argmax(1) != scores.argmax(1)
    return Drift(differing.double().mean().item(), decided.double().mean().item())


def _write(nir: Any, graph: Any, path: Path) -> None:
    """Write a file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        nir.write(temporary, graph)
        with h5py.File(temporary, "r+") as file:  # zero is the default, and nir <= 1.0.4 supports no other
            for node in file["node/nodes"].values():
                if "v_reset" in node and not node["v_reset"][()].any():
                    del node["v_reset"]
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _graph(
    nir: Any, graph: Graph, cells: dict[int, WrittenLIF], dt: float, margin: float, pooling: str
) -> Any:
    """Return the NIR graph.

    NIR multiplies a current by ``1 - leak``; the inverse is in the weights of the synapses.

    Args:
        nir: the module.
        graph: the network.
        cells: the LIF for each spiking node.
        dt: the time step.
        margin: time constants exceed dt by at least this share of it.
        pooling: ``average``, or ``sum`` with the window sizes folded into the weights.
    """
    keep = {place: 1 - cell.leak.clamp(min=margin / (1 + margin)) for place, cell in cells.items()}
    scales, shifts = _scales(graph, cells, keep, summed=pooling == "sum")
    nodes: dict[str, Any] = {}
    names: dict[int, list[str]] = {}  # the NIR nodes that stand for each node; several for a sum
    edges: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    late: dict[int, str] = {}  # neurons, and the synapses of their feedback
    for place, node in enumerate(graph.nodes):
        feeds = [name for i in node.inputs for name in names[i]]
        if isinstance(node.op, Sum | Last):
            names[place] = feeds
            continue
        if isinstance(node.op, Synapses) and node.op.delay is not None:
            scale, shift = scales[place], shifts.get(place)
            names[place] = _delayed(nir, node.op, scale, shift, feeds[0], nodes, edges, numbers, dt)
            continue
        if isinstance(node.op, Synapses) and node.op.geometry is None and len(node.shape) > 1:
            raise InputError(
                f"layer {node.name!r} is a Linear on the last of several axes, which NIR cannot represent; "
                "flatten its input first"
            )
        if isinstance(node.op, Input):
            name, made = "input", nir.Input(input_type={"input": np.array(node.shape)})
        elif isinstance(node.op, Spikes):
            name, made = "neurons", _lif(nir, node.shape, cells[place], keep[place], dt)
        elif isinstance(node.op, Synapses):
            name = "synapses" if place < len(graph.nodes) - 1 else "readout"
            before = graph.nodes[node.inputs[0]].shape
            made = _synapses(nir, node.op, before, scales[place], shifts.get(place))
            feedback = graph.nodes[node.inputs[0]].op
        elif isinstance(node.op, Flatten):
            before = graph.nodes[node.inputs[0]].shape
            # Axes are counted from the end, so that readers need not agree on a batch axis.
            name, made = "flatten", nir.Flatten({"input": np.array(before)}, -len(before), -1)
        elif isinstance(node.op, Pooling | Norm):
            name, made = "pool", _pool(nir, node.name, node.op, pooling)
        else:
            name, made = "readout", _integrator(nir, node, dt)
        if name not in ("input", "readout"):
            numbers[name] = numbers.get(name, 0) + 1
            name = f"{name}{numbers[name]}"
        nodes[name], names[place] = made, [name]
        edges += [(feed, name) for feed in feeds]
        if isinstance(node.op, Synapses) and isinstance(feedback, Last):
            late[feedback.of] = name
        if place in late:  # norse needs this edge before all others from these neurons
            edges.append((name, late[place]))
    nodes["output"] = nir.Output(output_type={"output": np.array(graph.nodes[-1].shape)})
    edges += [(feed, "output") for feed in names[len(graph.nodes) - 1]]
    # nir infers a wrong shape for grouped convolutions; ours are known
    grouped = any(getattr(node, "groups", 1) != 1 for node in nodes.values())
    return nir.NIRGraph(nodes=nodes, edges=edges, type_check=not grouped and not late)


def _scales(
    graph: Graph, cells: dict[int, WrittenLIF], keep: dict[int, Tensor], summed: bool
) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Return the factors of the outputs of synapses, and the constants added to them."""
    scales: dict[int, Tensor] = {}
    shifts: dict[int, Tensor] = {}
    sinks = [*cells] if graph.is_count[-1] else [*cells, len(graph.nodes) - 1]
    for sink in sinks:
        node = graph.nodes[sink]
        sources = graph.sources(node.inputs[0] if sink in cells else sink)
        if not sources:
            raise InputError(
                f"layer {node.name!r} receives spikes without weights; put Linear or Conv2d before it"
            )
        gain = torch.ones(1, dtype=torch.float64)
        if sink in cells and cells[sink].synapse is None:
            gain = 1 / keep[sink]
        if isinstance(node.op, Leaky):
            gain = 1 / (1 - channelwise(node.op.leak, node.shape))
        feedback = [i for i in sources if isinstance(graph.nodes[graph.nodes[i].inputs[0]].op, Last)]
        first = next((source for source in sources if source not in feedback), None)
        if first is None:
            raise InputError(f"layer {node.name!r} has no synapses but feedback; put Linear before it")
        for source in feedback:  # NIR applies feedback and its bias only from the second step
            op: Any = graph.nodes[source].op
            shifts[first] = shifts.get(first, 0.0) + op.folded()[1]
            shifts[source] = -op.folded()[1]
        for source, factor in sources.items():
            channels = graph.nodes[source].shape[0]
            if gain.numel() not in (1, channels) and bool((gain != gain.flatten()[0]).any()):
                raise InputError(
                    f"layer {node.name!r} has a separate leak for each position, which NIR cannot represent"
                )
            mine = gain.flatten()[:1] if gain.numel() not in (1, channels) else gain.flatten()
            mine = mine.expand(channels) / (factor if summed else 1)
            if not torch.equal(scales.setdefault(source, mine), mine):
                raise InputError(
                    f"layer {node.name!r} shares synapses with neurons that have a different leak, which NIR "
                    "cannot represent"
                )
        if sink in cells and bool(cells[sink].shift.any()):
            shift = cells[sink].shift.flatten()
            if first in shifts or len(shift) != graph.nodes[first].shape[0]:
                raise InputError(f"layer {node.name!r} shares its synapses and cannot be approximated")
            shifts[first] = shift
    if summed:
        for place, node in enumerate(graph.nodes):
            if isinstance(node.op, Synapses):
                counted = _windows(graph, node.inputs[0])
                scales[place] = torch.stack([scales[place] / counted, scales[place]])
    return scales, shifts


def _windows(graph: Graph, place: int) -> int:
    """Return the product of the sizes of all windows over which spikes were summed before a node."""
    node = graph.nodes[place]
    if isinstance(node.op, Input | Spikes | Last) or not graph.is_count[place]:
        return 1
    inner = _windows(graph, node.inputs[0])
    if isinstance(node.op, Sum) and inner != _windows(graph, node.inputs[1]):
        raise InputError(f"layer {node.name!r} adds spikes to means of spikes; write pooling='average'")
    return inner * node.op.count if isinstance(node.op, Pooling) else inner


def _delayed(
    nir: Any,
    op: Synapses,
    scale: Tensor,
    shift: Tensor | None,
    feed: str,
    nodes: dict[str, Any],
    edges: list[tuple[str, str]],
    numbers: dict[str, int],
    dt: float,
) -> list[str]:
    """Write delayed synapses as one Delay and one Affine per integer delay, and return the Affines.

    A fractional delay is split between its two neighbouring steps.
    """
    taps = cast(DelayedLinear, op.module).taps.detach().double().cpu() * scale.view(-1, 1, 1)
    _, bias = op.folded()
    bias = (bias if shift is None else bias + shift) * scale
    names: list[str] = []
    for step, weight in enumerate(taps.unbind(-1)):
        if names and not weight.any():
            continue
        number = numbers["synapses"] = numbers.get("synapses", 0) + 1
        name, source = f"synapses{number}", feed
        if step:
            source = f"delay{number}"
            nodes[source] = nir.Delay(_array(torch.full(weight.shape[1:], step * dt)))
            edges.append((feed, source))
        nodes[name] = nir.Affine(_array(weight), _array(bias if not names else torch.zeros_like(bias)))
        edges.append((source, name))
        names.append(name)
    return names


def _integrator(nir: Any, node: Node, dt: float) -> Any:
    """Return a membrane readout; the inverse of ``1 - leak`` is in the weights before it."""
    keep = 1 - channelwise(cast(Leaky, node.op).leak, node.shape).expand(node.shape)
    return nir.LI(
        tau=_array(dt / keep), r=_array(torch.ones_like(keep)), v_leak=_array(torch.zeros_like(keep))
    )


def _lif(nir: Any, shape: tuple[int, ...], cell: WrittenLIF, keep: Tensor, dt: float) -> Any:
    def full(values: Tensor) -> Any:
        return _array(values.expand(shape))

    if cell.synapse is not None:  # scaled so that every reader multiplies the current by 1
        decay = 1 - cell.synapse
        return nir.CubaLIF(
            tau_syn=full(dt / decay),
            tau_mem=full(dt / keep),
            r=full(1 / keep),
            v_leak=full(torch.zeros_like(keep)),
            v_threshold=full(cell.threshold),
            v_reset=full(cell.v_reset),
            w_in=full(1 / decay),
        )
    return nir.LIF(
        tau=full(dt / keep),
        r=full(torch.ones_like(keep)),
        v_leak=full(torch.zeros_like(keep)),
        v_threshold=full(cell.threshold),
        v_reset=full(cell.v_reset),
    )


def _synapses(nir: Any, op: Synapses, before: tuple[int, ...], scale: Tensor, shift: Tensor | None) -> Any:
    weight, bias = op.folded()
    by_weight, by_bias = scale if scale.dim() > 1 else (scale, scale)
    bias = (bias if shift is None else bias + shift) * by_bias
    weight = weight * by_weight.view(-1, *[1] * (weight.dim() - 1))
    g = op.geometry
    if g is None:
        return nir.Affine(_array(weight), _array(bias))
    return nir.Conv2d(before[1:], _array(weight), g.stride, g.padding, g.dilation, g.groups, _array(bias))


def _pool(nir: Any, name: str, op: Pooling | Norm, pooling: str) -> Any:
    if isinstance(op, Norm):
        raise InputError(f"layer {name!r} follows no Linear or Conv2d that it could be folded into for NIR")
    if op.kind == "max":
        raise InputError(
            f"layer {name!r} takes maxima, and NIR has no maximum pooling; pool by mean, or export to onnx"
        )
    kind = nir.AvgPool2d if pooling == "average" else nir.SumPool2d
    return kind(np.array(op.size), np.array(op.stride), np.array((0, 0)))


def _array(x: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(x.detach().float().cpu().contiguous().numpy())
