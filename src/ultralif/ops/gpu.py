"""Launch the Triton kernels: how a CUDA tensor is integrated."""

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from ultralif.ops import triton_spatial, triton_temporal
from ultralif.ops.recurrence import Constants, Rule

__all__ = ["backward", "forward", "takes"]

NATIVE = os.environ.get("TRITON_INTERPRET") != "1"
LANES = 1 << 18  # about as many as a large GPU runs at once; what is more is taken in rounds
CHUNK = 10  # steps whose trace a lane keeps in registers: longer ones take a compiler long
WIDEST = 1024  # neurons of a ring that one program takes whole
SPAN = 30  # steps a launch where a ring is cut into parts


def takes(rule: Rule) -> bool:
    """Tell whether the kernels compute a rule."""
    return rule.is_classic


def forward(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes and the last state, as `Implementation` says."""
    current = _rows(current)
    out = torch.empty(
        current.shape[1:] if rule.rate else current.shape, dtype=current.dtype, device=current.device
    )
    last = torch.empty((rule.states, *current.shape[1:]), dtype=torch.float32, device=current.device)
    tensors = _tensors(constants, current.device)
    (_spatial_forward if rule.ring else _temporal_forward)(current, state, tensors, rule, out, last)
    return out, last


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
    current = _rows(current)
    if grad_out is not None and not (grad_out if rule.rate else grad_out[0]).is_contiguous():
        grad_out = grad_out.contiguous()  # along time any stride will do: a sum's gradient has none
    if grad_state is not None:
        grad_state = grad_state.contiguous()
    run = _spatial_backward if rule.ring else _temporal_backward
    tensors = _tensors(constants, current.device)
    g_current, g_state, sums = run(grad_out, grad_state, current, state, tensors, rule, learn)
    g_start = sums.new_empty(0) if state is None else g_state
    return g_current, g_start, constants.summed(sums) if learn else sums.new_empty(0)


def _rows(current: Tensor) -> Tensor:
    """Make neighbouring features neighbours in memory; time and batch may have any stride."""
    return current if current.stride(2) == 1 or current.shape[2] == 1 else current.contiguous()


_numbers: dict[tuple[float, torch.device], Tensor] = {}


def _tensors(constants: Constants, device: torch.device) -> list[Tensor]:
    return [c if isinstance(c, Tensor) else _number(c, device) for c in constants]


def _number(value: float, device: torch.device) -> Tensor:
    """Return a number as a tensor, which is kept for later calls unless a CUDA graph would own it.

    None is ever let go of: a graph that was recorded may still read it.
    """
    kept = _numbers.get((value, device))
    if kept is None:
        kept = torch.full((1,), value, dtype=torch.float32, device=device)
        recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if not recording and len(_numbers) < 4096:
            _numbers[value, device] = kept
    return kept


def _runs(constants: Sequence[Tensor], features: int) -> list[int]:
    return [features // c.numel() for c in constants]


def _chunk(time: int, longest: int) -> dict[str, Any]:
    """Choose a chunk that divides the time steps, if one of a fair size does."""
    fair = [n for n in range(min(time, longest), longest // 2 - 1, -1) if time % n == 0]
    chunk = fair[0] if fair else min(time, longest)
    return {"CHUNK": chunk, "EVEN": time % chunk == 0}


def _rounds(items: int, period: int, block: int, lanes: int) -> tuple[int, int]:
    """Cut items into rounds: return how many, and how many items each takes.

    A round is a multiple of the period, so that what stands in a lane belongs to the same constants in every
    round, and of the block.
    """
    step = math.lcm(period, block)
    size = step * max(1, lanes // step)
    return (1, items) if size >= items else (cdiv(items, size), size)


def _temporal_choices(rule: Rule, time: int) -> dict[str, Any]:
    return {
        "MEMBRANE": int(rule.membrane),
        "SOFT": rule.soft,
        "UNIT": rule.unit,
        "RATE": rule.rate,
        "ADAPT": rule.adapt,
        "LATE": rule.adapt_late,
        "NATIVE": NATIVE,
        "num_warps": 4,
        "enable_fp_fusion": True,
        **_chunk(time, CHUNK),
    }


def _temporal_forward(
    current: Tensor, state: Tensor | None, constants: Sequence[Tensor], rule: Rule, out: Tensor, last: Tensor
) -> None:
    time, batch, features = current.shape
    block = 128 * 4 // current.element_size() if NATIVE else 128
    rounds, size = _rounds(batch * features, features, block, LANES)
    triton_temporal.temporal_forward_kernel[(cdiv(size, block),)](
        current,
        state,
        *constants,
        out,
        last,
        time,
        features,
        batch * features,
        current.stride(0),
        current.stride(1),
        rounds,
        size,
        *_runs(constants, features),
        rule.v_reset,
        rule.adapt_strength,
        rule.adapt_decay,
        HAS_STATE=state is not None,
        BLOCK=block,
        **_temporal_choices(rule, time),
    )


def _temporal_backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Sequence[Tensor],
    rule: Rule,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    time, batch, features = current.shape
    choices = _temporal_choices(rule, time)
    block = 128 * 4 // current.element_size() if NATIVE else 128
    rounds, size = _rounds(batch * features, features, block, LANES)
    wide = current.new_empty(0, dtype=torch.float32)
    g_current = torch.empty(current.shape, dtype=current.dtype, device=current.device)
    g_state = wide.new_empty((rule.states, batch, features) if state is not None else 0)
    sums = wide.new_empty((4, size // features, features) if learn else 0)
    notes = wide.new_empty((cdiv(time, choices["CHUNK"]) - 1, rule.states, batch, features))
    triton_temporal.temporal_backward_kernel[(cdiv(size, block),)](
        grad_out,
        grad_state,
        current,
        state,
        *constants,
        g_current,
        g_state,
        sums,
        notes,
        time,
        features,
        batch * features,
        current.stride(0),
        current.stride(1),
        grad_out.stride(0) if grad_out is not None else 0,
        rounds,
        size,
        *_runs(constants, features),
        rule.v_reset,
        rule.adapt_strength,
        rule.adapt_decay,
        HAS_STATE=state is not None,
        HAS_OUT=grad_out is not None,
        HAS_GRAD_STATE=grad_state is not None,
        THROUGH_RESET=not rule.detach,
        LEARN=learn,
        BLOCK=block,
        **choices,
    )
    return g_current, g_state, sums


class _Tiling(NamedTuple):
    """How rings are laid out over programs."""

    grid: tuple[int, int]
    rounds: int
    size: int  # rows a round
    choices: dict[str, Any]

    @property
    def lanes(self) -> int:
        """All lanes of all programs."""
        return self.grid[0] * self.grid[1] * int(self.choices["LANES"])


def _tiling(rows: int, rings: int, ring: int, halo: int) -> _Tiling:
    width = next_power_of_2(ring) if halo == 0 else WIDEST
    tiles = 1 if halo == 0 else cdiv(ring, width - 2 * halo)
    lanes = max(width, 64)
    rounds, size = _rounds(rows, rings, lanes // width, max(1, LANES // (width * tiles)))
    choices = {"LANES": lanes, "WIDTH": width, "WHOLE": halo == 0, "num_warps": lanes // 64}
    return _Tiling((cdiv(size, lanes // width), tiles), rounds, size, choices)


def _spatial_choices(rule: Rule, time: int) -> dict[str, Any]:
    return {
        "MEMBRANE": int(rule.membrane),
        "SOFT": rule.soft,
        "RATE": rule.rate,
        "CENTERED": rule.centered,
        "LEAK": int(rule.leak_form),
        "NATIVE": NATIVE,
        "enable_fp_fusion": True,
        **_chunk(time, CHUNK // 2),
    }


def _spans(time: int, ring: int) -> list[tuple[int, int]]:
    """Return first step and number of steps of each launch: all at once for rings that fit a program."""
    span = time if ring <= WIDEST else SPAN
    return [(first, min(span, time - first)) for first in range(0, time, span)]


def _spatial_forward(
    current: Tensor,
    state: Tensor | None,
    constants: Sequence[Tensor],
    rule: Rule,
    out: Tensor | None,
    last: Tensor,
    bounds: Tensor | None = None,
) -> None:
    """Integrate span after span; ``bounds`` takes the state after each span but the last."""
    time, batch, features = current.shape
    rings = features // rule.ring
    spans = _spans(time, rule.ring)
    if len(spans) > 1 and state is None:  # so that all spans run by one kernel
        state = torch.zeros_like(last)
    spare = torch.empty_like(last) if len(spans) > 1 and bounds is None else last
    for i, (first, steps) in enumerate(spans):
        halo = 0 if rule.ring <= WIDEST else steps
        tiling = _tiling(batch * rings, rings, rule.ring, halo)
        if bounds is not None:
            target = bounds[i] if i < len(bounds) else last
        else:
            target = last if (len(spans) - i) % 2 else spare
        triton_spatial.spatial_forward_kernel[tiling.grid](
            current[first],
            state,
            *constants[:3],
            out if out is None or rule.rate else out[first],
            target,
            steps,
            rule.ring,
            rings,
            batch * rings,
            current.stride(0),
            current.stride(1),
            batch * features,
            halo,
            tiling.rounds,
            tiling.size,
            time,
            *_runs(constants[:3], features),
            rule.v_reset,
            HAS_STATE=state is not None,
            HAS_OUT=out is not None,
            ADD_TO_MEAN=rule.rate and i > 0,
            **_spatial_choices(rule, steps),
            **tiling.choices,
        )
        state = target


def _spatial_backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Sequence[Tensor],
    rule: Rule,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    time, batch, features = current.shape
    rings = features // rule.ring
    spans = _spans(time, rule.ring)
    wide = current.new_empty(0, dtype=torch.float32)
    starts = wide.new_empty((len(spans) - 1, 1, batch, features))
    if len(spans) > 1:  # integrate once more for the state at the start of every span
        state = wide.new_zeros((1, batch, features)) if state is None else state
        grad_state = torch.zeros_like(state) if grad_state is None else grad_state
        before = current[: spans[-1][0]]
        _spatial_forward(before, state, constants, rule, None, starts[-1], starts[:-1])
    g_current = torch.empty(current.shape, dtype=current.dtype, device=current.device)
    g_states = [wide.new_empty((1, batch, features)) for _ in range(min(len(spans), 2))]
    sums = wide.new_zeros(0)
    for i, (first, steps) in reversed(list(enumerate(spans))):
        halo = 0 if rule.ring <= WIDEST else 2 * steps
        tiling = _tiling(batch * rings, rings, rule.ring, halo)
        choices = _spatial_choices(rule, steps)
        if learn and len(sums) == 0:
            sums = wide.new_zeros((4, tiling.size // rings, features))
        notes = wide.new_empty((cdiv(steps, choices["CHUNK"]) - 1) * tiling.lanes)
        triton_spatial.spatial_backward_kernel[tiling.grid](
            grad_out if grad_out is None or rule.rate else grad_out[first],
            grad_state,
            current[first],
            starts[i - 1] if i else state,
            *constants[:3],
            g_current[first],
            g_states[i % 2],
            sums,
            notes,
            steps,
            rule.ring,
            rings,
            batch * rings,
            current.stride(0),
            current.stride(1),
            grad_out.stride(0) if grad_out is not None else 0,
            batch * features,
            halo,
            tiling.rounds,
            tiling.size,
            sums.shape[1] * features if learn else 0,
            time,
            *_runs(constants[:3], features),
            rule.v_reset,
            HAS_STATE=i > 0 or state is not None,
            HAS_OUT=grad_out is not None,
            HAS_GRAD_STATE=grad_state is not None,
            THROUGH_RESET=not rule.detach,
            LEARN=learn,
            ADD_TO_SUMS=len(spans) > 1,
            **choices,
            **tiling.choices,
        )
        grad_state = g_states[i % 2]
    return g_current, g_states[0], sums
