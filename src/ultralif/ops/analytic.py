"""The recurrence and its derivative in plain PyTorch: for any device and dtype, without a compiler.

Forward keeps nothing but its input; backward integrates once more and then walks back. See `contract`.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.maxplus import lse
from ultralif.ops.contract import Constants, Rule

__all__ = ["backward", "forward"]


class _Step(NamedTuple):
    """What one step leaves behind for its derivative."""

    v: Tensor  # before the step
    potential: Tensor  # P, before reset
    threshold: Tensor
    gate: Tensor  # sigmoid(z)
    spike: Tensor


def forward(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes and the last state, as `Implementation` says."""
    steps, last = _integrate(current, _or_zero(state, current, rule), _spread(constants, current), rule)
    train = torch.stack([step.spike for step in steps])
    return (train.mean(0) if rule.rate else train).to(current.dtype), torch.stack(last)


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for current, state and constants, as `Implementation` says."""
    wide = _spread(constants, current)
    start = _or_zero(state, current, rule)
    steps, _ = _integrate(current, start, wide, rule)
    grads = list(_or_zero(grad_state, current, rule).unbind(0))
    sums = _Wide(*(torch.zeros_like(start[0]) for _ in constants))
    g_current = torch.empty_like(current)
    for t in range(len(steps) - 1, -1, -1):
        gs = torch.zeros_like(start[0])
        if grad_out is not None:
            gs += grad_out.to(gs.dtype) / len(steps) if rule.rate else grad_out[t]
        g_potential, grads = _through_spike(steps[t], gs, grads, wide, sums, rule)
        g_current[t], grads[0] = _through_membrane(current[t], steps[t], g_potential, wide, sums, rule)
    g_state = start.new_empty(0) if state is None else torch.stack(grads)
    return g_current, g_state, constants.summed(torch.stack(sums)) if learn else start.new_empty(0)


def _or_zero(state: Tensor | None, current: Tensor, rule: Rule) -> Tensor:
    if state is not None:
        return state
    dtype = compute_dtype(current.dtype)
    return torch.zeros(rule.states, *current.shape[1:], dtype=dtype, device=current.device)


class _Wide(NamedTuple):
    """A tensor for each constant: one value, or one for each feature."""

    eps: Tensor
    leak: Tensor
    threshold: Tensor
    amplitude: Tensor


def _spread(constants: Constants, current: Tensor) -> _Wide:
    return _Wide(
        *(
            c.repeat_interleave(current.shape[2] // c.numel())
            if isinstance(c, Tensor)
            else torch.tensor(c, dtype=compute_dtype(current.dtype), device=current.device)
            for c in constants
        )
    )


def _integrate(
    current: Tensor, state: Tensor, constants: _Wide, rule: Rule
) -> tuple[list[_Step], list[Tensor]]:
    """Run over time and return the trace of every step and the last state."""
    eps, leak, threshold, amplitude = constants
    steps, now = [], list(state.unbind(0))
    for x in current:
        v, limit = now[0], threshold
        if rule.adapt:
            adapted = rule.adapt_decay * now[1] + (1 - rule.adapt_decay) * now[2]
            limit = threshold + rule.adapt_strength * (now[1] if rule.adapt_late else adapted)
        potential = _potential(x.to(v.dtype), v, eps, leak, rule)
        gate = torch.sigmoid((potential - limit) / eps)
        spike = amplitude * gate + (1 - amplitude) / 2 if rule.soft else _step(potential - limit)
        steps.append(_Step(v, potential, limit, gate, spike))
        v = potential * (1 - spike) + rule.v_reset * spike
        now = [v, adapted, spike] if rule.adapt else [v]
    return steps, now


def _step(x: Tensor) -> Tensor:
    """Return 1 above 0 and 0 elsewhere, but NaN for NaN."""
    return torch.where(x.isnan(), x, (x > 0).to(x.dtype))


def _potential(x: Tensor, v: Tensor, eps: Tensor, leak: Tensor, rule: Rule) -> Tensor:
    if rule.membrane == "add":
        return leak * v + x
    terms = _ring(v, leak, rule) if rule.ring else torch.stack((v + torch.log(leak), x))
    if rule.membrane == "max":
        top = terms.amax(0)
    else:
        top = lse(terms, eps, dim=0)
        if rule.ring and rule.centered:
            top = top - eps * math.log(3)
    return top + x if rule.ring else top


def _ring(v: Tensor, leak: Tensor, rule: Rule) -> Tensor:
    """Stack the decayed membrane of the left neighbour, of a neuron, and of the right neighbour."""
    if rule.leak_form == "factor":
        v = v * leak
    elif rule.leak_form == "shift":
        v = v + torch.log(leak)
    return torch.stack((_roll(v, 1, rule), v, _roll(v, -1, rule)))


def _roll(x: Tensor, shift: int, rule: Rule) -> Tensor:
    """Move every ring by one neuron."""
    return x.view(*x.shape[:-1], -1, rule.ring).roll(shift, -1).view(x.shape)


def _through_spike(
    step: _Step, gs: Tensor, grads: list[Tensor], constants: _Wide, sums: _Wide, rule: Rule
) -> tuple[Tensor, list[Tensor]]:
    """Walk back over spike and reset: return the gradient for P, and those for the rest of the state."""
    gv = grads[0]
    if rule.adapt:
        gs = gs + grads[2]
    slope = constants.amplitude * step.gate * (1 - step.gate) / constants.eps
    fed = gs + gv * (rule.v_reset - step.potential) if rule.through_reset else gs
    back = fed * slope
    sums.threshold.sub_(back)
    sums.eps.sub_(back * (step.potential - step.threshold) / constants.eps)
    sums.amplitude.add_(fed * (step.gate - 0.5))
    if rule.adapt:
        pull = -rule.adapt_strength * back
        adapted = grads[1] if rule.adapt_late else grads[1] + pull
        before = rule.adapt_decay * adapted + (pull if rule.adapt_late else 0.0)
        grads = [gv, before, (1 - rule.adapt_decay) * adapted]
    return back + gv * (1 - step.spike), grads


def _through_membrane(
    x: Tensor, step: _Step, g: Tensor, constants: _Wide, sums: _Wide, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Walk back over the membrane: return the gradients for the current and for V before the step."""
    eps, leak = constants.eps, constants.leak
    if rule.membrane == "add":
        sums.leak.add_(g * step.v)
        return g, g * leak
    x = x.to(g.dtype)
    terms = _ring(step.v, leak, rule) if rule.ring else torch.stack((step.v + torch.log(leak), x))
    if rule.membrane == "max":
        share = (terms == terms.amax(0)).to(g.dtype)
        share = share / share.sum(0)  # like amax: ties share the gradient
    else:
        # As in `lse`: what is held at exp(-1000) = 0 stays finite, where -inf * 0 would be NaN.
        logs = torch.log_softmax(((terms - terms.amax(0)) / eps).clamp(min=-1000.0), 0)
        share = logs.exp()
        entropy = -(share * logs).sum(0)
        sums.eps.add_(g * (entropy - math.log(3) if rule.ring and rule.centered else entropy))
    if not rule.ring:
        sums.leak.add_(g * share[0] / leak)
        return g * share[1], g * share[0]
    back = _roll(g * share[0], -1, rule) + g * share[1] + _roll(g * share[2], 1, rule)
    if rule.leak_form == "factor":
        sums.leak.add_(back * step.v)
        return g, back * leak
    if rule.leak_form == "shift":
        sums.leak.add_(back / leak)
    return g, back
