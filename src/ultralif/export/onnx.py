"""Write whole networks as ONNX files and torch.export programs.

Both come in two forms. Streaming takes one time step and the states, and returns the step's output and the
states to continue from; the mean of the outputs is the network's output. The other form takes a sequence of
any length.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.export import ExportedProgram

from ultralif.errors import JobError, need
from ultralif.export.compare import MOST, compared
from ultralif.export.graph import evaluating
from ultralif.files import write_file
from ultralif.functional import Mode, compute_dtype
from ultralif.nn import mode as in_mode

__all__ = ["Stepwise", "to_onnx", "to_torch"]

TOLERANCE = 1e-3
CHECKED = 32  # time steps for which ONNX is compared with PyTorch
aten = torch.ops.aten


class Stepwise(nn.Module):
    """A network that takes single time steps, with flat states: ``(x, *states) -> (output, *states)``."""

    def __init__(
        self, net: nn.Module, shape: Sequence[int] | None, mode: Mode = "hard", inputs: Tensor | None = None
    ) -> None:
        super().__init__()
        self.net = net
        self.graph = compared(net, shape, mode, inputs)

    def forward(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Compute one step from the input ``[B, *input]`` and the states ``[B, *shape]`` in `names`."""
        output, after = self.graph.step(x, states)
        return (output, *after)

    def names(self) -> list[str]:
        """Return the names of the states: ``v1`` for the membranes of layer 1."""
        places: dict[type, list[int]] = {}  # nodes are numbered among those of their kind
        for place, _, _ in self.graph.memory:
            alike = places.setdefault(type(self.graph.nodes[place].op), [])
            alike += [place] if place not in alike else []
        return [
            f"{name}{1 + places[type(self.graph.nodes[place].op)].index(place)}"
            for place, name, _ in self.graph.memory
        ]

    def at_rest(self, x: Tensor) -> list[Tensor]:
        """Return the states before the first step ``[B, *input]``."""
        dtype = compute_dtype(x.dtype)
        return [
            torch.zeros(x.shape[0], *shape, dtype=dtype, device=x.device) for *_, shape in self.graph.memory
        ]


class _Whole(nn.Module):
    """A network over sequences ``[T, B, *input]``: one scan over its step program."""

    def __init__(self, steps: Stepwise, step: nn.Module) -> None:
        super().__init__()
        self.at_rest = steps.at_rest
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the outputs."""

        def step(states: list[Tensor], now: Tensor) -> tuple[list[Tensor], Tensor]:
            output, *after = self.step(now, *states)
            return after, output

        _, outputs = scan(step, self.at_rest(x[0]), x)
        mean: Tensor = outputs.mean(0)
        return mean


def to_torch(
    net: nn.Module,
    path: str | Path,
    *,
    mode: Mode = "hard",
    timesteps: int | None = None,
    shape: Sequence[int] | None = None,
    inputs: Tensor | None = None,
) -> None:
    """Save a network as a torch.export program, a ``.pt2`` file, for any batch size.

    Args:
        net: a trained network; `describe` lists the supported layers.
        path: the file; `torch.export.load` reads it.
        mode: ``soft``, ``hard`` or ``tropical``.
        timesteps: a sequence length, to export for whole sequences of any length; None means streaming.
        shape: the feature shape of one time step; not needed if the network begins with Linear.
        inputs: ``[T, B, *input]``, used in addition to random spikes to compare the written program with
            ``net``. A program whose outputs differ is refused.

    Example:
        >>> import tempfile
        >>> from ultralif.nn import Network
        >>> to_torch(Network((4, 8, 2), "LIF"), tempfile.mkdtemp() + "/net.pt2", timesteps=5)
    """
    steps = Stepwise(net, shape, mode, inputs)
    program = _program(steps, mode, timesteps)
    module = program.module(check_guards=False)

    def run(*given: Tensor) -> tuple[Tensor, ...]:
        found = module(*given)
        return found if isinstance(found, tuple) else (found,)

    _check(run, steps, mode, timesteps, inputs, "the torch.export program")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)  # its own writer aborts the process if the disk is full
    write_file(Path(path), buffer.getvalue())


def to_onnx(
    net: nn.Module,
    path: str | Path,
    *,
    mode: Mode = "hard",
    timesteps: int | None = None,
    shape: Sequence[int] | None = None,
    inputs: Tensor | None = None,
) -> float:
    """Save a network as ONNX for any batch size, and return how far onnxruntime differs from ``net``.

    Args:
        net: a trained network; `describe` lists the supported layers.
        path: the file.
        mode: ``soft``, ``hard`` or ``tropical``.
        timesteps: a sequence length, to export for whole sequences of any length; None means streaming.
        shape: the feature shape of one time step; not needed if the network begins with Linear.
        inputs: ``[T, B, *input]``, used in addition to random spikes to compare the written program with
            ``net``. A program whose outputs differ is refused.

    Example:
        >>> import tempfile
        >>> from ultralif.nn import Network
        >>> to_onnx(Network((4, 8, 2), "LIF"), tempfile.mkdtemp() + "/net.onnx", timesteps=5) < 1e-4
        True
    """
    need("onnxscript", "onnx")
    runtime = need("onnxruntime", "onnx")
    steps = Stepwise(net, shape, mode, inputs)
    states = steps.names() if timesteps is None else []
    outputs = ["output", *(f"next_{name}" for name in states)]
    program = _program(steps, mode, timesteps)
    with _quiet(), torch.no_grad():
        made = torch.onnx.export(
            program, input_names=["x", *states], output_names=outputs, dynamo=True, verbose=False
        )
    if made is None:
        raise JobError("torch.onnx returned no program; report this with your version of torch")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    aside = Path(f"{path}.part")
    try:
        made.save(str(aside), external_data=False)
        session = runtime.InferenceSession(str(aside))
        names = [entry.name for entry in session.get_inputs()]

        def run(*given: Tensor) -> tuple[Tensor, ...]:
            feed = {name: tensor.cpu().numpy() for name, tensor in zip(names, given, strict=True)}
            return tuple(torch.from_numpy(array) for array in session.run(None, feed))

        difference = _check(run, steps, mode, timesteps, inputs, "onnxruntime")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return difference


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch.onnx's warnings about itself and about missing packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@torch.no_grad()
def _program(steps: Stepwise, mode: Mode, timesteps: int | None) -> ExportedProgram:
    """Trace a network without the parts that only the backward pass needs."""
    batch, time = torch.export.Dim("batch"), torch.export.Dim("time")
    x, *states = _example(steps, None, batch=2)
    with in_mode(steps, mode), evaluating(steps):
        shapes: Any = ({0: batch}, tuple({0: batch} for _ in states))
        program = torch.export.export(steps, (x, *states), dynamic_shapes=shapes)
    for node in program.graph.nodes:
        if node.target is aten.add.Tensor and _is_nothing(node.args[1]):
            node.replace_all_uses_with(node.args[0], lambda user: user.op != "output")  # outputs keep names
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    if timesteps is None:
        return program
    whole = _Whole(steps, program.module(check_guards=False))
    (x,) = _example(steps, timesteps, batch=2)
    return torch.export.export(whole, (x,), dynamic_shapes=({0: time, 1: batch},))


def _is_nothing(node: Any) -> bool:
    """Return whether a node is ``soft - soft.detach()``, which is 0 and only has derivatives."""
    if not isinstance(node, torch.fx.Node) or node.target is not aten.sub.Tensor:
        return False
    soft, other = node.args
    return isinstance(other, torch.fx.Node) and other.target is aten.detach.default and other.args[0] is soft


def _example(steps: Stepwise, timesteps: int | None, batch: int) -> list[Tensor]:
    """Return random spikes, and for streaming the states at rest."""
    dtype = next(steps.parameters()).dtype
    shape = (batch, *steps.graph.nodes[0].shape)
    if timesteps is not None:
        shape = (max(2, min(timesteps, CHECKED)), *shape)
    x = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3).to(dtype)
    return [x] if timesteps is not None else [x, *steps.at_rest(x)]


@torch.no_grad()
def _check(
    run: Callable[..., tuple[Tensor, ...]],
    steps: Stepwise,
    mode: Mode,
    timesteps: int | None,
    inputs: Tensor | None,
    what: str,
) -> float:
    """Return the mean difference from the network's own outputs over whole sequences; refuse a large one."""
    shape = steps.graph.nodes[0].shape
    parameter = next(steps.parameters())
    probes = [_example(steps, min(timesteps or 8, CHECKED), batch=5)[0]]
    if inputs is not None:
        probes.append(inputs[:, :MOST].reshape(len(inputs), -1, *shape).to(parameter))
    worst = 0.0
    for x in probes:
        with in_mode(steps.net, mode), evaluating(steps.net):
            expected = steps.net(x)
        expected = expected.mean(0) if expected.dim() > 2 else expected
        if timesteps is not None:
            (found,) = run(x)
        else:
            outputs, states = [], tuple(steps.at_rest(x[0]))
            for now in x:
                output, *after = run(now, *states)
                outputs.append(output)
                states = tuple(after)
            found = torch.stack(outputs).mean(0)
        worst = max(worst, (found.to(expected) - expected).abs().mean().item())
    if not worst <= TOLERANCE:
        raise JobError(f"{what} differs by {worst:.2g} from the network itself; nothing was written")
    return worst
