"""Whole networks as graphs: ONNX files, and programs of torch.export.

Both come in two forms. Streaming takes one time step and the states, and returns the step's output and the
states to go on from; the mean of its outputs is the network's. The other takes a sequence of fixed length.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ultralif.errors import JobError, need
from ultralif.functional import Mode, compute_dtype
from ultralif.nn import Network
from ultralif.nn import mode as in_mode
from ultralif.nn.network import AnyNeuron

__all__ = ["Streaming", "state_names", "to_onnx", "to_torch"]

TOLERANCE = 1e-3
aten = torch.ops.aten


class Streaming(nn.Module):
    """One time step of a network with flat states: ``(x, *states) -> (output, *states)``."""

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Take a step ``[B, *input]`` and the states ``[B, n]`` that `state_names` lists."""
        rest = iter(states)
        shaped = [kind(*(next(rest) for _ in kind._fields)) for kind in _state_types(self.net)]
        output, after = self.net.step(x, shaped)
        return (output, *(tensor for state in after for tensor in state))


def state_names(net: Network) -> list[str]:
    """Return what the states of `Streaming` are called: ``v1`` for the membranes of layer 1."""
    return [f"{field}{number}" for number, kind in enumerate(_state_types(net), 1) for field in kind._fields]


def to_torch(net: Network, path: str | Path, *, mode: Mode = "hard", timesteps: int | None = None) -> None:
    """Save a network as a program of torch.export, a ``.pt2`` file, for any batch size.

    Args:
        net: a trained network.
        path: the file; `torch.export.load` reads it.
        mode: ``soft``, ``hard`` or ``tropical``.
        timesteps: the length of a sequence; None: streaming.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(_program(net, mode, timesteps), path)


def to_onnx(net: Network, path: str | Path, *, mode: Mode = "hard", timesteps: int | None = None) -> float:
    """Save a network as ONNX, for any batch size, and return how far onnxruntime is from PyTorch.

    Args:
        net: a trained network.
        path: the file.
        mode: ``soft``, ``hard`` or ``tropical``.
        timesteps: the length of a sequence; None: streaming.
    """
    need("onnxscript", "onnx")
    runtime = need("onnxruntime", "onnx")
    states = state_names(net) if timesteps is None else []
    outputs = ["output", *(f"next_{name}" for name in states)]
    program = _program(net, mode, timesteps)
    with _quiet():
        made = torch.onnx.export(
            program, input_names=["x", *states], output_names=outputs, dynamo=True, verbose=False
        )
    if made is None:
        raise JobError("torch.onnx made no program; report this with the version of torch")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    aside = Path(f"{path}.part")
    try:
        made.save(str(aside), external_data=False)
        difference = _compare(runtime.InferenceSession(str(aside)), net, mode, timesteps)
        if difference > TOLERANCE:
            raise JobError(
                f"onnxruntime is {difference:.2g} from PyTorch on random spikes; nothing was written"
            )
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return difference


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch.onnx says about its own insides, and every package that is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _program(net: Network, mode: Mode, timesteps: int | None) -> ExportedProgram:
    """Trace a network; what only the backward pass needs is left out."""
    batch = torch.export.Dim("batch")
    x, *states = _example(net, timesteps, batch=2)
    shapes: Any = ({1: batch},) if timesteps else ({0: batch}, tuple({0: batch} for _ in states))
    with in_mode(net, mode):
        module = net if timesteps else Streaming(net)
        program = torch.export.export(module, (x, *states), dynamic_shapes=shapes)
    for node in program.graph.nodes:
        if node.target is aten.add.Tensor and _is_nothing(node.args[1]):
            node.replace_all_uses_with(node.args[0], lambda user: user.op != "output")  # outputs keep names
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _is_nothing(node: Any) -> bool:
    """Tell whether a node is ``soft - soft.detach()``, which is 0 but for its derivatives."""
    if not isinstance(node, torch.fx.Node) or node.target is not aten.sub.Tensor:
        return False
    soft, other = node.args
    return isinstance(other, torch.fx.Node) and other.target is aten.detach.default and other.args[0] is soft


def _example(net: Network, timesteps: int | None, batch: int) -> list[Tensor]:
    """Return random spikes, and for streaming the states at rest."""
    dtype = next(net.parameters()).dtype
    shape = (batch, net.sizes[0]) if timesteps is None else (timesteps, batch, net.sizes[0])
    x = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3).to(dtype)
    if timesteps is not None:
        return [x]
    sizes = [size for size, kind in zip(net.sizes[1:], _state_types(net), strict=False) for _ in kind._fields]
    return [x, *(torch.zeros(batch, size, dtype=compute_dtype(dtype)) for size in sizes)]


@torch.no_grad()
def _compare(session: Any, net: Network, mode: Mode, timesteps: int | None) -> float:
    """Return the mean difference of two runs of five samples, over three steps where it streams."""
    theirs = mine = tuple(_example(net, timesteps, batch=5))
    names = [entry.name for entry in session.get_inputs()]
    differences: list[float] = []
    with in_mode(net, mode):
        for _ in range(1 if timesteps else 3):
            feed = {name: tensor.numpy() for name, tensor in zip(names, theirs, strict=True)}
            found = tuple(torch.from_numpy(array) for array in session.run(None, feed))
            expected = (net(*mine),) if timesteps else Streaming(net)(*mine)
            differences += [(a - b).abs().mean().item() for a, b in zip(found, expected, strict=True)]
            theirs, mine = (theirs[0], *found[1:]), (mine[0], *expected[1:])
    return max(differences)


def _state_types(net: Network) -> list[Any]:
    return [cast(AnyNeuron, neuron).state_type for neuron in net.neurons]
