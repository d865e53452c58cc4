"""Measure the accuracy, spike rates and cost of networks in each mode, and assemble results."""

import math
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ultralif import __version__
from ultralif.data import Split
from ultralif.errors import DataWarning, InputError
from ultralif.functional import Mode
from ultralif.names import MODES
from ultralif.nn import DelayedLinear, Network
from ultralif.training.batches import EVALUATION, Data, batches, inputs, load_data, make_loader, make_loaders
from ultralif.training.config import RunConfig
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.losses import Task, count_correct
from ultralif.training.members import Members, Single, make_members, neurons_of
from ultralif.training.networks import find_run, metrics_code, own_code, restore, step_work, titles
from ultralif.training.result import (
    CONSTANTS,
    LearnedConstants,
    ModeResult,
    Operations,
    Result,
    ann_energy,
    ann_int8_energy,
    break_even,
    count_operations,
    pack_hits,
    relative_sops,
    snn_energy,
    snn_int8_energy,
)
from ultralif.training.schedule import hard_epochs
from ultralif.training.store import Store

if TYPE_CHECKING:
    from ultralif.stack import Stack

__all__ = [
    "Evaluation",
    "OpCounter",
    "Reevaluated",
    "accuracies",
    "by_mode",
    "constants_of",
    "environment",
    "evaluate",
    "make_op_counter",
    "make_result",
    "measure",
    "reevaluate",
    "reevaluate_model",
]


class OpCounter:
    """Counts the operations per sample, averaged over all samples and excluding padding.

    For a perceptron, they follow from its layer sizes, its spike rates and the share of nonzero inputs.

    Args:
        sizes: the perceptrons' layer sizes, from inputs to classes; () for other networks.
        timesteps: T, for images that the network repeats over time itself.
        batches: the number of different batches that the members read.
        members: the number of networks.
    """

    def __init__(self, sizes: Sequence[int], timesteps: int, batches: int, members: int) -> None:
        self.sizes, self.repeated, self.batches, self.members = tuple(sizes), timesteps, batches, members
        self.nonzero, self.samples, self.steps, self.binary = torch.zeros(batches), 0, 0, True

    def read(self, x: Tensor, batch: int, mask: Tensor | None = None, *, direct: bool = False) -> None:
        """Record a batch of inputs, ``[T, B, ...]``; the mask ``[T, B]`` marks valid steps."""
        self.samples += batch
        if mask is not None:
            x = x[mask]
            self.steps += len(x)
        else:
            self.steps += batch * (self.repeated if direct else x.shape[int(self.batches > 1)])
        if self.sizes:
            self.nonzero += x.reshape(self.batches, -1).count_nonzero(1).cpu() / self.sizes[0]
            self.binary = self.binary and bool(((x == 0) | (x == 1)).all())

    @property
    def timesteps(self) -> float:
        """The mean number of steps per sample."""
        return self.steps / self.samples

    def watching(self, mode: Mode, mask: Tensor | None = None) -> AbstractContextManager[None]:
        """Count the operations inside a ``with`` block."""
        return nullcontext()

    def widths(self) -> list[int]:
        """Return the number of neurons in each hidden layer."""
        return list(self.sizes[1:-1])

    def synapses(self) -> int:
        """Return the number of multiplications in one time step."""
        return sum(a * b for a, b in pairwise(self.sizes))

    def operations(self, place: int, mode: Mode, rates: list[float]) -> Operations:
        """Return a member's operation counts, given the spike rates of its hidden layers."""
        density = float(self.nonzero[place * self.batches // self.members]) / self.steps
        return count_operations(
            self.sizes, self.timesteps, density, rates, input_binary=self.binary, binary=mode != "soft"
        )

    def by_layer(self, mode: Mode) -> dict[str, Operations]:
        """Return each layer's operation counts, if known."""
        return {}


def make_op_counter(members: Members, timesteps: int) -> OpCounter:
    """Return an operation counter for members; unless they are perceptrons, it observes their layers."""
    if not isinstance(members, Single):
        stack = cast("Stack", members)
        return OpCounter(stack.sizes, timesteps, stack.batches, len(stack))
    if isinstance(members.net, Network):
        return OpCounter(members.net.sizes, timesteps, 1, 1)
    return _Layers(members, timesteps)


class _Count:
    """Counts a layer's multiplications and those with a nonzero input; notes if all inputs are binary."""

    def __init__(self) -> None:
        self.every, self.active, self.binary, self.calls = 0.0, 0.0, True, 0

    def add(self, layer: nn.Module, x: Tensor, out: Tensor, mask: Tensor | None) -> None:
        work = float(out.numel() * _weight(layer)[0].numel())
        if mask is not None:
            counted = self._counted(x, mask)
            x, work = x[counted], work * float(counted.double().mean())
        self.calls += 1
        nonzero = x != 0
        self.every += work
        self.active += _weights_used(layer, nonzero)
        self.binary = self.binary and bool((x.masked_select(nonzero) == 1).all())

    def _counted(self, x: Tensor, mask: Tensor) -> Tensor:
        """Mark an input's valid rows; time may be an axis, folded into the batch, or spread over calls."""
        if x.shape[:2] == mask.shape:
            return mask
        if len(x) == mask.numel():
            return mask.flatten()
        if len(x) == mask.shape[1]:
            return mask[self.calls % len(mask)]
        return torch.ones(len(x), dtype=torch.bool, device=x.device)  # the steps are unknown

    def operations(self, samples: int) -> Operations:
        count = self.active / samples
        return Operations(0.0, count) if self.binary else Operations(count, 0.0)


def _weight(layer: nn.Module) -> Tensor:
    """Return a layer's weights, even if they are pruned or computed from other parameters."""
    return cast(Tensor, layer.weight)


def _weights_used(layer: nn.Module, nonzero: Tensor) -> float:
    """Count the (weight, nonzero input) pairs; padding adds none."""
    weight = _weight(layer)
    if not isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return float(nonzero.sum()) * len(weight)
    places = weight.dim() - 2
    channels = torch.unflatten(nonzero, -places - 1, (layer.groups, -1)).sum(-places - 1).float()
    ones = torch.ones_like(weight[: layer.groups, :1], dtype=torch.float32)
    with torch.autocast(channels.device.type, enabled=False):
        used: Tensor = layer._conv_forward(channels, ones, None)
    return float(used.double().sum()) * (len(weight) // layer.groups)


class _Layers(OpCounter):
    """Counts the operations of any module from the inputs of its linear and convolutional layers."""

    def __init__(self, single: Single, timesteps: int) -> None:
        super().__init__((), timesteps, 1, 1)
        kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, DelayedLinear)
        self.layers = {name: part for name, part in single.net.named_modules() if isinstance(part, kinds)}
        self.single = single
        self.counts: dict[Mode, dict[str, _Count]] = {}

    @contextmanager
    def watching(self, mode: Mode, mask: Tensor | None = None) -> Iterator[None]:
        counts = self.counts.setdefault(mode, {name: _Count() for name in self.layers})
        for count in counts.values():
            count.calls = 0
        hooks = [
            layer.register_forward_hook(
                lambda layer, given, out, n=name: counts[n].add(layer, given[0], out, mask)
            )
            for name, layer in self.layers.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def widths(self) -> list[int]:
        return self.single.seen_widths()

    def synapses(self) -> int:
        counts = next(iter(self.counts.values()), {})
        return round(sum(count.every for count in counts.values()) / max(1, self.steps))

    def operations(self, place: int, mode: Mode, rates: list[float]) -> Operations:
        parts = self.by_layer(mode).values()
        return Operations(sum(part.macs for part in parts), sum(part.acs for part in parts))

    def by_layer(self, mode: Mode) -> dict[str, Operations]:
        return {name: count.operations(self.samples) for name, count in self.counts[mode].items()}


@dataclass(frozen=True)
class Evaluation:
    """One stack member's evaluation on a set of samples."""

    accuracy: dict[str, float | None]
    """Accuracy in percent in each mode; None if targets are not classes."""
    spike_rate: dict[str, float]
    """Mean spike rate over all hidden neurons."""
    spike_rates: dict[str, list[float]]
    """Mean spike rate of each spiking layer."""
    energy: dict[str, Any]
    """The paper's T * rate and energy, the counted operations and the int8 energy, in picojoules, by mode."""
    hits: dict[str, str]
    """The samples classified correctly in each mode, see `ultralif.training.result`."""
    metrics: dict[str, dict[str, float]]
    """The loss and the user's metrics in each mode, if the task is the user's own."""


@torch.no_grad()
def evaluate(
    members: Members, configs: Sequence[RunConfig], data: Data, split: str = "test"
) -> list[Evaluation]:
    """Evaluate every member on the whole test or validation set, in all its modes.

    Args:
        members: the networks.
        configs: their configs, in the same order.
        data: the source of the samples.
        split: ``test`` or ``validation``.
    """
    samples = data.dataset.test if split == "test" else data.validation
    assert samples is not None  # noqa: S101 - the caller asked for a validation set
    shared, places = configs[0], range(len(members))
    modes = [mode for mode in MODES if any(mode in members.modes(place) for place in places)]
    correct: dict[Mode, list[Tensor]] = {mode: [] for mode in modes}
    spikes: dict[Mode, list[Tensor]] = {mode: [] for mode in modes}
    task = members.task if isinstance(members, Single) else None
    own_task = task is not None and (bool(task.metrics) or not task.is_usual)
    scores = {mode: _Scores(task, shared) for mode in modes if task is not None}
    counter, count = make_op_counter(members, shared.timesteps), 0
    loaders = make_loaders(members, configs, data, samples, training=False)
    for x, targets, mask in batches(loaders, shared, EVALUATION):
        size = x.shape[1 + (members.batches > 1)]
        counter.read(x, size, mask, direct=isinstance(members, Single) and members.direct)
        count += size
        for mode in modes:
            with counter.watching(mode, mask), _autocast(shared, x):
                if isinstance(members, Single) and (own_task or mask is not None):
                    steps, rates = members.outputs(x, mode, mask)
                    correct[mode] += scores[mode].add(steps, targets, mask, size)
                else:
                    out = members(x, mode)
                    rates = out.rates
                    correct[mode].append(out.logits.argmax(2) == members.spread(targets))
            spikes[mode].append(torch.stack([rate.mean(2).sum(0) for rate in rates]))
    means = {mode: torch.stack(parts).sum(0) / count for mode, parts in spikes.items()}
    hits = {mode: torch.cat(parts, 1).cpu().numpy() for mode, parts in correct.items() if parts}
    metrics: dict[str, dict[str, float]] = {}
    if own_task:
        metrics = {
            mode: {n: v for n, v in one.found().items() if n != "accuracy"} for mode, one in scores.items()
        }
    return [
        _summary(
            counter,
            place,
            {mode: hits[mode][place] if mode in hits else None for mode in members.modes(place)},
            {mode: means[mode][:, place].tolist() for mode in members.modes(place)},
            metrics,
        )
        for place in places
    ]


class _Scores:
    """Accumulate loss and accuracy batch by batch; the user's metrics are computed on the whole set."""

    def __init__(self, task: Task, config: RunConfig) -> None:
        self.task, self.smoothing = task, config.label_smoothing
        self.parts: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self.loss, self.correct, self.count = 0.0, 0.0, 0

    def add(self, steps: Tensor, targets: Tensor, mask: Tensor | None, size: int) -> list[Tensor]:
        """Add a batch; return which samples are classified correctly, ``[1, B]``, if there are classes."""
        task = self.task
        self.loss += size * float(task.loss_of(steps, targets, mask, self.smoothing))
        self.count += size
        if task.metrics:
            self.parts.append((task.scores(steps, mask).float().cpu(), targets.cpu(), mask))
        if not task.has_classes:
            return []
        correct = count_correct(task, steps, targets, mask)
        self.correct += float(correct.sum())
        return [correct.unsqueeze(0)]

    def found(self) -> dict[str, float]:
        """Return loss, accuracy and metrics by name."""
        found = {"loss": self.loss / self.count}
        if self.task.has_classes:
            found["accuracy"] = 100 * self.correct / self.count
        if self.parts:
            found |= self.task.metrics_of(*self._joined())
        return found

    def _joined(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores, targets and mask of all batches; sequences are padded to the longest one."""
        scores, targets, masks = zip(*self.parts, strict=True)
        if self.task.readout is not None:
            return torch.cat(scores), torch.cat(targets), None
        most = max(len(one) for one in scores)
        whole = [one.new_ones(one.shape[:2], dtype=torch.bool) for one in scores]
        kept = [w if m is None else m.cpu() for m, w in zip(masks, whole, strict=True)]
        padded = ([_longer(one, most) for one in column] for column in (scores, targets, kept))
        joined = [torch.cat(column, 1) for column in padded]
        return joined[0], joined[1], None if bool(joined[2].all()) else joined[2]


def _longer(x: Tensor, steps: int) -> Tensor:
    return torch.cat((x, x.new_zeros(steps - len(x), *x.shape[1:])))


@torch.no_grad()
def measure(
    single: Single, config: RunConfig, data: Data, samples: Split, mode: Mode | None, epoch: int = EVALUATION
) -> dict[str, float]:
    """Return a network's loss, its accuracy if targets are classes, and the user's metrics on a set.

    Args:
        single: the network, with its task.
        config: its run's config.
        data: the source of the samples.
        samples: the set to evaluate on.
        mode: the mode of the neurons; None keeps their own.
        epoch: the epoch number that seeds the spike encoding.
    """
    scores = _Scores(single.task, config)
    for x, targets, mask in batches(
        make_loaders(single, [config], data, samples, training=False), config, epoch
    ):
        with _autocast(config, x):
            steps, _ = single.outputs(x, mode, mask)
        scores.add(steps, targets, mask, x.shape[1])
    return scores.found()


@torch.no_grad()
def accuracies(
    members: Members,
    configs: Sequence[RunConfig],
    data: Data,
    samples: Split,
    mode: Mode | None,
    epoch: int = EVALUATION,
) -> list[float]:
    """Return every member's accuracy on a set in one mode, in percent.

    Args:
        members: the networks.
        configs: their configs, in the same order.
        data: the source of the samples.
        samples: the set to evaluate on.
        mode: the mode of the neurons; None keeps their own.
        epoch: the epoch number that seeds the spike encoding.
    """
    device, shared = samples.labels.device, configs[0]
    batch = _largest_batch(data, shared) if device.type == "cuda" else 256
    correct = torch.zeros(len(members), device=device)
    loaders = make_loaders(members, configs, data, samples, training=False, batch=batch)
    for x, labels, _ in batches(loaders, shared, epoch):
        with _autocast(shared, x):
            out = members(x, mode)
        correct += (out.logits.argmax(2) == members.spread(labels)).sum(1)
    return [100 * count / len(samples) for count in correct.tolist()]


def _largest_batch(data: Data, config: RunConfig) -> int:
    """Return how many samples fit in half a gigabyte; a GPU is faster with a few large batches."""
    return max(256, 2**27 // (config.timesteps * data.sizes[0])) if config.model == "mlp" else 256


def _summary(
    counter: OpCounter,
    place: int,
    hits: dict[Mode, "NDArray[np.bool_] | None"],
    rates: dict[Mode, list[float]],
    metrics: dict[str, dict[str, float]],
) -> Evaluation:
    modes = [mode for mode in MODES if mode in hits]
    widths, synapses, timesteps = counter.widths(), counter.synapses(), counter.timesteps
    hidden = {mode: rates[mode][: len(widths)] for mode in modes}
    weights = [width / sum(widths) for width in widths]
    mean = {m: math.fsum(w * r for w, r in zip(weights, hidden[m], strict=True)) for m in modes}
    operations = {m: counter.operations(place, m, hidden[m]) for m in modes}
    neurons = sum(widths)
    energy: dict[str, Any] = {
        "relative_sops": {m: relative_sops(timesteps, mean[m]) for m in modes},
        "snn_picojoules": {m: snn_energy(timesteps, mean[m], synapses) for m in modes},
        "ann_picojoules": ann_energy(synapses),
        "operations": operations,
        "layers": {m: counter.by_layer(m) for m in modes},
        "int8": {
            "ann_picojoules": ann_int8_energy(synapses, neurons),
            "snn_picojoules": {
                m: snn_int8_energy(operations[m], timesteps, neurons) for m in modes if m != "soft"
            },
            "break_even": break_even(timesteps, synapses, neurons),
        },
    }
    return Evaluation(
        {m: None if (hit := hits[m]) is None else 100 * int(hit.sum()) / len(hit) for m in modes},
        {m: mean[m] for m in modes},
        {m: rates[m] for m in modes},
        energy,
        {m: pack_hits(hit) for m in modes if (hit := hits[m]) is not None},
        metrics,
    )


def _autocast(config: RunConfig, x: Tensor) -> torch.autocast:
    """Evaluate models from `ultralif.models` in the precision in which they were trained."""
    half = config.precision == "bfloat16" and config.model != "mlp"
    return torch.autocast(x.device.type, torch.bfloat16, enabled=half)


def environment(device: torch.device, config: RunConfig, checksum: str) -> dict[str, Any]:
    """Return the code, device, precision and data used to compute a result."""
    code, metrics = own_code([config.neuron]), metrics_code(config.model)
    return {
        "ultralif": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "precision": config.precision,
        "threads": torch.get_num_threads(),
        "data_sha256": checksum,
        **titles(config),
        **({} if code is None else {"code_sha256": code}),
        **({} if metrics is None else {"metrics_sha256": metrics}),
    }


def constants_of(network: nn.Module, *, learned: bool = False) -> dict[str, list[float]]:
    """Return the neurons' constants by name, averaged over the neurons of each spiking layer.

    Args:
        network: the network.
        learned: return only learned constants.
    """
    found: dict[str, list[float]] = {}
    for neuron in neurons_of(network):
        for name in neuron.declared():
            if not learned or neuron.learned(name) is not None:
                value = neuron.constant(name)
                mean = value if isinstance(value, float | int) else value.detach().double().mean()
                found.setdefault("slope" if name == "surrogate_slope" else name, []).append(float(mean))
    return found


def make_result(
    config: RunConfig,
    network: nn.Module,
    path: Path,
    evaluation: Evaluation,
    validation: Evaluation | None,
    **rest: Any,
) -> Result:
    """Assemble a run's result.

    Args:
        config: its config.
        network: the trained network.
        path: its folder.
        evaluation: its evaluation on the test set.
        validation: its evaluation on the held-out part, if there is one.
        rest: ``status``, ``epochs``, ``seconds``, ``stacked``, ``environment``.
    """
    neuron = neurons_of(network)[0]
    mode = "hard" if hard_epochs(config) else neuron.mode
    constants = {name: values[0] for name, values in constants_of(network).items() if name in CONSTANTS}
    return Result(
        id=config.id,
        dataset=config.dataset,
        neuron=config.neuron,
        timesteps=config.timesteps,
        seed=config.seed,
        sparsity=config.sparsity,
        mode=mode,
        by_mode=by_mode(evaluation, validation),
        hits=evaluation.hits.get(mode),
        constants=LearnedConstants(**constants),
        config=config.to_dict(),
        path=str(path),
        **whole_network(evaluation),
        finished=time.time(),
        **rest,
    )


def whole_network(evaluation: Evaluation) -> dict[str, Any]:
    """Return the fields of a result that do not depend on the mode."""
    int8 = evaluation.energy["int8"]
    return {
        "ann_picojoules": evaluation.energy["ann_picojoules"],
        "ann_int8_picojoules": int8["ann_picojoules"],
        "break_even": int8["break_even"],
    }


def by_mode(evaluation: Evaluation, validation: Evaluation | None = None) -> dict[str, ModeResult]:
    """Return an evaluation's numbers by mode."""
    energy = evaluation.energy
    return {
        mode: ModeResult(
            accuracy,
            evaluation.spike_rate[mode],
            tuple(evaluation.spike_rates[mode]),
            energy["operations"][mode],
            energy["relative_sops"][mode],
            energy["snn_picojoules"][mode],
            energy["int8"]["snn_picojoules"].get(mode),
            None if validation is None else validation.accuracy[mode],
            energy["layers"][mode],
            evaluation.metrics.get(mode, {}),
        )
        for mode, accuracy in evaluation.accuracy.items()
    }


Compare = Callable[[nn.Module, Iterable[tuple[Tensor, Tensor]]], dict[str, Any]]


class Reevaluated(NamedTuple):
    """The updated result, and the differences between modes if they were compared."""

    result: Result
    gap: dict[str, Any]


def reevaluate(
    store: Store,
    run: str,
    device: str = "auto",
    data_dir: Path | None = None,
    *,
    compare: Compare | None = None,
) -> Reevaluated:
    """Evaluate a run's network on its test set again, and return the result with the new numbers.

    Args:
        store: the store that contains the run.
        run: the run's name, or its first characters.
        device: ``auto``, ``cpu``, ``cuda`` ...
        data_dir: a folder to search first for the data.
        compare: a function of the network and the batches of the test set that returns the ``gap``.
    """
    found = store.read(run)
    return _again(found.result, restore(found), found.config, device, data_dir, compare)


def reevaluate_model(
    name: str, device: str = "auto", data_dir: Path | None = None, *, compare: Compare | None = None
) -> Reevaluated:
    """Do the same as `reevaluate` for a network that comes with the library."""
    from ultralif.training.zoo import cards, read_model

    config, _ = read_model(name)
    network, card = find_run(name).network, cards()[name]
    known = {field: getattr(config, field) for field in _NAMED}
    known |= {"id": card["run"], "mode": neurons_of(network)[0].mode, "status": "done", "path": name}
    result = Result.from_dict(
        {**known, "eps": card.get("eps"), "leak": card.get("leak")}, f"the card of {name}"
    )
    return _again(replace(result, config=config.to_dict()), network, config, device, data_dir, compare)


_NAMED = ("dataset", "neuron", "timesteps", "seed", "sparsity", "epochs")


def _again(
    result: Result,
    network: nn.Module,
    config: RunConfig,
    device: str,
    data_dir: Path | None,
    compare: Compare | None,
) -> Reevaluated:
    place = pick_device(device)
    data = load_data(config, place, data_dir)
    trained_on = result.environment.get("data_sha256")
    if trained_on not in (None, data.dataset.checksum):
        warnings.warn(
            f"run {result.id} was trained on a different version of {config.dataset} (SHA-256 "
            f"{str(trained_on)[:12]}, now {data.dataset.checksum[:12]}), so its numbers cannot be compared",
            DataWarning,
            stacklevel=3,
        )
    gap: dict[str, Any] = {}
    with arithmetic(place, config.precision, step_work([config])):
        members = make_members([config], [network], place, data)
        _check_decisions(members, config, data, result.id)
        (found,) = evaluate(members, [config], data)
        if compare is not None:
            batches = make_loader(config, data, data.dataset.test, training=False).epoch(EVALUATION)
            images = config.encoding == "direct" and not data.dataset.test.is_events
            taken = ((inputs(x, config), labels) for x, labels in batches)
            gap = compare(network, ((x[0] if images else x, labels) for x, labels in taken))
    known = result.by_mode
    modes = {
        mode: replace(one, validation=known[mode].validation if mode in known else None)
        for mode, one in by_mode(found).items()
    }
    return Reevaluated(replace(result, by_mode=modes, **whole_network(found)), gap)


@torch.no_grad()
def _check_decisions(members: Members, config: RunConfig, data: Data, run: str) -> None:
    """Reject scores that are not finite, and warn if every sample is assigned to the same class."""
    loader = make_loader(config, data, data.dataset.test, training=False)
    x, labels = next(loader.epoch(EVALUATION))
    logits = members(inputs(x, config), None).logits
    if not bool(torch.isfinite(logits).all()):
        raise InputError(f"the scores of run {run} are NaN or infinite; train it again")
    decided = logits.argmax(-1)
    if (
        len(labels) >= 32
        and bool((decided == decided.flatten()[0]).all())
        and int(labels.min()) != int(labels.max())
    ):
        warnings.warn(
            f"run {run} assigns all of the first {len(labels)} test samples to class "
            f"{int(decided.flatten()[0])}, so it has learned nothing; check the data, or train it longer",
            DataWarning,
            stacklevel=4,
        )
