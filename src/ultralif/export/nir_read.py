"""Read NIR files of LIF networks, written by us or by other libraries."""

import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ultralif.errors import InputError, check_choice
from ultralif.export.nir import DT
from ultralif.export.nir_file import NirGraph, NirNode, read
from ultralif.export.nir_graph import imported
from ultralif.nn import LIF, Network, TimeDistributed, UltraLIF
from ultralif.nn.network import AnyNeuron

__all__ = ["from_nir"]

LINEAR = ("Affine", "Linear")
SPIKING = ("LIF", "Threshold")
OF_MAPS = ("Conv2d", "AvgPool2d", "SumPool2d", "Flatten")


def from_nir(
    path: str | Path,
    *,
    dt: float | None = None,
    reset: Literal["zero", "subtract"] | None = None,
    exact: bool = False,
) -> nn.Module:
    """Return the network in a NIR file.

    It takes ``[T, B, *input]`` and returns the output of the file's last node at every step. A chain of
    linear layers, LIF and Threshold becomes a `Network`, which returns the mean over time, if it ends with a
    linear layer or if UltraLIF wrote the file. Other files become a graph of layers, which may include IF,
    CubaLIF, LI, I, Scale, Delay, Conv1d, nodes with several inputs, and cycles, whose feedback arrives one
    step later. A Threshold, or a LIF with ``tau = dt``, becomes the equivalent UltraLIF in tropical mode.

    Args:
        path: the file, which need not be trusted.
        dt: the time step in seconds, which NIR does not state. None: the step stated in our own files, else
            1e-4, the step of snnTorch and SpikingJelly; norse uses 1e-3 by default.
        reset: what a spike does to the membrane: ``zero`` sets it to ``v_reset``, as NIR defines;
            ``subtract`` subtracts the threshold, as snnTorch does by default but cannot write. None: zero,
            with a warning if snnTorch wrote the file.
        exact: keep norse's order of operations, so that every spike is the same. If False, use neurons with
            kernels, which every export supports but which round differently.

    Example:
        >>> import tempfile
        >>> from torch import nn
        >>> from ultralif.export import to_nir
        >>> from ultralif.nn import LIF
        >>> path = tempfile.mkdtemp() + "/net.nir"
        >>> drift = to_nir(nn.Sequential(nn.Linear(4, 8), LIF(), nn.Linear(8, 2)), path)
        >>> type(from_nir(path)).__name__
        'Network'
    """
    if not Path(path).is_file():
        raise InputError(f"path={path} is not a file; name a .nir file")
    if reset is not None:
        check_choice("reset", reset, ("zero", "subtract"))
    try:
        graph = read(Path(path))
        if reset is None and _is_snntorch(graph):
            warnings.warn(
                f"{path} looks like a snnTorch file, whose neurons subtract the threshold by default, "
                "which NIR cannot state. It is read with a reset to zero; pass reset='subtract' or 'zero'",
                stacklevel=2,
            )
        stated = graph.metadata.get("ultralif:dt", DT)
        step = float(stated) if dt is None else dt
        if not 0 < step < np.inf:
            raise ValueError(f"its time step dt={step} is not positive")
        net = _build(graph, step, reset, exact)
        (shape,) = (node.arrays.get("shape") for node in graph.nodes.values() if node.kind == "Input")
        if shape is not None:
            net.__dict__["input_shape"] = tuple(int(size) for size in shape.flatten())
        return net
    except ValueError as error:
        raise InputError(f"{path} cannot be read as a NIR file: {error}") from error


def _build(graph: NirGraph, dt: float, reset: str | None, exact: bool) -> nn.Module:
    if exact or not _is_chain_of_lif(graph) or reset == "subtract":
        return imported(graph, dt, reset, exact)
    chain = _chain(graph)
    ours = "ultralif:neuron" in graph.metadata
    spikes = any(node.kind in OF_MAPS for _, node in chain) or (
        bool(chain) and chain[-1][1].kind in SPIKING and not (ours and len(chain) > 2)
    )
    return _sequential(chain, dt) if spikes else _network(chain, dt)


def _is_chain_of_lif(graph: NirGraph) -> bool:
    """Return whether our fused neurons and exportable layers can compute the file; if not, use `imported`."""
    kinds = {"Input", "Output", *LINEAR, *SPIKING, *OF_MAPS}
    return (
        all(node.kind in kinds for node in graph.nodes.values())
        and len(dict(graph.edges)) == len({b for _, b in graph.edges}) == len(graph.edges)
        and not any(
            node.arrays.get("padding", np.zeros(1)).dtype.kind == "U"
            or ("Pool" in node.kind and bool(node.arrays.get("padding", np.zeros(1)).any()))
            or bool(node.arrays.get("v_leak", np.zeros(1)).any())
            for node in graph.nodes.values()
        )
        and all(
            graph.nodes[a].kind in (*LINEAR, *OF_MAPS)
            for a, b in graph.edges
            if b in graph.nodes and graph.nodes[b].kind in SPIKING and a in graph.nodes
        )
    )


def _is_snntorch(graph: NirGraph) -> bool:
    """Return whether the neurons have ``r = tau / dt`` with snnTorch's time step, as only it writes."""
    found = [node.arrays for node in graph.nodes.values() if node.kind in ("LIF", "CubaLIF")]
    return "ultralif:neuron" not in graph.metadata and any(
        not np.allclose(each["r"], 1.0) and np.allclose(each["r"] * DT, each[tau], rtol=1e-4)
        for each in found
        for tau in ("tau", "tau_mem")
        if "r" in each and tau in each
    )


def _chain(graph: NirGraph) -> list[tuple[str, NirNode]]:
    """Return the nodes between input and output, each feeding the next."""
    after = dict(graph.edges)
    unknown = {name for edge in graph.edges for name in edge} - set(graph.nodes)
    if unknown:
        raise ValueError(f"its edges name {sorted(unknown)[0]!r}, but there is no such node")
    if len(after) < len(graph.edges) or len(set(after.values())) < len(after):
        raise ValueError("its nodes branch or join; only a chain of layers can be read")
    starts = [name for name, node in graph.nodes.items() if node.kind == "Input"]
    if len(starts) != 1:
        raise ValueError(f"it has {len(starts)} Input nodes instead of one")
    chain: list[tuple[str, NirNode]] = []
    name = starts[0]
    while name in after and len(chain) <= len(graph.nodes):
        name = after[name]
        chain.append((name, graph.nodes[name]))
    if not chain or chain.pop()[1].kind != "Output":
        raise ValueError("no chain of nodes leads from its Input to an Output")
    if len(chain) + 2 < len(graph.nodes):
        raise ValueError("it has nodes outside the chain from Input to Output")
    while chain and chain[0][1].kind == "Flatten":  # our networks flatten their inputs
        chain.pop(0)
    return chain


def _sequential(chain: list[tuple[str, NirNode]], dt: float) -> nn.Sequential:
    """Build a convolutional network layer by layer; sums over windows become means with larger weights."""
    layers: list[nn.Module] = []
    synapses: nn.Linear | nn.Conv2d | None = None  # the synapses that feed the next neurons
    windows = 1.0  # sizes of the windows over which spikes were summed
    for name, node in chain:
        if node.kind in (*LINEAR, "Conv2d"):
            synapses = _linear(name, node) if node.kind in LINEAR else _convolution(name, node)
            synapses.weight.data.mul_(windows)
            windows = 1.0
            layers.append(synapses if isinstance(synapses, nn.Linear) else TimeDistributed(synapses))
        elif node.kind in ("AvgPool2d", "SumPool2d"):
            size, stride = _pair(name, node, "kernel_size", 1), _pair(name, node, "stride", 1)
            if _pair(name, node, "padding", 0) != (0, 0):
                raise ValueError(f"its node {name!r} pools with padding")
            count = float(size[0] * size[1]) if node.kind == "SumPool2d" else 1.0
            if synapses is None:
                windows *= count
            else:
                synapses.weight.data.mul_(count)
                synapses.bias.data.mul_(count)  # type: ignore[union-attr]
            layers.append(TimeDistributed(nn.AvgPool2d(size, stride)))
        elif node.kind == "Flatten":
            layers.append(nn.Flatten(2))
        elif node.kind in SPIKING and synapses is not None:
            layers.append(_driven(name, node, dt, synapses))
            synapses = None
        else:
            raise ValueError(f"its node {name!r} is {node.kind!r}, not expected in a convolutional network")
    return nn.Sequential(*layers).float()


def _driven(name: str, node: NirNode, dt: float, synapses: nn.Linear | nn.Conv2d) -> AnyNeuron:
    """Return neurons after moving the factor of their current into the preceding synapses."""
    gain, shift, neuron = _cell(name, node, dt)
    channels = len(synapses.weight)
    if len(gain) % channels or any(
        bool((part.view(channels, -1) != part.view(channels, -1)[:, :1]).any()) for part in (gain, shift)
    ):
        raise ValueError(f"its node {name!r} has constants that differ within a channel, or do not fit it")
    by_channel = gain.view(channels, -1)[:, 0]
    synapses.weight.data.mul_(by_channel.view(-1, *[1] * (synapses.weight.dim() - 1)))
    synapses.bias.data.mul_(by_channel).add_(shift.view(channels, -1)[:, 0])  # type: ignore[union-attr]
    return neuron


def _convolution(name: str, node: NirNode) -> nn.Conv2d:
    weight = _tensor(name, node, "weight")
    bias = _tensor(name, node, "bias") if "bias" in node.arrays else weight.new_zeros(weight.shape[:1])
    groups = _pair(name, node, "groups", 1)[0]
    if weight.dim() != 4 or bias.shape != weight.shape[:1] or not weight.numel() or len(weight) % groups:
        raise ValueError(
            f"its node {name!r} has weights of shape {tuple(weight.shape)}, biases of {tuple(bias.shape)} "
            f"and {groups} groups"
        )
    conv = nn.Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        (weight.shape[2], weight.shape[3]),
        _pair(name, node, "stride", 1),
        _pair(name, node, "padding", 0),
        _pair(name, node, "dilation", 1),
        groups,
        dtype=torch.float64,
    )
    conv.weight.data, conv.bias = weight, nn.Parameter(bias)
    return conv


def _pair(name: str, node: NirNode, key: str, least: int) -> tuple[int, int]:
    """Return integers for rows and columns."""
    values = _tensor(name, node, key).flatten().tolist()
    if len(values) > 2 or any(value != int(value) or not least <= value < 1 << 16 for value in values):
        raise ValueError(f"its node {name!r} has {key} {values}, not one or two integers of at least {least}")
    return int(values[0]), int(values[-1])


def _network(chain: list[tuple[str, NirNode]], dt: float) -> Network:
    """Build a network from pairs of a linear and a spiking node; the last pair may have no spiking node."""
    for place, (name, node) in enumerate(chain):
        expected = SPIKING if place % 2 else LINEAR
        if node.kind not in expected:
            raise ValueError(f"its node {name!r} is {node.kind!r} where {' or '.join(expected)} is expected")
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
    sizes = [linears[0].in_features, *(linear.out_features for linear in linears)]
    if any(linear.in_features != size for linear, size in zip(linears, sizes, strict=False)):
        raise ValueError(f"its layers do not fit each other: {sizes}")
    net = Network(sizes, neuron="LIF", readout="linear" if readout == "linear" else "spiking")
    net.linears = nn.ModuleList(linear.float() for linear in linears)
    net.neurons = nn.ModuleList(neuron for _, _, neuron in cells)
    return net


def _linear(name: str, node: NirNode) -> nn.Linear:
    weight = _tensor(name, node, "weight")
    bias = _tensor(name, node, "bias") if "bias" in node.arrays else weight.new_zeros(weight.shape[:1])
    if weight.dim() != 2 or bias.shape != weight.shape[:1] or not weight.numel():
        raise ValueError(
            f"its node {name!r} has weights of shape {tuple(weight.shape)}, biases of {tuple(bias.shape)}"
        )
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    linear.weight.data, linear.bias.data = weight, bias
    return linear


def _cell(name: str, node: NirNode, dt: float) -> tuple[Tensor, Tensor, AnyNeuron]:
    """Return the factor of the current, the constant added to it, and the neuron that receives it."""
    if node.kind == "Threshold":
        threshold = _tensor(name, node, "threshold")
        return (
            torch.ones_like(threshold).flatten(),
            torch.zeros_like(threshold).flatten(),
            _tropical(name, threshold),
        )
    tau, r, v_leak, threshold = (_tensor(name, node, key) for key in ("tau", "r", "v_leak", "v_threshold"))
    v_reset = _tensor(name, node, "v_reset") if "v_reset" in node.arrays else torch.zeros_like(tau)
    if len({part.shape for part in (tau, r, v_leak, threshold, v_reset)}) > 1:
        raise ValueError(f"its node {name!r} has constants of different shapes")
    if not bool((tau > 0).all()):
        raise ValueError(f"its node {name!r} has a time constant that is not positive")
    gain = (dt / tau * r).flatten()
    leak = 1 - dt / tau
    if bool((leak.abs() < 1e-5).all()):
        return gain, v_leak.flatten(), _tropical(name, threshold)
    if not bool((leak > 0).all()):
        raise ValueError(
            f"its node {name!r} has a time constant below the time step dt={dt:g}; pass a smaller dt"
        )
    neuron = LIF(leak=_constant(leak), threshold=_positive(name, threshold), v_reset=_constant(v_reset))
    return gain, (v_leak * dt / tau).flatten(), neuron


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
    """Return a single number if all neurons share it."""
    first = float(values.flatten()[0])
    return first if bool((values == first).all()) else values.float()


def _tensor(name: str, node: NirNode, key: str) -> Tensor:
    array: np.ndarray[Any, Any] | None = node.arrays.get(key)
    if array is None or array.size == 0:
        raise ValueError(f"its node {name!r} has no {key}")
    if not np.isfinite(array).all():
        raise ValueError(f"its node {name!r} has {key} that is not finite")
    return torch.tensor(array.astype(np.float64))
