"""Measure the accuracy lost to binary spikes, and recover it by calibration or finetuning."""

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from ultralif.errors import InputError
from ultralif.export.graph import Graph, Last, Synapses, evaluating, norm_constants
from ultralif.export.integer import IntegerNetwork, IntegerSynapses
from ultralif.export.quantize import Request, events_per_unit, in_integers, with_synaptic_currents
from ultralif.export.trace import describe
from ultralif.functional import Mode
from ultralif.nn import Network, Neuron, mode, set_mode
from ultralif.nn.network import AnyNeuron

__all__ = [
    "FirstDifference",
    "Gap",
    "answer",
    "calibrate",
    "finetune",
    "gap",
    "modes",
    "neurons",
    "spike_trains",
]

M = TypeVar("M", bound=nn.Module)

Batches = Iterable[tuple[Tensor, Tensor]]
"""Inputs ``[T, B, *input]`` and labels ``[B]``."""


class FirstDifference(NamedTuple):
    """The first difference from the soft network's spikes; layers and time steps are counted from 1.

    Example:
        >>> FirstDifference(layer=1, step=2, share=0.01).step
        2
    """

    layer: int
    step: int
    share: float
    """Share of that layer's neurons that differ at that time step, over all samples."""


@dataclass(frozen=True)
class Gap:
    """A network's accuracy in one mode, and its difference from the mode it was trained in.

    Example:
        >>> import torch
        >>> from ultralif.nn import Network
        >>> labels = torch.tensor([0, 1, 0])
        >>> gap(Network((4, 8, 2)), [(torch.rand(5, 3, 4), labels)])["soft"].agreement
        100.0
    """

    accuracy: float
    """Percentage of samples classified correctly."""
    spike_rate: tuple[float, ...]
    """Mean spike value of each spiking layer; spikes are fractions in soft mode."""
    agreement: float
    """Percentage of decisions that agree with the first mode."""
    differing: Tensor
    """``[layers, T]``: the share of spikes that differ, where a soft spike above 1/2 counts as 1."""

    @property
    def first(self) -> FirstDifference | None:
        """The lowest layer at the earliest time step where spikes differ; None if none differ."""
        for step, shares in enumerate(self.differing.T, 1):
            for layer, share in enumerate(shares.tolist(), 1):
                if share > 0:
                    return FirstDifference(layer, step, share)
        return None


def neurons(net: nn.Module) -> list[AnyNeuron]:
    """Return a network's neuron layers."""
    return [module for module in net.modules() if isinstance(module, Neuron)]


def modes(net: nn.Module) -> list[Mode]:
    """Return the modes that a network supports, soft ones first."""
    return [m for m in get_args(Mode) if any(m in neuron.modes for neuron in neurons(net))]


def spike_trains(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the spikes of every spiking layer, ``[T, B, *features]``, in call order."""
    return answer(net, x)[1]


def answer(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return a network's scores ``[B, classes]`` in evaluation mode, and its spikes."""
    trains: list[Tensor] = []

    def note(neuron: AnyNeuron, given: tuple[Tensor], spikes: Tensor) -> None:
        trains.append(spikes.transpose(0, 1) if neuron.batch_first else spikes)

    spiking = [layer for layer in net.modules() if isinstance(layer, Neuron)]
    hooks = [layer.register_forward_hook(note) for layer in spiking]
    try:
        with evaluating(net):
            scores: Tensor = net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return _scores(scores), trains


def _scores(output: Tensor) -> Tensor:
    """Return the scores ``[B, classes]``, averaged over time unless the network has already done so."""
    return output.mean(0) if output.dim() == 3 else output


@torch.no_grad()
def gap(net: nn.Module, batches: Batches) -> dict[Mode, Gap]:
    """Compare a network's modes on labelled batches of equal sequence length.

    Example:
        >>> net = Network((4, 8, 3), neuron="UltraLIF")
        >>> found = gap(net, [(torch.ones(5, 2, 4), torch.tensor([0, 1]))])
        >>> list(found), found["soft"].agreement
        (['soft', 'hard', 'tropical'], 100.0)
    """
    totals: dict[Mode, list[Tensor]] = {}
    samples = 0
    for x, labels in batches:
        reference: tuple[Tensor, list[Tensor]] | None = None
        for name in modes(net):
            with mode(net, name):
                scores, trains = answer(net, x)
            decisions, trains = scores.argmax(1), [train.flatten(2) for train in trains]
            firing = [train > 0.5 for train in trains]
            reference = reference or (decisions, firing)
            counts = [
                (decisions == labels).sum(),
                (decisions == reference[0]).sum(),
                torch.stack([train.mean((0, 2)).sum() for train in trains]),
                torch.stack(
                    [(a != b).double().mean(2).sum(1) for a, b in zip(firing, reference[1], strict=True)]
                ),
            ]
            before = totals.get(name, [torch.zeros_like(count) for count in counts])
            totals[name] = [a + b for a, b in zip(before, counts, strict=True)]
        samples += len(labels)
    if not samples:
        raise InputError("batches holds no samples; pass pairs of inputs [T, B, *input] and labels [B]")
    return {name: _gap(*(total.double().cpu() / samples for total in totals[name])) for name in totals}


def _gap(correct: Tensor, agreeing: Tensor, rates: Tensor, differing: Tensor) -> Gap:
    return Gap(100 * correct.item(), tuple(rates.tolist()), 100 * agreeing.item(), differing)


@torch.no_grad()
def calibrate(net: M, x: Tensor, *, to: Mode = "hard") -> M:
    """Return a copy whose neurons spike as often in another mode as they did in the original one.

    Thresholds are shifted layer by layer until the spike rates agree on ``x``; all neurons in a channel shift
    together. In practice the bias of the preceding layer is shifted, which has the same effect. The weights
    and the network's format do not change.

    Args:
        net: a trained network, in the mode it was trained in.
        x: a few thousand training inputs ``[T, B, *input]``.
        to: the mode to calibrate for; the copy is left in it.

    Example:
        >>> import torch
        >>> from ultralif.nn import Network
        >>> calibrate(Network((4, 8, 2)), torch.rand(5, 32, 4), to="hard").layers is not None
        True
    """
    net = copy.deepcopy(net)
    graph = describe(net, None if isinstance(net, Network) else x.shape[2:])
    if any(isinstance(node.op, Last) for node in graph.nodes):
        raise InputError("calibrate cannot adjust one layer of a network with feedback; fine-tune it instead")
    wanted = dict(zip(graph.spiking, spike_trains(net, x), strict=True))
    set_mode(net, to)

    def move(place: int) -> Callable[[AnyNeuron, tuple[Tensor]], tuple[Tensor]]:
        def hook(neuron: AnyNeuron, given: tuple[Tensor]) -> tuple[Tensor]:
            _hooks.pop(place).remove()
            shift = _shift_for(neuron, given[0], wanted[place])
            _one_source(graph, place).move(shift.flatten())
            return (given[0] + shift,)

        return hook

    _hooks = {place: graph.neuron(place).register_forward_pre_hook(move(place)) for place in graph.spiking}
    with evaluating(net):
        net(x)
    return net


def _one_source(graph: Graph, place: int) -> Synapses:
    """Return synapses that drive these neurons and no others."""
    mine = graph.sources(place)
    others = [graph.sources(other) for other in graph.spiking if other != place]
    for source in mine:
        op, channels = graph.nodes[source].op, graph.nodes[source].shape[0]
        alone = channels == graph.nodes[place].shape[0] and not any(source in other for other in others)
        if isinstance(op, Synapses) and alone:
            return op
    raise InputError(
        f"layer {graph.nodes[place].name!r} shares all of its synapses with other neurons, so no bias "
        "affects it alone; give it its own Linear or Conv2d, or fine-tune instead"
    )


def _shift_for(neuron: AnyNeuron, current: Tensor, spikes: Tensor, halvings: int = 24) -> Tensor:
    """Return, by bisection, the current shift of each channel that reproduces the mean of ``spikes``."""
    over = (0, 1, *range(3, current.dim()))
    rate = spikes.mean(over, keepdim=True)[0]
    reach = current.amax(over, keepdim=True)[0] - current.amin(over, keepdim=True)[0] + 1
    low, high = -reach, reach
    for _ in range(halvings):
        middle = (low + high) / 2
        rare = neuron(current + middle).mean(over, keepdim=True)[0] < rate
        low, high = torch.where(rare, middle, low), torch.where(rare, high, middle)
    return ((low + high) / 2)[0]


def finetune(
    net: M,
    batches: Batches,
    *,
    steps: int,
    mode: Mode = "hard",
    lr: float = 1e-3,
    eps: tuple[float, float] | None = None,
    weight_bits: Literal[4, 8, 16] | None = None,
    **integers: Any,
) -> M:
    """Return a copy trained further in one mode, with a learning rate that falls to 0.

    In ``hard`` and ``tropical`` mode spikes are binary and are differentiated as if they were soft.

    With ``weight_bits`` every forward pass runs the integer network: `quantize` rounds and clips the
    weights, the integer simulator computes the spikes, and gradients ignore the rounding.
    Batch normalization keeps its statistics. Pass the same options to `quantize` afterwards.

    Args:
        net: a trained network.
        batches: training batches; the first ``steps`` are used.
        steps: number of steps of the Adam optimizer.
        mode: the mode to train for; the copy is left in it.
        lr: the initial learning rate.
        eps: change every temperature geometrically from the first value to the second, instead of learning
            it. With ``mode="soft"`` and a low second value this is annealing.
        weight_bits: bits per weight in the integer network to train for; None trains in floating point.
        integers: other arguments of `quantize`, such as ``timesteps``, ``input_range`` and ``bits``.

    Example:
        >>> import torch
        >>> from ultralif.export import quantize
        >>> from ultralif.nn import Network
        >>> batches = [((torch.rand(5, 8, 4) < 0.3).float(), torch.zeros(8, dtype=torch.long))]
        >>> tuned = finetune(Network((4, 8, 2)), batches, steps=1, mode="hard", weight_bits=4, timesteps=5)
        >>> integer = quantize(tuned, weight_bits=4, timesteps=5)
    """
    net = copy.deepcopy(net)
    set_mode(net, mode)
    request = None if weight_bits is None else Request(mode=mode, weight_bits=weight_bits, **integers)
    if request is None and integers:
        raise InputError(f"{', '.join(integers)} applies only to integer training; add weight_bits=8 or 4")
    tempered = [neuron for neuron in neurons(net) if "eps" in neuron.declared()]
    if eps is not None and not tempered:
        raise InputError(f"eps={eps} was given, but the network's neurons have no temperature; leave it out")
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    for step, (x, labels) in enumerate(islice(batches, steps)):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - step / steps)
        _lead(tempered, eps, step / max(steps - 1, 1))
        optimizer.zero_grad()
        output = net(x) if request is None else _as_integers(net, x, request)
        torch.autograd.backward(cross_entropy(_scores(output), labels))
        optimizer.step()
    _lead(tempered, eps, 1.0)  # the last step may have moved a learned temperature
    return net


def _as_integers(net: nn.Module, x: Tensor, request: Request) -> Tensor:
    """Return the output for ``[T, B, *input]`` computed with quantized weights and integer neurons."""
    graph = with_synaptic_currents(describe(net, None if isinstance(net, Network) else x.shape[2:]))
    integer = in_integers(graph, request)
    waiting: dict[int, list[Tensor]] = {}
    for place, spikes in zip(graph.spiking, integer.run(x.cpu()).spikes, strict=True):
        waiting.setdefault(id(graph.neuron(place)), []).append(spikes.to(x))

    def replace(neuron: AnyNeuron, given: tuple[Tensor], spikes: Tensor) -> Tensor:
        exact = waiting[id(neuron)].pop(0)
        return _straight(spikes, exact.transpose(0, 1) if neuron.batch_first else exact)

    names = {id(tensor): name for name, tensor in (*net.named_parameters(), *net.named_buffers())}
    weights = {}
    for place, node in enumerate(graph.nodes):
        if isinstance(node.op, Synapses):
            weight = node.op.module.weight
            weights[names[id(weight)]] = _straight(weight, _rounded(graph, integer, place).to(weight))
    hooks = [neuron.register_forward_hook(replace) for neuron in {id(n): n for n in neurons(net)}.values()]
    try:
        with evaluating(net):
            return torch.as_tensor(functional_call(net, weights, (x,)))
    finally:
        for hook in hooks:
            hook.remove()


def _straight(x: Tensor, rounded: Tensor) -> Tensor:
    """Return rounded numbers with the gradient of the unrounded ones."""
    return x + (rounded - x).detach()


def _rounded(graph: Graph, integer: IntegerNetwork, place: int) -> Tensor:
    """Return the quantized weights of synapses, in the units of the original weights."""
    op, made = graph.nodes[place].op, integer.nodes[place].op
    if not isinstance(op, Synapses) or not isinstance(made, IntegerSynapses):
        raise TypeError(f"node {place} has no weights")
    scale = made.grid * events_per_unit(graph, graph.nodes[place].inputs[0], integer.levels)
    if op.norm is not None:
        factor, _, _ = norm_constants(op.norm)
        scale = scale / torch.where(factor == 0, 1.0, factor)
    return made.weight * scale.view(-1, *[1] * (made.weight.dim() - 1))


def _lead(neurons: Iterable[AnyNeuron], eps: tuple[float, float] | None, done: float) -> None:
    """Set the temperature for a step, if it is annealed."""
    if eps is not None:
        for neuron in neurons:
            neuron.assign("eps", _between(*eps, done))


def _between(start: float, end: float, done: float) -> float:
    """Interpolate geometrically between two numbers, never leaving their range through rounding."""
    low, high = sorted((start, end))
    return min(max(start * math.exp(done * math.log(end / start)), low), high)
