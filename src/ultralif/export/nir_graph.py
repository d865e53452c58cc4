"""The nodes and edges of a NIR file, made from a network's description."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.graph import Flatten, Graph, Input, Norm, Pool, Spikes, Sum, Synapses

__all__ = ["written_graph"]


class Cell(Protocol):
    """A LIF layer, whose constants broadcast to its features."""

    @property
    def leak(self) -> Tensor:
        """The decay factor."""

    @property
    def threshold(self) -> Tensor:
        """A spike is v > threshold."""

    @property
    def v_reset(self) -> Tensor:
        """The membrane after a spike."""

    @property
    def shift(self) -> Tensor:
        """Constant added to the current."""


def written_graph(
    nir: Any, graph: Graph, cells: Mapping[int, Cell], dt: float, margin: float, pooling: str
) -> Any:
    """Return the NIR graph.

    NIR multiplies a current by ``1 - leak``; the inverse is in the weights of the synapses.

    Args:
        nir: the module.
        graph: the network.
        cells: for each spiking node its LIF.
        dt: the time step.
        margin: time constants are above dt by at least this share of it.
        pooling: ``average``, or ``sum`` with the sizes of windows in the weights.
    """
    keep = {place: 1 - cell.leak.clamp(min=margin / (1 + margin)) for place, cell in cells.items()}
    scales, shifts = _scales(graph, cells, keep, summed=pooling == "sum")
    nodes: dict[str, Any] = {}
    names: dict[int, list[str]] = {}  # of what feeds the readers of a node; a sum has several
    edges: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    for place, node in enumerate(graph.nodes):
        feeds = [name for i in node.inputs for name in names[i]]
        if isinstance(node.op, Sum):
            names[place] = feeds
            continue
        if isinstance(node.op, Input):
            name, made = "input", nir.Input(input_type={"input": np.array(node.shape)})
        elif isinstance(node.op, Spikes):
            name, made = "neurons", _lif(nir, node.shape, cells[place], keep[place], dt)
        elif isinstance(node.op, Synapses):
            name = "synapses" if place < len(graph.nodes) - 1 else "readout"
            before = graph.nodes[node.inputs[0]].shape
            made = _synapses(nir, node.op, before, scales[place], shifts.get(place))
        elif isinstance(node.op, Flatten):
            before = graph.nodes[node.inputs[0]].shape
            # Counted from the end, readers agree whether there is a batch axis.
            name, made = "flatten", nir.Flatten({"input": np.array(before)}, -len(before), -1)
        else:
            name, made = "pool", _pool(nir, node.name, node.op, pooling)
        if name not in ("input", "readout"):
            numbers[name] = numbers.get(name, 0) + 1
            name = f"{name}{numbers[name]}"
        nodes[name], names[place] = made, [name]
        edges += [(feed, name) for feed in feeds]
    nodes["output"] = nir.Output(output_type={"output": np.array(graph.nodes[-1].shape)})
    edges += [(feed, "output") for feed in names[len(graph.nodes) - 1]]
    return nir.NIRGraph(nodes=nodes, edges=edges)


def _scales(
    graph: Graph, cells: Mapping[int, Cell], keep: dict[int, Tensor], summed: bool
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
                f"layer {node.name!r} takes spikes without weights; put Linear or Conv2d before it"
            )
        gain = 1 / keep[sink] if sink in cells else torch.ones(1, dtype=torch.float64)
        for source, factor in sources.items():
            channels = graph.nodes[source].shape[0]
            if gain.numel() not in (1, channels) and bool((gain != gain.flatten()[0]).any()):
                raise InputError(
                    f"layer {node.name!r} has a leak for each place of a map; NIR cannot say that"
                )
            mine = gain.flatten()[:1] if gain.numel() not in (1, channels) else gain.flatten()
            mine = mine.expand(channels) / (factor if summed else 1)
            if not torch.equal(scales.setdefault(source, mine), mine):
                raise InputError(
                    f"layer {node.name!r} shares synapses with neurons of another leak; NIR cannot say that"
                )
        if sink in cells and bool(cells[sink].shift.any()):
            first = next(iter(sources))
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
    """Return the sizes of all windows that spikes were summed over on their way to a node."""
    node = graph.nodes[place]
    if isinstance(node.op, Input | Spikes) or not graph.is_count[place]:
        return 1
    inner = _windows(graph, node.inputs[0])
    if isinstance(node.op, Sum) and inner != _windows(graph, node.inputs[1]):
        raise InputError(f"layer {node.name!r} adds spikes to means of spikes; write pooling='average'")
    return inner * node.op.count if isinstance(node.op, Pool) else inner


def _lif(nir: Any, shape: tuple[int, ...], cell: Cell, keep: Tensor, dt: float) -> Any:
    def full(values: Tensor) -> Any:
        return _array(values.expand(shape))

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


def _pool(nir: Any, name: str, op: Pool | Norm, pooling: str) -> Any:
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
