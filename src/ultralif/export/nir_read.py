"""Read NIR files of LIF networks, ours and those of other libraries."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.export.nir import DT
from ultralif.export.nir_file import Graph, Node, read
from ultralif.nn import LIF, Network, UltraLIF
from ultralif.nn.network import AnyNeuron

__all__ = ["from_nir"]

LINEAR = ("Affine", "Linear")
SPIKING = ("LIF", "Threshold")
MAX_UNREAD = 4096  # neurons whose readout is the identity: a matrix of their number squared


def from_nir(path: str | Path, *, dt: float | None = None) -> Network:
    """Return the network in a NIR file: layers of Affine or Linear, then LIF or Threshold.

    A LIF becomes our LIF; a Threshold, or a LIF with ``tau = dt``, becomes UltraLIF in tropical mode, which
    is the same. A linear readout is the mean over time of what the file's last node puts out.

    Args:
        path: the file; it may come from strangers.
        dt: the time step in seconds, which NIR does not state. None: what our own files say, else 1e-4,
            the step of snnTorch and SpikingJelly; norse uses 1e-3 unless told otherwise.
    """
    if not Path(path).is_file():
        raise InputError(f"path={path} is not a file; name a .nir file")
    try:
        graph = read(Path(path))
        stated = graph.metadata.get("ultralif:dt", DT)
        step = float(stated) if dt is None else dt
        if not 0 < step < np.inf:
            raise ValueError(f"its time step dt={step} is not positive")
        return _network(_chain(graph), step)
    except ValueError as error:
        raise InputError(f"{path} is not a NIR file of a LIF network: {error}") from error


def _chain(graph: Graph) -> list[tuple[str, Node]]:
    """Return the nodes from after the input to before the output, each feeding the next."""
    after = dict(graph.edges)
    unknown = {name for edge in graph.edges for name in edge} - set(graph.nodes)
    if unknown:
        raise ValueError(f"its edges name {sorted(unknown)[0]!r}, but there is no such node")
    if len(after) < len(graph.edges) or len(set(after.values())) < len(after):
        raise ValueError("its nodes branch or join; only a chain of layers can be read")
    starts = [name for name, node in graph.nodes.items() if node.kind == "Input"]
    if len(starts) != 1:
        raise ValueError(f"it has {len(starts)} Input nodes instead of one")
    chain: list[tuple[str, Node]] = []
    name = starts[0]
    while name in after and len(chain) <= len(graph.nodes):
        name = after[name]
        chain.append((name, graph.nodes[name]))
    if not chain or chain.pop()[1].kind != "Output":
        raise ValueError("no chain of nodes leads from its Input to an Output")
    if len(chain) + 2 < len(graph.nodes):
        raise ValueError("it has nodes beside the chain from Input to Output")
    while chain and chain[0][1].kind == "Flatten":  # our networks flatten what comes in
        chain.pop(0)
    return chain


def _network(chain: list[tuple[str, Node]], dt: float) -> Network:
    """Build a network from pairs of linear and spiking nodes, the last of which may lack the latter."""
    for place, (name, node) in enumerate(chain):
        expected = SPIKING if place % 2 else LINEAR
        if node.kind not in expected:
            raise ValueError(
                f"its node {name!r} is {node.kind!r} where {' or '.join(expected)} is understood"
            )
    linears = [_linear(name, node) for name, node in chain[::2]]
    cells = [_cell(name, node, dt) for name, node in chain[1::2]]
    if not cells:
        raise ValueError("it has no spiking layer")
    for linear, (gain, shift, _) in zip(linears, cells, strict=False):
        if len(gain) not in (1, linear.out_features):
            raise ValueError(f"a layer of {linear.out_features} synapses feeds {len(gain)} neurons")
        linear.weight.data.mul_(gain[:, None])
        linear.bias.data.mul_(gain).add_(shift)
    readout = "linear" if len(linears) > len(cells) else "spiking"
    if len(linears) == 1:  # a network has a hidden layer: read it out as it is
        if linears[0].out_features > MAX_UNREAD:
            raise ValueError(
                f"its only layer has {linears[0].out_features} neurons; without a readout at most "
                f"{MAX_UNREAD} are read"
            )
        readout = "linear"
        linears.append(_identity(linears[0].out_features))
    sizes = [linears[0].in_features, *(linear.out_features for linear in linears)]
    if any(linear.in_features != size for linear, size in zip(linears, sizes, strict=False)):
        raise ValueError(f"its layers do not fit each other: {sizes}")
    net = Network(sizes, neuron="LIF", readout="linear" if readout == "linear" else "spiking")
    net.linears = nn.ModuleList(linear.float() for linear in linears)
    net.neurons = nn.ModuleList(neuron for _, _, neuron in cells)
    return net


def _linear(name: str, node: Node) -> nn.Linear:
    weight = _tensor(name, node, "weight")
    bias = _tensor(name, node, "bias") if "bias" in node.arrays else weight.new_zeros(weight.shape[:1])
    if weight.dim() != 2 or bias.shape != weight.shape[:1] or not weight.numel():
        raise ValueError(
            f"its node {name!r} has weights of shape {tuple(weight.shape)}, biases of {tuple(bias.shape)}"
        )
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    linear.weight.data, linear.bias.data = weight, bias
    return linear


def _identity(size: int) -> nn.Linear:
    linear = nn.Linear(size, size, dtype=torch.float64)
    linear.weight.data, linear.bias.data = torch.eye(size).double(), torch.zeros(size).double()
    return linear


def _cell(name: str, node: Node, dt: float) -> tuple[Tensor, Tensor, AnyNeuron]:
    """Return what the current is multiplied by, what is added to it, and the neuron that takes it."""
    if node.kind == "Threshold":
        threshold = _tensor(name, node, "threshold").flatten()
        return torch.ones_like(threshold), torch.zeros_like(threshold), _tropical(name, threshold)
    tau, r, v_leak, threshold = (
        _tensor(name, node, key).flatten() for key in ("tau", "r", "v_leak", "v_threshold")
    )
    v_reset = _tensor(name, node, "v_reset").flatten() if "v_reset" in node.arrays else torch.zeros_like(tau)
    if len({part.shape for part in (tau, r, v_leak, threshold, v_reset)}) > 1:
        raise ValueError(f"its node {name!r} has constants of different shapes")
    if not bool((tau > 0).all()):
        raise ValueError(f"its node {name!r} has a time constant that is not positive")
    gain = dt / tau * r
    leak = 1 - dt / tau
    if bool((leak.abs() < 1e-5).all()):
        return gain, v_leak, _tropical(name, threshold)
    if not bool((leak > 0).all()):
        raise ValueError(
            f"its node {name!r} has a time constant below the time step dt={dt:g}; pass a smaller dt"
        )
    neuron = LIF(leak=_constant(leak), threshold=_positive(name, threshold), v_reset=_constant(v_reset))
    return gain, v_leak * dt / tau, neuron


def _tropical(name: str, threshold: Tensor) -> UltraLIF:
    neuron = UltraLIF(threshold=_positive(name, threshold), learn_eps=False)
    neuron.mode = "tropical"
    return neuron


def _positive(name: str, threshold: Tensor) -> float | Tensor:
    if not bool((threshold > 0).all()):
        raise ValueError(
            f"its node {name!r} has a threshold that is not positive, which neurons at rest exceed"
        )
    return _constant(threshold)


def _constant(values: Tensor) -> float | Tensor:
    """Return one number where all neurons have the same."""
    return float(values[0]) if bool((values == values[0]).all()) else values.float()


def _tensor(name: str, node: Node, key: str) -> Tensor:
    array: np.ndarray[Any, Any] | None = node.arrays.get(key)
    if array is None or array.size == 0:
        raise ValueError(f"its node {name!r} has no {key}")
    if not np.isfinite(array).all():
        raise ValueError(f"its node {name!r} has {key} that is not finite")
    return torch.tensor(array.astype(np.float64))
