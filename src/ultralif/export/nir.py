"""NIR, the exchange format of spiking networks: what it can say exactly is written, the rest is refused.

NIR's LIF is ``tau dv/dt = (v_leak - v) + r I``, with a spike where ``v > v_threshold`` and then
``v = v_reset``. With time steps dt that is our LIF of ``leak = 1 - dt / tau``, its current scaled by
``r * (1 - leak)``. Readers differ in how they treat r and dt, so r is 1, its inverse stands in the weights,
and dt is 1e-4, which all of them know.
"""

import math
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import h5py
import numpy as np
import torch
from torch import Tensor, nn

from ultralif import functional
from ultralif.errors import InputError, need
from ultralif.export.harden import spike_trains
from ultralif.functional import Constant, Mode
from ultralif.nn import LIF, AdaLIF, DSpike, Network, SoftLIF, UltraDLIF, UltraDPLIF, UltraLIF
from ultralif.nn import mode as in_mode
from ultralif.nn.network import AnyNeuron

__all__ = ["DT", "Drift", "to_nir"]

DT = 1e-4
NO_LEAK = 1 - 2.0**-10  # the leak of an approximation that should have none


class Drift(NamedTuple):
    """How an approximation differs from its network on given inputs."""

    spikes: float
    """Share of the spikes of all layers."""
    decisions: float
    """Share of the decisions."""


class _Cell(NamedTuple):
    """A LIF layer: ``v <- leak v + (W x + b + shift)``, constants float64 ``[n]``."""

    leak: Tensor
    threshold: Tensor
    v_reset: Tensor
    shift: Tensor


def to_nir(
    net: Network,
    path: str | Path,
    *,
    mode: Mode = "hard",
    dt: float = DT,
    margin: float = 0.0,
    approximate: Tensor | None = None,
) -> Drift | None:
    """Write a network as a NIR file; return the drift if it had to be approximated.

    Exact are LIF, PLIF, FullPLIF, and DSpike and SoftLIF in hard mode; and UltraLIF in tropical mode,
    which spikes where its current exceeds the threshold: a LIF with ``tau = dt``.

    Args:
        net: a trained network.
        path: the file, conventionally ``.nir``.
        mode: ``hard`` or ``tropical``.
        dt: the time step that readers are to use, in seconds.
        margin: keeps time constants above dt by this share of it: SpikingJelly refuses ``tau = dt``, and
            reads a tropical network with a margin of 1e-6.
        approximate: inputs ``[T, B, *input]``. Allows what NIR cannot say to be written as LIF, exact for
            one time step, and measures the drift on them.
    """
    if mode not in ("hard", "tropical"):
        raise InputError(f"mode must be hard or tropical, since NIR's spikes are binary, got {mode!r}")
    if not (dt > 0 and 0 <= margin < 1):
        raise InputError(f"dt must be positive and margin in [0, 1), got dt={dt} and margin={margin}")
    nir = need("nir", "nir")
    cells = [_cell(linear, neuron, mode, approximate is not None) for linear, neuron in net.layers()]
    drift = None if approximate is None else _drift(net, cells, mode, approximate)
    metadata = {"ultralif:neuron": type(net.neurons[0]).__name__, "ultralif:mode": mode, "ultralif:dt": dt}
    if drift is not None:
        metadata |= {f"ultralif:drift_{name}": value for name, value in drift._asdict().items()}
    _write(nir, _graph(nir, net, cells, dt, margin, metadata), Path(path))
    return drift


def _cell(linear: nn.Linear, neuron: AnyNeuron, mode: Mode, approximate: bool) -> _Cell:
    """Say a layer as LIF, or why that cannot be."""
    name = type(neuron).__name__

    def each(constant: Constant) -> Tensor:
        return torch.as_tensor(constant).detach().double().cpu().expand(linear.out_features)

    zero, threshold = each(0.0), each(neuron.threshold)
    if isinstance(neuron, LIF | DSpike | SoftLIF):
        return _Cell(each(neuron.leak), threshold, each(neuron.v_reset), zero)
    if isinstance(neuron, UltraLIF | UltraDLIF) and neuron.delayed_reset:
        raise InputError(f"{name} has delayed_reset=True, and NIR resets at once; export to onnx")
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
    """Say a ring of neurons as if all neighbours had the same membrane, as they have at rest."""
    shift = each(0.0)
    if mode == "hard" and not neuron.centered:
        shift = each(neuron.eps) * math.log(3)
    leak = each(NO_LEAK)
    if isinstance(neuron, UltraDPLIF):
        if neuron.leak_form == "factor":
            leak = each(neuron.leak)
        else:
            shift = shift + each(neuron.leak).log()
    return _Cell(leak, each(neuron.threshold), each(neuron.v_reset), shift)


@torch.no_grad()
def _drift(net: Network, cells: list[_Cell], mode: Mode, x: Tensor) -> Drift:
    """Run the network and what stands for it side by side."""
    with in_mode(net, mode):
        expected, decisions = spike_trains(net, x), net(x).argmax(1)
    trains, signal = [], x.flatten(2)
    for (linear, _), cell in zip(net.layers(), cells, strict=True):
        current = linear(signal).double() + cell.shift
        spikes, _ = functional.lif(current, leak=cell.leak, threshold=cell.threshold, v_reset=cell.v_reset)
        signal = spikes.to(x.dtype)
        trains.append(signal)
    rates = signal.mean(0)
    found = (net.linears[-1](rates) if net.readout == "linear" else rates).argmax(1)
    differing = torch.cat([(a != b).flatten() for a, b in zip(trains, expected, strict=True)])
    return Drift(differing.double().mean().item(), (found != decisions).double().mean().item())


def _graph(
    nir: Any, net: Network, cells: list[_Cell], dt: float, margin: float, metadata: dict[str, Any]
) -> Any:
    """Return the chain of layers; a linear readout is its last node."""
    nodes = {"input": nir.Input(input_type={"input": np.array([net.sizes[0]])})}
    for number, ((linear, _), cell) in enumerate(zip(net.layers(), cells, strict=True), 1):
        keep = 1 - cell.leak.clamp(min=margin / (1 + margin))
        weight, bias = linear.weight.detach().double().cpu(), linear.bias.detach().double().cpu()
        nodes[f"synapses{number}"] = nir.Affine(
            _array(weight / keep[:, None]), _array((bias + cell.shift) / keep)
        )
        nodes[f"neurons{number}"] = nir.LIF(
            tau=_array(dt / keep),
            r=_array(torch.ones_like(keep)),
            v_leak=_array(torch.zeros_like(keep)),
            v_threshold=_array(cell.threshold),
            v_reset=_array(cell.v_reset),
        )
    if net.readout == "linear":
        readout = cast(nn.Linear, net.linears[-1])
        nodes["readout"] = nir.Affine(_array(readout.weight), _array(readout.bias))
    nodes["output"] = nir.Output(output_type={"output": np.array([net.sizes[-1]])})
    return nir.NIRGraph(nodes=nodes, edges=list(pairwise(nodes)), metadata=metadata)


def _array(x: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(x.detach().float().cpu().contiguous().numpy())


def _write(nir: Any, graph: Any, path: Path) -> None:
    """Write a file that is there as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        nir.write(temporary, graph)
        with h5py.File(temporary, "r+") as file:  # zero is the default, and nir <= 1.0.4 knows no other
            for node in file["node/nodes"].values():
                if "v_reset" in node and not node["v_reset"][()].any():
                    del node["v_reset"]
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
