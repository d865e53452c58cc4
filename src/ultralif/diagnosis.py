"""Find out why a network does not learn: `diagnose` checks a batch, `calibrate_init` sets spike rates."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ultralif.errors import InputError
from ultralif.nn import Neuron, Recurrent

__all__ = ["Diagnosis", "Finding", "LayerStatistics", "calibrate_init", "diagnose"]

SILENT, SATURATED = 0.9, 0.5
"""Shares of silent and of saturated neurons above which a layer is reported."""
ALWAYS = 0.95
"""A neuron that fires in more than this share of all steps is saturated."""
WEAK, STRONG = 0.02, 20.0
"""Limits for the mean magnitude of the current, in units of the threshold."""
VANISHED, EXPLODED = 1e-3, 1e3
"""Limits for a layer's gradient, relative to the last layer's gradient."""
FEW_SPIKES = 1.0
"""Spikes per sample and class below which the readout is starved."""


class Finding(NamedTuple):
    """One problem and what to do about it."""

    layer: str
    """The neuron's name in the network, ``input`` or ``network``."""
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.problem}\n  fix: {self.fix}"


class LayerStatistics(NamedTuple):
    """The activity of one layer of neurons on the batch."""

    name: str
    neuron: str
    """The neuron's class."""
    mode: str
    rate: float
    """The share of steps in which a neuron fires."""
    silent: float
    """The share of neurons that never fire."""
    saturated: float
    """The share of neurons that fire in almost every step."""
    drive: float
    """The mean magnitude of the current, in units of the threshold."""
    gradient: float
    """The norm of the gradient of the loss with respect to the current."""


class Diagnosis(NamedTuple):
    """The result of `diagnose`; printing it shows a table of the layers and the findings."""

    layers: tuple[LayerStatistics, ...]
    findings: tuple[Finding, ...]
    loss: float

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("layer", "neuron", "mode", "rate", "silent", "saturated", "drive", "gradient")
        ]
        for each in self.layers:
            shares = (f"{100 * value:.1f} %" for value in (each.rate, each.silent, each.saturated))
            rows.append(
                (each.name, each.neuron, each.mode, *shares, f"{each.drive:.2g}", f"{each.gradient:.2g}")
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = (
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows
        )
        found = map(str, self.findings) if self.findings else ("No problems found.",)
        return "\n".join((*map(str.rstrip, table), f"loss {self.loss:.4g}", "", *found))

    def __repr__(self) -> str:
        return str(self)


class _Calls(NamedTuple):
    """The currents and spikes of one neuron, ``[T, B, *features]``, in the order of its calls."""

    neuron: Neuron[Any]
    currents: list[Tensor]
    spikes: list[Tensor]

    def current(self) -> Tensor:
        return torch.cat([x.detach() for x in self.currents])

    def fired(self) -> Tensor:
        """Return 1 where the membrane was above the threshold, and 0 elsewhere."""
        return (torch.cat([s.detach() for s in self.spikes]) > 0.5).float()

    def gradient(self) -> float:
        """Return the norm of the gradient of all currents; 0 if none arrived."""
        grads = [x.grad.double().square().sum() for x in self.currents if x.grad is not None]
        return float(torch.stack(grads).sum().sqrt()) if grads else 0.0


def diagnose(
    net: nn.Module,
    batch: tuple[Tensor, Tensor],
    *,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Diagnosis:
    """Run one batch forward and backward, and report layer by layer what may keep a network from learning.

    It looks for silent and saturated neurons, currents far from the threshold, vanishing and exploding
    gradients, a readout that receives too few spikes or consists of spikes, temperatures at their bounds,
    modes that differ or are not meant for training, and inputs with a misplaced time axis. The network itself
    is not changed.

    Args:
        net: any network with our neurons. Pass it as you train it, in training mode.
        batch: the input as the network expects it, and the targets ``[B]``.
        loss: a function of scores and targets, such as those in `ultralif.training.losses`. None: for
            classes, the cross-entropy of the scores, or of their mean over time; for other targets, the
            squared error.

    Example:
        >>> from ultralif.nn import UltraLIF
        >>> net = nn.Sequential(nn.Linear(8, 64), UltraLIF(), nn.Linear(64, 2))
        >>> diagnose(net, (torch.rand(5, 4, 8), torch.tensor([0, 1, 0, 1]))).findings
        ()
    """
    x, targets = _pair(batch)
    net = copy.deepcopy(net)
    names = _neuron_names(net)
    findings = list(_check_input(x, targets))
    with _watched(net, grad=True) as calls:
        try:
            scores = net(x)
            value = (loss or _default_loss)(scores, targets)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            findings.append(
                Finding("network", f"the forward pass failed with {type(error).__name__}: {error}", _axes(x))
            )
            return Diagnosis((), tuple(findings), float("nan"))
    if not calls:
        raise InputError("the network did not call any of its neurons for this batch; pass the whole network")
    if value.requires_grad:
        torch.autograd.backward(value)
    layers = [_statistics(names[each.neuron], each) for each in calls]
    for layer, each in zip(layers, calls, strict=True):
        findings += _check_time(layer.name, each.currents[0], x, targets)
        findings += _check_activity(layer)
        findings += _check_eps(layer.name, each.neuron)
    findings += _check_gradients(layers, value)
    findings += _check_readout(layers, calls, scores)
    findings += _check_modes(net, [each.neuron for each in calls], names)
    return Diagnosis(tuple(layers), tuple(findings), float(value.detach()))


@torch.no_grad()
def calibrate_init(
    net: nn.Module, batch: Tensor | tuple[Tensor, Tensor], rate: float = 0.1
) -> dict[str, float]:
    """Scale the weights in place so that every layer fires at a chosen rate; return the rates by layer.

    Layer by layer, it multiplies the weight and bias of the module that drives the neurons by one factor.
    That module is the last linear map, convolution or normalization that runs before them. Call it before
    training. If scaling cannot reach the chosen rate, a layer keeps the nearest one, so check the returned
    rates.

    Args:
        net: any network with our neurons, in training mode.
        batch: an input as the network expects it, with or without targets.
        rate: the share of steps in which a neuron fires. In soft mode, a spike above 1/2 counts.

    Example:
        >>> from ultralif.nn import UltraLIF
        >>> net = nn.Sequential(nn.Linear(8, 64), UltraLIF(), nn.Linear(64, 2))
        >>> rates = calibrate_init(net, torch.rand(10, 16, 8), rate=0.2)
        >>> 0.18 < rates["1"] < 0.22
        True
    """
    if not 0 < rate < 1:
        raise InputError(f"rate must be between 0 and 1, got {rate}")
    x = batch[0] if isinstance(batch, tuple | list) else batch
    names = _neuron_names(net)
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}  # for example running statistics
    scaled: set[nn.Module] = set()
    try:
        calls, sources = _observe(net, x)
        for neuron in [each.neuron for each in calls]:
            if neuron in sources and sources[neuron] not in scaled:
                scaled.add(sources[neuron])
                _scale_to_rate(net, x, neuron, sources[neuron], rate)
        calls, _ = _observe(net, x)
    finally:
        for name, buffer in net.named_buffers():
            buffer.copy_(buffers[name])
    return {names[each.neuron]: float(each.fired().mean()) for each in calls}


def _scale_to_rate(net: nn.Module, x: Tensor, neuron: Neuron[Any], source: nn.Module, rate: float) -> None:
    """Multiply the parameters of a module until the neurons that it drives fire at the given rate."""
    for _ in range(3):  # once is enough unless something else is added to the current, such as feedback
        each = next(each for each in _observe(net, x)[0] if each.neuron is neuron)
        if abs(float(each.fired().mean()) - rate) <= 0.05 * rate:
            return
        current = each.current()

        def fires(scale: float, current: Tensor = current) -> float:
            spikes = neuron.run((current.transpose(0, 1) if neuron.batch_first else current) * scale)[0]
            return float((spikes > 0.5).float().mean())

        low, high = 1e-3, 1e3
        for _ in range(30):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if fires(middle) < rate else (low, middle)
        if high < 1e3:  # otherwise no factor is large enough
            for parameter in (source.weight, source.bias):
                if isinstance(parameter, Tensor):
                    parameter.mul_(high)


def _observe(net: nn.Module, x: Tensor) -> tuple[list[_Calls], dict[Neuron[Any], nn.Module]]:
    """Run a network; return its neurons' calls, and the module that drives each neuron."""
    feedback = {m for layer in net.modules() if isinstance(layer, Recurrent) for m in layer.linear.modules()}
    latest: list[nn.Module] = []
    sources: dict[Neuron[Any], nn.Module] = {}

    def ran(module: nn.Module, given: Any, out: Any) -> None:
        latest[:] = [module]

    driving = [
        m for m in net.modules() if isinstance(getattr(m, "weight", None), nn.Parameter) and m not in feedback
    ]
    hooks = [module.register_forward_hook(ran) for module in driving]

    def called(neuron: Neuron[Any]) -> None:
        if latest:
            sources.setdefault(neuron, latest[0])

    try:
        with _watched(net, grad=False, called=called) as calls:
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return calls, sources


@contextmanager
def _watched(
    net: nn.Module, *, grad: bool, called: Callable[[Neuron[Any]], None] = lambda neuron: None
) -> Iterator[list[_Calls]]:
    """Record every call of every neuron, whichever method is called."""
    calls: list[_Calls] = []
    by_neuron: dict[Neuron[Any], _Calls] = {}

    def note(neuron: Neuron[Any], current: Tensor, spikes: Tensor) -> None:
        called(neuron)
        if neuron not in by_neuron:
            by_neuron[neuron] = _Calls(neuron, [], [])
            calls.append(by_neuron[neuron])
        by_neuron[neuron].currents.append(current)
        by_neuron[neuron].spikes.append(spikes)

    neurons = [module for module in net.modules() if isinstance(module, Neuron)]
    for neuron in neurons:
        _watch(neuron, note, grad)
    try:
        yield calls
    finally:
        for neuron in neurons:
            for method in ("forward", "rate", "run", "step"):
                delattr(neuron, method)


def _watch(neuron: Any, note: Callable[[Neuron[Any], Tensor, Tensor], None], grad: bool) -> None:
    """Let a neuron report the current and spikes of each call; all its methods then use `run` or `step`."""
    integrate, advance = neuron.run, neuron.step
    time = 1 if neuron.batch_first else 0

    def run(current: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        major = current.transpose(0, time) if grad is False else _kept(current.transpose(0, time))
        spikes, state = integrate(major.transpose(0, time), state)
        note(neuron, major, spikes.transpose(0, time))
        return spikes, state

    def step(x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        major = _kept(x.unsqueeze(0)) if grad else x.unsqueeze(0)
        spike, state = advance(major[0], state)
        note(neuron, major, spike.unsqueeze(0))
        return spike, state

    neuron.run, neuron.step = run, step
    kind = type(neuron)
    neuron.forward = lambda current, return_membrane=False: (
        kind.forward(neuron, current, return_membrane=True) if return_membrane else neuron.run(current)[0]
    )
    neuron.rate = lambda current: neuron.run(current)[0].mean(time)


def _kept(x: Tensor) -> Tensor:
    """Return a tensor that keeps its gradient."""
    x = x.clone()
    if x.requires_grad:
        x.retain_grad()
    return x


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    if not (
        isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(x, Tensor) for x in batch)
    ):
        raise InputError(f"batch must be a pair of tensors, input and targets, got {type(batch).__name__}")
    return batch[0], batch[1]


def _neuron_names(net: nn.Module) -> dict[Neuron[Any], str]:
    names = {m: name or "net" for name, m in net.named_modules() if isinstance(m, Neuron)}
    if not names:
        raise InputError(f"net is a {type(net).__name__} without ultralif neurons; pass the whole network")
    return names


def _default_loss(scores: Tensor, targets: Tensor) -> Tensor:
    if targets.is_floating_point():
        return functional.mse_loss(scores, targets)
    if scores.dim() == targets.dim() + 2:
        scores = scores.mean(0)
    return functional.cross_entropy(scores, targets)


def _statistics(name: str, calls: _Calls) -> LayerStatistics:
    fired, current, neuron = calls.fired(), calls.current(), calls.neuron
    by_neuron = fired.mean((0, 1))
    threshold = neuron.constants()["threshold"]
    return LayerStatistics(
        name,
        type(neuron).__name__,
        neuron.mode,
        float(fired.mean()),
        float((by_neuron == 0).float().mean()),
        float((by_neuron > ALWAYS).float().mean()),
        float(current.abs().mean()) / (abs(threshold) or 1.0),
        calls.gradient(),
    )


def _check_input(x: Tensor, targets: Tensor) -> Iterator[Finding]:
    if x.numel() == 0:
        yield Finding("input", f"the batch is empty, of shape {tuple(x.shape)}", "pass at least one sample")
        return
    values = x.detach().float()
    if not bool(values.isfinite().all()):
        yield Finding("input", "it contains NaN or infinite values", "clean the data before training")
    elif float(values.abs().max()) == 0:
        yield Finding("input", "all values are zero", "check the dataset, its transforms and the encoding")
    elif float(values.max()) > 64 and bool((values == values.round()).all()) and not _sparse(values):
        yield Finding(
            "input",
            f"values go up to {float(values.max()):.0f}, which looks like pixels from 0 to 255",
            "divide by 255, so that currents are near the threshold",
        )


def _sparse(values: Tensor) -> bool:
    """Return whether values look like event counts: small integers, most of them zero."""
    return bool((values == values.round()).all()) and float((values == 0).float().mean()) > 0.8


def _axes(x: Tensor) -> str:
    """Explain how to arrange the axes of an input."""
    shape = tuple(x.shape)
    if x.dim() >= 4 and _sparse(x.detach().float()):
        return (
            f"the input {shape} looks like event frames: networks expect [T, B, ...], so transpose "
            "[B, T, ...] with x.transpose(0, 1); in ul.train, pass events=True"
        )
    return (
        f"the input has shape {shape}; networks expect [T, B, ...], so repeat images over time with "
        "x.unsqueeze(0).expand(T, *x.shape), transpose [B, T, ...], and wrap convolutions and pooling in "
        "ul.TimeDistributed"
    )


def _check_time(name: str, current: Tensor, x: Tensor, targets: Tensor) -> Iterator[Finding]:
    """Compare the axes of a current with the number of targets to find the batch axis."""
    samples = targets.shape[1] if targets.dim() > 1 and not targets.is_floating_point() else targets.shape[0]
    if current.shape[0] == samples != current.shape[1]:
        yield Finding(
            name,
            f"the neurons treat the first axis of {tuple(current.shape)} as time, but its length equals the "
            f"batch size, {samples}, so they integrate from sample to sample",
            _axes(x),
        )


def _check_activity(layer: LayerStatistics) -> Iterator[Finding]:
    where = layer.name
    if layer.silent > SILENT:
        yield Finding(
            where,
            f"{100 * layer.silent:.0f} % of the neurons never fire",
            "call ul.calibrate_init(net, batch) before training, put a BatchNorm before the neurons, or "
            "lower the threshold",
        )
    if layer.saturated > SATURATED:
        yield Finding(
            where,
            f"{100 * layer.saturated:.0f} % of the neurons fire in almost every step",
            "call ul.calibrate_init(net, batch) before training, or raise the threshold; in an Ultra neuron "
            "lower eps, because a large eps lifts the resting potential above the threshold",
        )
    if layer.drive < WEAK or layer.drive > STRONG:
        size = "small" if layer.drive < WEAK else "large"
        yield Finding(
            where,
            f"the currents are very {size}: {layer.drive:.2g} times the threshold on average",
            "scale the input to the range of the threshold, or call ul.calibrate_init(net, batch)",
        )


def _check_eps(name: str, neuron: Neuron[Any]) -> Iterator[Finding]:
    learned = neuron.learned("eps") if "eps" in neuron.declared() else None
    if learned is None or learned[1] is None:
        return
    low, high = learned[1]
    eps = neuron.constants()["eps"]
    if eps <= 1.01 * low or eps >= 0.99 * high:
        yield Finding(
            name,
            f"eps = {eps:.3g} is at the bound of eps_range = ({low:g}, {high:g})",
            "widen eps_range, lower the learning rate of the neurons (ul.parameter_groups), or fix eps with "
            "learn_eps=False",
        )


def _check_gradients(layers: list[LayerStatistics], value: Tensor) -> Iterator[Finding]:
    if not bool(value.isfinite().all()):
        yield Finding(
            "network",
            f"the loss is {float(value.detach()):g}",
            "lower the learning rate, or look for NaN in the input",
        )
        return
    if not value.requires_grad:
        yield Finding(
            "network",
            "the loss has no gradient",
            "remove torch.no_grad and detach, and set requires_grad on the parameters",
        )
        return
    last = layers[-1].gradient
    for layer in layers:
        if not layer.gradient < float("inf"):
            problem, fix = "the gradient is NaN or infinite", "lower the learning rate or clip the gradient"
        elif layer.gradient == 0:
            problem = "no gradient arrives"
            fix = "check that the layer is used and not detached, and that later layers fire"
        elif layer.gradient < VANISHED * last:
            problem = f"the gradient vanishes: {layer.gradient / last:.1g} times that of the last layer"
            fix = "raise eps or lower the surrogate's slope, add BatchNorm or residual connections"
        elif layer.gradient > EXPLODED * last > 0:
            problem = f"the gradient explodes: {layer.gradient / last:.1g} times that of the last layer"
            fix = "clip it with torch.nn.utils.clip_grad_norm_, use detach_reset=True, or add BatchNorm"
        else:
            continue
        yield Finding(layer.name, problem, fix)


def _check_readout(layers: list[LayerStatistics], calls: list[_Calls], scores: Any) -> Iterator[Finding]:
    last, spikes = layers[-1], torch.cat([s.detach() for s in calls[-1].spikes])
    if not isinstance(scores, Tensor):
        return
    classes = scores.shape[-1] if scores.dim() > 1 else 1
    made_of_spikes = scores.detach().shape in (spikes.shape, spikes.shape[1:]) and (
        torch.equal(scores.detach(), spikes)
        or (scores.shape == spikes.shape[1:] and torch.allclose(scores.detach(), spikes.mean(0)))
    )
    if made_of_spikes:
        yield Finding(
            last.name,
            "the scores are spikes of this layer: they stay between 0 and 1, and a class whose neuron falls "
            "silent gets hardly any gradient",
            "remove the last neuron, and train the mean of the linear scores over time with cross-entropy; "
            "or replace the neuron with ul.LeakyIntegrator()",
        )
        return
    counts = calls[-1].fired().sum(0).flatten(1).sum(1).mean() if spikes.dim() > 2 else spikes.sum()
    if float(counts) < FEW_SPIKES * classes:
        yield Finding(
            last.name,
            f"the readout is starved: it gets {float(counts):.2g} spikes per sample for {classes} outputs",
            "call ul.calibrate_init(net, batch) before training, add neurons to the last layer, or use more "
            "time steps",
        )


def _check_modes(
    net: nn.Module, neurons: list[Neuron[Any]], names: dict[Neuron[Any], str]
) -> Iterator[Finding]:
    modes = {neuron.mode for neuron in neurons if "soft" in neuron.modes[:1]}
    if len(modes) > 1:
        listed = ", ".join(f"{names[n]} {n.mode}" for n in neurons if "soft" in n.modes[:1])
        yield Finding(
            "network",
            f"the layers have different modes: {listed}",
            "call ul.set_mode(net, mode) on the network",
        )
    elif modes and modes != {"soft"} and net.training:
        yield Finding(
            "network",
            f"it is trained in {modes.pop()} mode, where the gradient of a spike is only an approximation",
            "call ul.set_mode(net, 'soft') to train with exact gradients, unless you fine-tune binary spikes",
        )
    elif modes == {"soft"} and not net.training:
        yield Finding(
            "network",
            "net.eval() was called, but the spikes are still soft",
            "call ul.set_mode(net, 'hard') to evaluate binary spikes, or net.train() to continue training",
        )
