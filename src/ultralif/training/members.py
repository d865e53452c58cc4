"""`Members`, the interface between networks and the training loop, and `Single`, which wraps any module."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ultralif.errors import DataWarning, InputError
from ultralif.functional import Mode
from ultralif.names import MODES
from ultralif.nn import Network, Neuron, Output, mode
from ultralif.training.config import RunConfig
from ultralif.training.losses import Task, cross_entropy, mean

if TYPE_CHECKING:
    from ultralif.training.batches import Data

__all__ = ["Members", "Role", "Single", "in_mode", "neurons_of"]


Role = Literal["weight", "eps", "other"]
"""A parameter's role: weights decay, and temperatures have their own learning rate."""


class Members(Protocol):
    """One or several networks that are trained together, in a fixed order.

    `ultralif.stack.Stack` computes several multilayer perceptrons side by side;
    `ultralif.training.members.Single` wraps one module of any kind. Both are `nn.Module`s. M is the number of
    networks.
    """

    batches: int
    """Number of different batches that the members read."""
    order: list[int]
    """For each position, the index of its network in the original order."""
    draws: bool
    """True if a forward pass may draw random numbers, as dropout does."""

    def __len__(self) -> int: ...

    def __call__(self, x: Tensor, mode: Mode | None = None, *, by_step: bool = False) -> Output:
        """Return scores ``[M, B, classes]`` and spike rates; with ``by_step``, also each step's scores."""
        ...

    def spread(self, of_batches: Tensor) -> Tensor:
        """Return the labels of each member, ``[M, B]``."""
        ...

    def hidden_rate(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of the hidden neurons, ``[M]``, from the rates of all spiking layers."""
        ...

    def layer_rates(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of each hidden layer, ``[layers, M]``, from the rates of all layers."""
        ...

    def first_weights(self) -> Sequence[Tensor]:
        """Return the weights of each member's first layer as matrices."""
        ...

    def role(self, name: str) -> Role:
        """Return a parameter's role."""
        ...

    def modes(self, place: int) -> tuple[Mode, ...]:
        """Return the modes of a member's neurons."""
        ...

    def constants(self, name: str) -> list[Tensor | None]:
        """Return a constant of each member's first spiking layer, or None for neurons without it."""
        ...

    def assign(self, name: str, place: int, value: float) -> None:
        """Change a constant of a member."""
        ...

    def is_finite(self) -> Tensor:
        """Return, for each member, whether all parameters are finite, ``[M]``."""
        ...

    def copy_member(self, place: int, source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
        """Copy one member's parameters from one ``state_dict`` into another."""
        ...

    def unstack(self) -> Sequence[nn.Module]:
        """Return the trained networks in the given order."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters by name."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return parameters and buffers by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Load parameters and buffers."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Switch batch norm and dropout to training or evaluation mode."""
        ...


def in_mode(members: Members, wanted: Mode | None) -> AbstractContextManager[None]:
    """Return a context that sets the mode of the user's network, even when checkpointing reruns it."""
    return mode(members.net, wanted) if isinstance(members, Single) and wanted is not None else nullcontext()


_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm)


def neurons_of(net: nn.Module) -> list[Neuron[Any]]:
    """Return a module's neurons in order of creation; at least one is required."""
    found = [module for module in net.modules() if isinstance(module, Neuron)]
    if not found:
        raise InputError(
            f"net is a {type(net).__name__} without ultralif neurons; put neurons such as "
            "ultralif.UltraLIF() between its layers"
        )
    return found


def _seen(module: nn.Module, given: Any, out: Any) -> None:
    """Do nothing. Because of this hook, `Neuron.rate` calls the module, so its spikes are recorded."""


class _NeuronCall(NamedTuple):
    """One call of a neuron."""

    spikes: Tensor
    """The mean spike of the neurons for each sample, ``[B, 1, 1]``; with a mask, also by step, ``[T, B]``."""
    steps: int
    size: float
    """Number of neurons per sample."""
    start: int | None
    """The call's first step; None without a state, because it could then be any step."""


def _mean_spike(calls: Sequence[_NeuronCall]) -> Tensor:
    """Return the mean spike over several calls of a layer, each weighted by its steps and neurons."""
    weights = [call.steps * call.size for call in calls]
    if len(set(weights)) == 1:
        return torch.stack([call.spikes for call in calls]).mean(0)
    parts = [call.spikes * weight for call, weight in zip(calls, weights, strict=True)]
    return torch.stack(parts).sum(0) / sum(weights)


def _masked_spike(calls: Sequence[_NeuronCall], mask: Tensor) -> Tensor | None:
    """Return the mean spike over the valid steps; None if the steps of a call are unknown."""
    spikes, updates = [], []
    stepped = all(call.steps == 1 and call.start is None for call in calls) and len(calls) % len(mask) == 0
    for number, call in enumerate(calls):
        start = number % len(mask) if stepped else call.start or 0
        counted = mask[start : start + call.steps]
        if counted.shape != call.spikes.shape:
            return None
        spikes.append((call.spikes * counted).sum(0) * call.size)
        updates.append(counted.sum(0) * call.size)
    return (torch.stack(spikes).sum(0) / torch.stack(updates).sum(0).clamp(min=1)).view(-1, 1, 1)


class Single(nn.Module):
    """A single module as `ultralif.training.members.Members`.

    Args:
        net: accepts ``[T, B, *input]`` and returns scores ``[B, classes]``, scores of each step ``[T, B,
            classes]``, which are averaged, or the output of `ultralif.Network.observe`.
        classes: the number of classes; a net may return more scores than that.
        direct: whether the net accepts images ``[B, *input]`` and repeats them over time itself.
        channels_last: use the channels-last memory format.
        task: the task to train; None means classification by mean scores.
    """

    batches, draws = 1, True

    def __init__(
        self,
        net: nn.Module,
        *,
        classes: int = 1,
        direct: bool = False,
        channels_last: bool = False,
        task: Task | None = None,
    ) -> None:
        super().__init__()
        self.neurons = neurons_of(net)
        self.net = net.to(memory_format=torch.channels_last) if channels_last else net  # type: ignore[call-overload]
        self.classes, self.direct, self.channels_last = classes, direct, channels_last
        self.task, self.is_own = task or Task(cross_entropy, mean), task is not None
        self.order = [0]
        self._mask: Tensor | None = None
        self.widths: dict[int, int] = {}
        self._seen: dict[int, list[_NeuronCall]] = {}
        self._layers: list[int] = []
        self._ends: dict[int, dict[int, tuple[Any, int]]] = {}
        self._given: tuple[int | None, int] = (None, 0)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Record the spikes of all neurons while the net runs, however it calls them."""
        inside: set[int] = set()  # a forward pass calls run, whose spikes are recorded once

        def watched(layer: int, call: Callable[..., Any], time: int | None) -> Callable[..., Any]:
            def noting(current: Tensor, *given: Any, **options: Any) -> Any:
                if layer in inside:
                    return call(current, *given, **options)
                inside.add(layer)
                try:
                    out = call(current, *given, **options)
                finally:
                    inside.discard(layer)
                spikes, after = out if isinstance(out, tuple) else (out, None)
                if time is None:
                    spikes = spikes.unsqueeze(0)
                else:
                    spikes = spikes.transpose(0, time)
                    self._check_axes(layer, spikes)
                self._note(layer, spikes, given[0] if given else options.get("state"), after)
                return out

            return noting

        hooks, before = [], [dict(vars(neuron)) for neuron in self.neurons]  # the user may have replaced some
        for layer, neuron in enumerate(self.neurons):
            time = 1 if neuron.batch_first else 0
            for name, axis in (("forward", time), ("run", time), ("step", None)):
                vars(neuron)[name] = watched(layer, getattr(neuron, name), axis)
            hooks.append(neuron.register_forward_hook(_seen))
        try:
            yield
        finally:
            for neuron, hook, known in zip(self.neurons, hooks, before, strict=True):
                hook.remove()
                for name in ("forward", "run", "step"):
                    del vars(neuron)[name]
                    if name in known:
                        vars(neuron)[name] = known[name]

    def _check_axes(self, layer: int, spikes: Tensor) -> None:
        """Reject a sequence whose first axis is the batch."""
        steps, batch = self._given
        if spikes.shape[:2] == (batch, steps) and batch != steps:
            raise InputError(
                f"neuron {layer + 1} of net treats the batch of {batch} as time and the {steps} steps as the "
                "batch; pass it [T, B, ...], or [B, T, ...] if it has batch_first=True"
            )

    def _note(self, layer: int, spikes: Tensor, before: Any, after: Any) -> None:
        """Record the mean spikes of one call of a layer, and the states before and after it."""
        batch = self._given[1]
        wide = (spikes.float() if spikes.dtype in (torch.bfloat16, torch.float16) else spikes).flatten(2)
        size: float = math.prod(spikes.shape[2:])
        if spikes.shape[1] != batch:  # parts of a sample are folded into the batch
            size *= spikes.shape[1] / batch
        seen, ends = self._seen.setdefault(layer, []), self._ends.setdefault(layer, {})
        if self._mask is None:
            mean_spike = wide.mean((0, 2)) if spikes.shape[1] == batch else wide.mean().expand(batch)
            seen.append(_NeuronCall(mean_spike.view(-1, 1, 1), len(spikes), size, None))
            return
        start = None
        if before is not None:
            start = 0
            if ends:  # a state that was copied or detached continues from the earliest open one
                known = id(before) if id(before) in ends else min(ends, key=lambda key: ends[key][1])
                start = ends.pop(known)[1]
        if after is not None:
            ends[id(after)] = after, (start or 0) + len(spikes)  # kept alive, so its id is not reused
        seen.append(_NeuronCall(wide.mean(2), len(spikes), size, start))

    def _rate(self, layer: int) -> Tensor:
        """Return each sample's mean spike in a layer, ``[B, 1, 1]``."""
        calls = self._seen[layer]
        if self._mask is None:
            return _mean_spike(calls)
        rate = _masked_spike(calls, self._mask)
        if rate is not None:
            return rate
        warnings.warn(
            f"the steps of neuron {layer + 1} of net are unknown, so its spike rate includes padding",
            DataWarning,
            stacklevel=2,
        )
        whole = [call._replace(spikes=call.spikes.mean()) for call in calls]
        return _mean_spike(whole).expand(self._given[1], 1, 1)

    def _width(self, layer: int) -> int:
        """Return the number of neurons in a layer, which is its number of updates per input step."""
        calls, steps = self._seen[layer], self._given[0]
        if steps is None:
            return round(max(call.size for call in calls))
        return max(1, round(sum(call.steps * call.size for call in calls) / steps))

    def __len__(self) -> int:
        return 1

    def outputs(
        self, x: Tensor, wanted: Mode | None = None, mask: Tensor | None = None, *, by_step: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the net's output and the mean spike ``[B, 1, 1]`` of each spiking layer.

        Args:
            x: a batch.
            wanted: the mode of the neurons; None keeps their own.
            mask: the valid steps ``[T, B]``, which count towards the rates.
            by_step: request the scores of all steps from one of the library's networks.
        """
        self._seen, self._ends, self._mask = {}, {}, mask
        self._given = getattr(self.net, "timesteps", None) if self.direct else len(x), x.shape[1]
        by_step = by_step or self.task.needs_steps or mask is not None
        if hasattr(self.net, "by_step"):  # a network of ultralif.models
            self.net.by_step = by_step
        with mode(self.net, wanted) if wanted is not None else nullcontext():
            if isinstance(self.net, Network) and not by_step:
                return self._observed(self.net, x)
            try:
                with self._watching():
                    if isinstance(self.net, Network):
                        said = _every_step(self.net, x)
                    else:
                        said = self.net(self._laid_out(x[0] if self.direct else x))
            except RuntimeError as error:
                error.add_note(
                    f"the net received a batch of shape {tuple(x.shape)}, [T, B, ...], without T if it "
                    "repeats images itself; if your samples already have a time axis, pass events=True"
                )
                raise
        if not self._seen:
            raise InputError(
                "net has ultralif neurons but calls none of them, so there are no spikes to count; call them "
                "in forward, as modules or through run or step"
            )
        self._layers = sorted(self._seen)
        hidden = len(self.net.sizes) - 2 if isinstance(self.net, Network) else None  # the rest are readouts
        rates = tuple(self._rate(layer) for layer in self._layers)
        self.widths = {layer: self._width(layer) for layer in self._layers}
        self._layers = self._layers[:hidden]
        self._seen, self._ends, self._mask = {}, {}, None
        scores = said.logits if isinstance(said, Output) else said
        if not isinstance(scores, Tensor) or x.shape[1] not in scores.shape[:2]:
            shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise InputError(
                f"net must return scores [B, classes] or [T, B, classes] for a batch of {x.shape[1]}, got "
                f"{shape}; take the mean over space, or put time first"
            )
        if mask is not None and scores.dim() < 3 and not bool(mask.all()):
            warnings.warn(
                f"net returns scores {tuple(scores.shape)} without time, so they may depend on padded steps; "
                "let it return [T, B, ...] and choose a readout, which ignores padding",
                DataWarning,
                stacklevel=2,
            )
        return scores, rates

    def _observed(self, net: Network, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return a perceptron's scores and its layers' mean spikes, which it reports itself."""
        out = net.observe(x)
        self._layers = list(range(len(net.sizes) - 2))  # readout neurons are not hidden
        self.widths = dict(enumerate(net.sizes[1:]))
        return out.logits, tuple(rate.mean(1).view(-1, 1, 1) for rate in out.rates)

    def forward(self, x: Tensor, wanted: Mode | None = None, *, by_step: bool = False) -> Output:
        """Return the scores ``[1, B, classes]`` and each spiking layer's mean spike ``[B, 1, 1]``."""
        batch = x.shape[1]
        scores, rates = self.outputs(x, wanted, by_step=by_step)
        if scores.dim() not in (2, 3) or scores.shape[-2] != batch:
            raise InputError(
                f"net must return scores [B, classes] or [T, B, classes] for a batch of {batch}, got "
                f"{tuple(scores.shape)}; take the mean over space, or put time first"
            )
        if scores.shape[-1] < self.classes:
            raise InputError(
                f"net returns {scores.shape[-1]} scores, but labels go up to {self.classes - 1}; give its "
                f"last layer {self.classes} outputs"
            )
        steps = scores.unsqueeze(1) if scores.dim() == 3 else None
        if by_step and steps is None:
            raise InputError("loss 'tet' needs the scores of each step; let net return [T, B, classes]")
        return Output(
            scores.mean(0, keepdim=True) if scores.dim() == 3 else scores.unsqueeze(0), rates, steps
        )

    def _laid_out(self, x: Tensor) -> Tensor:
        if not self.channels_last or x.dim() < 4:
            return x
        folded = x.flatten(0, -4) if x.dim() > 4 else x
        return folded.contiguous(memory_format=torch.channels_last).view(x.shape)

    def spread(self, of_batches: Tensor) -> Tensor:
        """Return labels ``[B]`` as ``[1, B]``, and probabilities ``[B, classes]`` as ``[1, B, classes]``."""
        return of_batches.unsqueeze(0)

    def hidden_rate(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of all neurons, ``[1]``, with layers weighted by size."""
        sizes = self.seen_widths()
        parts = [
            rate * (size / sum(sizes)) for rate, size in zip(self.layer_rates(rates), sizes, strict=True)
        ]
        return torch.stack(parts).sum(0)

    def layer_rates(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of each hidden layer, ``[layers, 1]``."""
        return torch.stack([rate.mean().view(1) for rate, _ in zip(rates, self._layers, strict=False)])

    def seen_widths(self) -> list[int]:
        """Return the number of neurons in each layer during the last forward pass."""
        return [self.widths[layer] for layer in self._layers]

    def first_weights(self) -> Sequence[Tensor]:
        """Return the weights of the first layer that has any, as a matrix."""
        found = (p for name, p in self.named_parameters() if self.role(name) == "weight")
        first = next(found, None)
        if first is None:
            raise InputError(
                f"net is a {type(self.net).__name__} without weights, so there is nothing to learn"
            )
        return [first.flatten(1)]

    def role(self, name: str) -> Role:
        """Return a parameter's role; biases and the parameters of neurons and norms do not decay."""
        owner_name, _, last = name.rpartition(".")
        owner = self.get_submodule(owner_name)
        if isinstance(owner, Neuron):
            return "eps" if last.endswith("_eps") else "other"
        return "weight" if self.get_parameter(name).dim() > 1 and not isinstance(owner, _NORMS) else "other"

    def modes(self, place: int) -> tuple[Mode, ...]:
        """Return the modes that any neuron of the net supports."""
        return tuple(one for one in MODES if any(one in neuron.modes for neuron in self.neurons))

    def constants(self, name: str) -> list[Tensor | None]:
        """Return a constant of the first neuron that has it."""
        values = (neuron.constant(name) for neuron in self.neurons if name in neuron.declared())
        first = next(values, None)
        if first is None:
            return [None]
        if not isinstance(first, Tensor):
            return [torch.tensor(first, dtype=torch.float64)]
        return [first.detach().cpu()]

    def assign(self, name: str, place: int, value: float) -> None:
        """Change a constant of all neurons that have it."""
        for neuron in self.neurons:
            if name in neuron.declared():
                neuron.assign(name, value)

    def is_finite(self) -> Tensor:
        """Return whether all parameters and buffers are finite, ``[1]``."""
        return (
            torch.stack([torch.isfinite(value).all() for value in self.state_dict().values()])
            .all()
            .cpu()
            .view(1)
        )

    def copy_member(self, place: int, source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
        """Copy all parameters and buffers from one ``state_dict`` into another."""
        for name, value in source.items():
            target[name].copy_(value)

    def unstack(self) -> list[nn.Module]:
        """Return the net."""
        return [self.net]


def _every_step(net: Network, x: Tensor) -> Tensor:
    """Return a perceptron's scores for every step, ``[T, B, classes]``."""
    signal = x.flatten(2)
    for linear, neuron in net.layers():
        signal = neuron(linear(signal))
    scores: Tensor = net.linears[-1](signal) if net.readout == "linear" else signal
    return scores


def make_members(
    configs: Sequence[RunConfig], networks: Sequence[nn.Module], device: torch.device, data: "Data"
) -> Members:
    """Return one network as a `Single`, and several multilayer perceptrons as a stack.

    A perceptron on a GPU is a stack of one, because a stack's step consists of only a few fused kernels. A
    perceptron with `eps_speed` is a stack too, so that it trains as in a sweep: a stack scales temperatures
    to change how fast they learn.
    """
    from ultralif.training.networks import task_of

    shared = configs[0]
    alone = len(configs) == 1 and device.type != "cuda" and shared.loss == "mean" and shared.eps_speed == 1
    if shared.model != "mlp" or alone:
        direct = shared.encoding == "direct" and not data.train.is_events
        classes = data.dataset.classes
        return Single(
            networks[0].to(device),
            classes=classes,
            direct=direct,
            channels_last=shared.channels_last,
            task=task_of(shared.model),
        )
    from ultralif.stack import Stack

    seeds = sorted({config.seed for config in configs})
    readers = [seeds.index(config.seed) for config in configs]
    # A stack makes a temperature learn faster by scaling it, which scales an SGD step twice.
    power = 0.5 if shared.optimizer == "sgd" else 1.0
    speeds = [config.eps_speed**power for config in configs]
    return Stack(cast(Sequence[Network], networks), speeds, readers).to(device)
