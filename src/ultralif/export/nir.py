"""NIR, the exchange format of spiking networks: what it expresses exactly is written, the rest is refused.

NIR's LIF is ``tau dv/dt = (v_leak - v) + r I``, with a spike where ``v > v_threshold`` and then
``v = v_reset``. With time steps dt that is our LIF of ``leak = 1 - dt / tau``, its current scaled by
``r * (1 - leak)``. Readers differ in how they treat r and dt, so r is 1, its inverse is in the weights,
and dt is 1e-4, which all of them know.
"""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import h5py
import torch
from torch import Tensor, nn

from ultralif import functional
from ultralif.errors import InputError, check_choice, need
from ultralif.export.graph import Graph
from ultralif.export.harden import answer
from ultralif.export.nir_graph import written_graph
from ultralif.export.quantize_neuron import each as channelwise
from ultralif.export.trace import describe
from ultralif.functional import Constant, Mode
from ultralif.nn import LIF, AdaLIF, DSpike, SoftLIF, UltraDLIF, UltraDPLIF, UltraLIF
from ultralif.nn import mode as in_mode
from ultralif.nn.network import AnyNeuron

__all__ = ["DT", "Drift", "to_nir"]

DT = 1e-4
NO_LEAK = 1 - 2.0**-10  # the leak in an approximation of neurons without leak


class Drift(NamedTuple):
    """Difference between an approximation and its network on given inputs."""

    spikes: float
    """Share of the spikes of all layers."""
    decisions: float
    """Share of the decisions."""


class _Cell(NamedTuple):
    """A LIF layer: ``v <- leak v + (I + shift)``, constants float64 that broadcast to the features."""

    leak: Tensor
    threshold: Tensor
    v_reset: Tensor
    shift: Tensor


Pooling = Literal["average", "sum"]


def to_nir(
    net: nn.Module,
    path: str | Path,
    *,
    mode: Mode = "hard",
    dt: float = DT,
    margin: float = 0.0,
    approximate: Tensor | None = None,
    shape: Sequence[int] | None = None,
    pooling: Pooling = "average",
) -> Drift | None:
    """Write a network as a NIR file; return the drift if it had to be approximated.

    Exact are LIF, PLIF, FullPLIF, and DSpike and SoftLIF in hard mode; and UltraLIF in tropical mode,
    which spikes where its current exceeds the threshold: a LIF with ``tau = dt``. Layers are Affine, Conv2d
    (batch normalization folded in), AvgPool2d or SumPool2d, and Flatten; a sum of branches is two edges that
    meet.

    Args:
        net: a trained network; see `describe` for the layers that it may have.
        path: the file, conventionally ``.nir``.
        mode: ``hard`` or ``tropical``.
        dt: the time step that readers are to use, in seconds.
        margin: time constants are above dt by at least this share of it: SpikingJelly refuses ``tau = dt``,
            and reads a tropical network with a margin of 1e-6.
        approximate: inputs ``[T, B, *input]``. Neurons that NIR cannot express are then written as LIF,
            which is exact for one time step, and the drift is measured on these inputs.
        shape: the features of one time step; not needed if the network begins with Linear.
        pooling: write means as ``average``, which snnTorch and SpikingJelly read, or as ``sum`` with weights
            divided by the windows' sizes, which norse reads.
    """
    if mode not in ("hard", "tropical"):
        raise InputError(f"mode must be hard or tropical, since NIR's spikes are binary, got {mode!r}")
    if not (dt > 0 and 0 <= margin < 1):
        raise InputError(f"dt must be positive and margin in [0, 1), got dt={dt} and margin={margin}")
    check_choice("pooling", pooling, get_args(Pooling))
    nir = need("nir", "nir")
    graph = describe(net, shape)
    cells = {place: _cell(graph, place, mode, approximate is not None) for place in graph.spiking}
    kind = type(graph.neuron(graph.spiking[0])).__name__
    metadata: dict[str, Any] = {"ultralif:neuron": kind, "ultralif:mode": mode, "ultralif:dt": dt}
    written = written_graph(nir, graph, cells, dt, margin, pooling)
    drift = None if approximate is None else _drift(net, graph, cells, mode, approximate)
    if drift is not None:
        metadata |= {f"ultralif:drift_{name}": value for name, value in drift._asdict().items()}
    written.metadata = metadata
    _write(nir, written, Path(path))
    return drift


def _cell(graph: Graph, place: int, mode: Mode, approximate: bool) -> _Cell:
    """Express a layer as LIF, or raise an error that says why it is not possible."""
    node, neuron = graph.nodes[place], graph.neuron(place)
    name = f"layer {node.name!r}, {type(neuron).__name__},"
    if neuron.reset != "zero" or "synapse" in neuron.declared():
        what = "a synaptic current" if neuron.reset == "zero" else f"reset={neuron.reset!r}"
        raise InputError(f"{name} has {what}, which NIR's LIF cannot say; export to onnx")

    def each(constant: Constant) -> Tensor:
        return channelwise(constant, node.shape)

    zero, threshold = each(0.0), each(neuron.threshold)
    if getattr(neuron, "delayed_reset", False):
        raise InputError(f"{name} has delayed_reset=True, and NIR resets at once; export to onnx")
    if isinstance(neuron, LIF | DSpike | SoftLIF):
        return _Cell(each(neuron.leak), threshold, each(neuron.v_reset), zero)
    if isinstance(neuron, UltraLIF):
        decay = each(neuron.leak).log()
        if bool((each(neuron.v_reset) + decay > threshold).any()):
            raise InputError(
                f"{name} is reset above its threshold, which NIR's LIF cannot say; export to onnx"
            )
        if mode == "tropical":
            return _Cell(zero, threshold, zero, zero)
        if approximate:  # a membrane at rest exceeds the threshold where the current exceeds this
            eps = each(neuron.eps)
            return _Cell(zero, threshold, zero, -eps * torch.log1p(-torch.exp((decay - threshold) / eps)))
        raise InputError(
            f"{name} in hard mode has a log-sum-exp membrane, which NIR cannot say; export mode='tropical', "
            "which is exact, or to c or onnx, or allow an approximation (approximate, measured on inputs)"
        )
    if isinstance(neuron, UltraDLIF):
        if approximate:
            return _uncoupled(neuron, mode, each)
        raise InputError(
            f"{name} takes the maximum of its neighbours, which NIR cannot say; export to c or onnx, "
            "or allow an approximation (approximate, measured on inputs)"
        )
    what = "a threshold that adapts" if isinstance(neuron, AdaLIF) else "a membrane"
    raise InputError(f"{name} has {what}, which NIR cannot say; export to onnx, or train LIF or FullPLIF")


def _uncoupled(neuron: UltraDLIF, mode: Mode, each: Callable[[Constant], Tensor]) -> _Cell:
    """Express a ring of neurons as if all neighbours had the same membrane, as they do at rest."""
    shift = each(0.0)
    if mode == "hard" and not neuron.centered:
        shift = each(neuron.eps) * math.log(3)
    leak = each(NO_LEAK)
    if isinstance(neuron, UltraDPLIF):
        if neuron.leak_form == "factor":
            leak = each(neuron.leak)
        elif neuron.leak_form == "shift":
            shift = shift + each(neuron.leak).log()
        else:
            raise InputError(f"leak_form={neuron.leak_form!r} has no form in NIR; train with 'factor'")
    return _Cell(leak, each(neuron.threshold), each(neuron.v_reset), shift)


@torch.no_grad()
def _drift(net: nn.Module, graph: Graph, cells: dict[int, _Cell], mode: Mode, x: Tensor) -> Drift:
    """Compare the network with one whose neurons are those of the file."""
    with in_mode(net, mode):
        scores, expected = answer(net, x)

    def replaced(cell: _Cell) -> Callable[[AnyNeuron, tuple[Tensor], Tensor], Tensor]:
        def hook(neuron: AnyNeuron, given: tuple[Tensor], spikes: Tensor) -> Tensor:
            current = given[0].double().cpu() + cell.shift
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
        with h5py.File(temporary, "r+") as file:  # zero is the default, and nir <= 1.0.4 has no other
            for node in file["node/nodes"].values():
                if "v_reset" in node and not node["v_reset"][()].any():
                    del node["v_reset"]
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
