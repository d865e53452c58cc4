"""The plan for a call on a GPU: strides, grid and tables for a layout, a rule and kinds of constants.

The first call creates the plan, which holds the compiled kernel after its first launch. Later calls only
allocate their outputs and launch.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from triton import cdiv

from ultralif.ops.constants import Learned
from ultralif.ops.layout import (
    Place,
    Steps,
    axes_by_memory,
    contiguous_strides,
    dense_strides,
    find_place,
    find_steps,
    like_strides,
    shape_of,
)
from ultralif.ops.rule import Constants, Rule, code
from ultralif.ops.triton import chunked, launch, ring, temporal
from ultralif.ops.triton.launch import EACH, LEFT, ROW, SHARED, table_of, way_of

__all__ = ["LaunchPlan", "find_plan", "forget"]

PLANS = 512  # maximum number of cached plans

_plans: dict[object, "LaunchPlan"] = {}


def find_plan(
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    *,
    inside: bool = False,
    ready: bool = False,
) -> "LaunchPlan":
    """Return the plan for a call; the first call creates it.

    Args:
        current: as in `forward`.
        state: as in `forward`.
        constants: as in `forward`.
        rule: as in `forward`.
        inside: the output is part of a larger tensor, with the strides of the current.
        ready: whether the kernels receive decoded constants; see `LaunchPlan.can_be_ready`.
    """
    key = (
        current.shape,
        current.stride(),
        current.dtype,
        current.device,
        current.data_ptr() % 16,
        state is None,
        inside,
        ready,
        rule,
        *[
            c if isinstance(c, float | int) else (c.shape, c.dtype) if isinstance(c, Tensor) else _spec(c)
            for c in constants
        ],
    )
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= PLANS:
            _plans.clear()
        plan = LaunchPlan(current, constants, rule, inside, ready)
        if not launch.is_recording(current.device):  # otherwise it belongs to the recorded graph
            _plans[key] = plan
    return plan


def forget() -> None:
    """Discard all plans, after something that they depend on has changed."""
    _plans.clear()


def _spec(learned: Learned) -> tuple[object, ...]:
    rows = None if learned.rows is None else learned.rows.data_ptr()
    return learned.raw.shape, learned.raw.dtype, *learned[1:5], rows


class LaunchPlan:
    """The launches for one layout of the current, one rule and one kind of constants."""

    def __init__(
        self, current: Tensor, constants: Constants, rule: Rule, inside: bool = False, ready: bool = False
    ) -> None:
        self.rule, self.device, self.dtype = rule, current.device, current.dtype
        self.shape, self.time = tuple(current.shape), current.shape[0]
        self.strides = tuple(current.stride()) if inside else like_strides(self.shape, current.stride())
        order = axes_by_memory(self.shape, self.strides)
        places = [find_place(shape_of(c), self.shape, order) for c in constants]
        if None in places or (rule.ring and rule.ring > 1 and order[-1:] != (len(self.shape) - 1,)):
            self.strides = contiguous_strides(self.shape)
            order = axes_by_memory(self.shape, self.strides)
            places = [find_place(shape_of(c), self.shape, order) for c in constants]
        self.order = order
        self.places: list[Place | None] = places
        self.total = math.prod(self.shape[1:])
        step = dense_strides(self.shape, order)
        self.mean_strides, self.state_strides = step, (self.total, *step)
        self.at_current = find_steps(self.shape, tuple(current.stride()), order)
        at_out = find_steps(self.shape, self.strides, order)
        assert at_out is not None, "a dense layout has an order"  # noqa: S101
        self.at_out = at_out
        self.at_mean = Steps(0, 0, 1, self.total)
        if inside:
            self.mean_strides, self.at_mean = self.strides[1:], at_out._replace(time=0)
        self.state_shape = (rule.states, *self.shape[1:])
        self.numbers = (float(rule.v_reset), float(rule.adapt_strength), float(rule.adapt_decay))
        self.tables = tuple(table_of(c, self.device) for c in constants)
        self.row = tuple(ROW if isinstance(c, Learned) and c.rows is not None else 0 for c in constants)
        self.backwards: dict[object, Any] = {}
        self.steps: dict[tuple[int, ...], Steps | None] = {}
        self.counters: dict[object, Tensor] = {}
        self.groups: dict[object, int] = {}
        self.row_tables: dict[object, Any] = {}
        self.launch: Any = None
        self.is_ready = ready
        self._set_grid()

    def _set_grid(self) -> None:
        rule = self.rule
        found = [place or Place(1, self.total) for place in self.places]
        period = math.lcm(*(p.run * p.entries for p in found if p.entries > 1), 1)
        units = [p.entries if p.run == 1 else p.run for p in found if p.entries > 1]
        self.tile = chunked.find_tile(rule, self.total, self.time, units)
        if self.tile is not None:
            block, warps = self.tile.neurons, max(1, self.tile.neurons * self.tile.chunks // 32)
        else:
            block = _block(self.total, units, self.dtype)
            warps = max(1, block * self.dtype.itemsize // launch.BYTES) if launch.NATIVE else 4
            warps = min(warps, 4)
        self.block, self.warps = block, warps
        step = math.lcm(period, block)
        size = step * max(1, launch.LANES // step)
        self.rounds: int
        self.size: int
        whole = self.tile is not None or size >= self.total
        self.rounds, self.size = (1, self.total) if whole else (cdiv(self.total, size), size)
        self.programs = cdiv(self.size, block)
        # All lanes share a single entry, whose run covers all of them.
        runs = [Place(self.programs * block, 1) if p.entries == 1 else p for p in found]
        self.found = runs
        self.where = tuple(
            n for p, row in zip(runs, self.row, strict=True) for n in (p.run, p.entries, row, self._side(p))
        )
        self.span = (self.total, self.rounds, self.size)
        same = all(p.entries == 1 for p in found)
        self.rule_code = code(rule, 2 if self.is_ready else same)

    @property
    def shape_of_rows(self) -> tuple[int, int]:
        """Return the number of programs, and the distance in neurons from one program to the next."""
        return ring.shape_of_rows(self) if self.rule.ring else (self.programs, self.block)

    def can_be_ready(self) -> bool:
        """Return whether all lanes of a program have the same constants."""
        return self.shape_of_rows[0] > 0 and all(way == SHARED for way in self._ways())

    def _ways(self) -> list[int]:
        return ring.ways(self) if self.rule.ring else [way_of(place, self.block) for place in self.found]

    def leaves(self, learned: Sequence[bool]) -> bool:
        """Return whether the kernel leaves the reduction of a gradient to `reduced`."""
        return any(way == LEFT and wanted for way, wanted in zip(self._ways(), learned, strict=True))

    def _side(self, place: Place) -> int:
        """Return how many consecutive programs reduce their gradient together, or cover all entries."""
        if way_of(place, self.block) == EACH:
            return place.entries // self.block
        return max(1, place.run // self.block)

    def raws(self, constants: Constants) -> tuple[Tensor, ...]:
        """Return the tensors that kernels read: raw parameters, constants, and tables for numbers."""
        return tuple(
            c.raw.contiguous()
            if isinstance(c, Learned)
            else c.contiguous()
            if isinstance(c, Tensor)
            else table
            for c, table in zip(constants, self.tables, strict=True)
        )

    def readable(self, x: Tensor) -> tuple[Tensor, Steps]:
        """Return a tensor with the addresses of its neurons, or a copy if these need more strides."""
        strides = x.stride()
        if strides not in self.steps:
            self.steps[strides] = find_steps(self.shape, strides, self.order)
        at = self.steps[strides]
        if at is not None:
            return x, at
        return torch.empty_strided(self.shape, self.strides, dtype=x.dtype, device=x.device).copy_(
            x
        ), self.at_out

    def dense_state(self, state: Tensor) -> Tensor:
        """Return a state in memory order, copying it if necessary."""
        if tuple(state.stride()) == self.state_strides and state.dtype == torch.float32:
            return state
        fresh = torch.empty_strided(
            self.state_shape, self.state_strides, dtype=torch.float32, device=self.device
        )
        return fresh.copy_(state)

    def forward(
        self, current: Tensor, state: Tensor | None, constants: Constants, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Integrate; write the spikes into the given tensor or into a new one."""
        if launch.is_elsewhere(self.device):
            with torch.cuda.device(self.device):
                return self.forward(current, state, constants, out)
        rate, device = self.rule.rate, self.device
        if out is None:
            shape, strides = (self.shape[1:], self.mean_strides) if rate else (self.shape, self.strides)
            out = torch.empty_strided(shape, strides, dtype=self.dtype, device=device)
        last = torch.empty_strided(self.state_shape, self.state_strides, dtype=torch.float32, device=device)
        at = self.at_current
        if at is None:
            current, at = self.readable(current)
        if state is not None:
            state = self.dense_state(state)
        if self.rule.ring:
            return out, last, ring.forward(self, current, at, state, constants, out, last)
        if self.tile is not None:
            return out, last, chunked.forward(self, self.tile, current, at, state, constants, out, last)
        temporal.forward(self, current, at, state, constants, out, last)
        return out, last, None

    def backward(
        self,
        grad_out: Tensor | None,
        grad_state: Tensor | None,
        current: Tensor,
        state: Tensor | None,
        constants: Constants,
        learned: Sequence[bool],
        kept: tuple[Tensor | None, Tensor | None] = (None, None),
        g_current: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
        """Differentiate; write the current's gradient into the given tensor or into a new one."""
        device = self.device
        if launch.is_elsewhere(device):
            given = (grad_out, grad_state, current, state, constants, learned, kept, g_current)
            with torch.cuda.device(device):
                return self.backward(*given)
        if g_current is None:
            g_current = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)
        g_state = None
        if state is not None:
            state = self.dense_state(state)
            g_state = torch.empty_strided(
                self.state_shape, self.state_strides, dtype=torch.float32, device=device
            )
        if grad_state is not None:
            grad_state = self.dense_state(grad_state)
        at_grad = self.at_mean
        if grad_out is not None:
            if not self.rule.rate:
                grad_out, at_grad = self.readable(grad_out)
            elif tuple(grad_out.stride()) != self.mean_strides:
                grad_out = torch.empty_strided(
                    self.shape[1:], self.mean_strides, dtype=grad_out.dtype, device=device
                ).copy_(grad_out)
        given = (grad_out, grad_state, current, state, g_current, g_state)
        if self.rule.ring:
            grads = ring.backward(self, given, at_grad, constants, learned, *kept)
        elif self.tile is not None:
            starts = kept[1] if kept[1] is not None else self.forward(current, state, constants)[2]
            grads = chunked.backward(self, self.tile, given, at_grad, starts, constants, learned)
        else:
            grads = temporal.backward(self, given, at_grad, constants, learned, kept[0])
        return g_current, g_state, grads


def _block(total: int, units: Sequence[int], dtype: torch.dtype) -> int:
    """Choose the number of neurons per program: few for a small layer, to keep all multiprocessors busy."""
    largest = 128 * 4 // dtype.itemsize if launch.NATIVE else 128
    block = 32
    while block < largest and total >= 2 * block * launch.PROGRAMS:
        block *= 2
    for unit in units:  # at most those that share an entry, or a number that divides the entries
        while block > 32 and unit % block:
            block //= 2
    return block
