"""Launch the Triton kernels: how a CUDA tensor is integrated.

The first call for a layout, a rule and a kind of constants makes a plan: strides, grid, tables, and after the
first launch the compiled kernel. Further calls allocate their outputs and launch.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from triton import cdiv

from ultralif.ops import rings, triton_parallel, triton_spikes, triton_temporal, triton_temporal_back
from ultralif.ops.constants import Form, Learned
from ultralif.ops.layout import (
    Place,
    Steps,
    axes_by_memory,
    dense_strides,
    find_place,
    find_steps,
    strides_like,
)
from ultralif.ops.recurrence import Constants, Reset, Rule

__all__ = ["backward", "find_plan", "forward", "takes", "walk", "walk_back"]

NATIVE = os.environ.get("TRITON_INTERPRET") != "1"
LANES = 1 << 18  # about as many as a large GPU runs at once; what is more is taken in rounds
CHUNK = 10  # steps whose trace a lane keeps in registers: longer ones take a compiler long
PROGRAMS = 264  # two for each multiprocessor of a large GPU
BYTES = 128  # that a warp loads at once
PLANS = 512  # most that are kept
SHARED, EACH, LEFT = 1, 2, 3  # ways to reduce a gradient: see `triton_constants`
ROW = 7  # numbers in a row of a table


def takes(rule: Rule) -> bool:
    """Tell whether the kernels compute a rule."""
    return True


def forward(
    current: Tensor, state: Tensor | None, constants: Constants, rule: Rule, plan: "Plan | None" = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the spikes, the last state and, for long rings, some membranes that `backward` may need."""
    return (plan or find_plan(current, state, constants, rule)).forward(current, state, constants)


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learned: Sequence[bool],
    kept: Tensor | None = None,
    plan: "Plan | None" = None,
) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """Return the gradients for current, state and constants.

    What was ``kept`` are the spikes, if they tell the membrane, or the membranes that `forward` returned.
    """
    plan = plan or find_plan(current, state, constants, rule)
    return plan.backward(grad_out, grad_state, current, state, constants, learned, kept)


def walk(
    view: Tensor, current: Tensor, state: Tensor | None, constants: Constants, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Return the ends of all chunks, which tell their maps, and the membrane before each and after the last.

    Args:
        view: the current in chunks, ``[T / K, K, B, *features]``.
        current: the same, ``[T, B, *features]``.
        state: the membrane before the first step.
        constants: as in `forward`.
        rule: as in `forward`.
    """
    chunked, whole = find_plan(view, current, constants, rule), find_plan(current, state, constants, rule)
    time, count = view.shape[:2]
    kinds = 3 if rule.reset == Reset.SATURATE else 1
    ends = torch.empty((kinds, chunked.total), dtype=torch.float32, device=current.device)
    starts = whole.steps_of(count + 1)
    at = chunked.at_current
    if at is None:
        view, at = chunked.readable(view)
    known = (chunked.raws(constants), chunked.tables, chunked.where)
    chunk, even = chunk_of(time, CHUNK)
    launch = chunked.walks.get("ends")
    if launch is None:
        choices = (chunked.rule_code, chunk if even else 1, chunked.block, NATIVE)
        kernel: Any = triton_parallel.ends_kernel
        launch = chunked.walks["ends"] = Launch(kernel, (chunked.programs,), choices, chunked.warps)
    launch(view, ends, known, time, chunked.span, tuple(at), chunked.numbers)
    launch = whole.walks.get("walk")
    if launch is None:
        choices = (whole.rule_code, state is not None, 32, NATIVE)
        grid = (cdiv(whole.total, 32),)
        launch = whole.walks["walk"] = Launch(triton_parallel.walk_kernel, grid, choices, 1)
    before = None if state is None else whole.dense_state(state)
    known = (whole.raws(constants), whole.tables, whole.where)
    launch(ends, before, starts, known, count, time, whole.total)
    return ends, starts


def walk_back(
    ends: Tensor,
    starts: Tensor,
    grad_last: Tensor | None,
    own: Tensor | None,
    view: Tensor,
    current: Tensor,
    constants: Constants,
    rule: Rule,
) -> tuple[Tensor, Tensor]:
    """Return the gradient at the end of every chunk, ``[1, K, ...]``, and that of the first membrane.

    Args:
        ends: as `walk` returned them.
        starts: the membrane before each chunk and after the last.
        grad_last: the gradient of the last membrane.
        own: for each chunk the gradient that its own spikes send to its start, ``[1, K, ...]``.
        view: the current in chunks.
        current: the same as one sequence.
        constants: as in `forward`.
        rule: as in `forward`.
    """
    whole = find_plan(current, starts, constants, rule)
    time, count = view.shape[:2]
    at_ends, g_state = whole.steps_of(count), whole.steps_of(1)
    has = (own is not None) + 2 * (grad_last is not None)
    launch = whole.walks.get(has)
    if launch is None:
        choices = (whole.rule_code, has, 32, NATIVE)
        grid = (cdiv(whole.total, 32),)
        launch = whole.walks[has] = Launch(triton_parallel.walk_back_kernel, grid, choices, 1)
    last = None if grad_last is None else whole.dense_state(grad_last)
    known = (whole.raws(constants), whole.tables, whole.where)
    launch(ends, starts, last, own, at_ends, g_state, known, count, time, whole.total)
    return at_ends.unsqueeze(0), g_state


_plans: dict[Any, "Plan"] = {}


def find_plan(
    current: Tensor, state: Tensor | None, constants: Constants, rule: Rule, *, inside: bool = False
) -> "Plan":
    """Return the plan for a call, made if there is none.

    Args:
        current: as in `forward`.
        state: as in `forward`.
        constants: as in `forward`.
        rule: as in `forward`.
        inside: the output is a part of a larger tensor, with the strides of the current.
    """
    key = (
        current.shape,
        current.stride(),
        current.dtype,
        current.device,
        current.data_ptr() % 16,
        state is None,
        inside,
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
        plan = Plan(current, constants, rule, inside)
        if not _is_recording(current.device):  # what a recorded graph owns goes with it
            _plans[key] = plan
    return plan


def forget() -> None:
    """Forget all plans, after something that they rest on was changed."""
    _plans.clear()


def _spec(learned: Learned) -> tuple[Any, ...]:
    rows = None if learned.rows is None else learned.rows.data_ptr()
    return learned.raw.shape, learned.raw.dtype, *learned[1:6], rows


def _is_recording(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class Launch:
    """A kernel with its grid and choices; from the second call on, its compiled code is launched directly."""

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        choices: Sequence[int],
        warps: int,
        registers: int | None = None,
    ) -> None:
        self.kernel, self.grid = kernel, (*grid, 1, 1)[:3]
        self.choices = tuple(choices)
        self.options = {"num_warps": warps, "enable_fp_fusion": True, "maxnreg": registers}
        self.run: Callable[..., None] | None = None

    def __call__(self, *args: Any) -> None:
        if self.run is not None:
            self.run(*args, *self.choices)
            return
        compiled = self.kernel[self.grid](*args, *self.choices, **self.options)
        if NATIVE and compiled is not None:
            self.run = compiled[self.grid]


def chunk_of(time: int, longest: int) -> tuple[int, int]:
    """Choose a chunk that divides the time steps, if one of a fair size does; tell whether it does."""
    fair = [n for n in range(min(time, longest), max(2, longest // 2) - 1, -1) if time % n == 0]
    chunk = fair[0] if fair else min(time, longest)
    return chunk, int(time % chunk == 0)


def code(rule: Rule, same: bool) -> int:
    """Return the choices of a rule as one number, two bits each, as `triton_parts` reads it."""
    choices = (
        rule.membrane,
        rule.soft,
        rule.reset,
        rule.detach,
        rule.curve,
        rule.clipped,
        rule.unit,
        rule.rate,
        rule.centered,
        rule.leak_form,
        rule.at_spike,
        rule.adapt,
        rule.adapt_late,
        rule.sharp,
        same,
    )
    return sum(int(choice) << 2 * i for i, choice in enumerate(choices))


class Plan:
    """The launches for one layout of the current, one rule and one kind of constants."""

    def __init__(self, current: Tensor, constants: Constants, rule: Rule, inside: bool = False) -> None:
        self.rule, self.device, self.dtype = rule, current.device, current.dtype
        self.shape, self.time = tuple(current.shape), current.shape[0]
        self.strides = tuple(current.stride()) if inside else strides_like(current)
        order = axes_by_memory(self.shape, self.strides)
        places = [find_place(_shape(c), self.shape, order) for c in constants]
        if None in places or (rule.ring and rule.ring > 1 and order[-1:] != (len(self.shape) - 1,)):
            self.strides = tuple(torch.empty(self.shape, device="meta").stride())
            order = axes_by_memory(self.shape, self.strides)
            places = [find_place(_shape(c), self.shape, order) for c in constants]
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
        self.tables = tuple(_table(c, self.device) for c in constants)
        self.row = tuple(ROW if isinstance(c, Learned) and c.rows is not None else 0 for c in constants)
        self.backwards: dict[Any, Any] = {}
        self.steps: dict[tuple[int, ...], Steps | None] = {}
        self.counters: dict[int, Tensor] = {}
        self.groups: dict[Any, int] = {}
        self.launch: Any = None
        self.walks: dict[Any, Launch] = {}
        self._set_grid()

    def _set_grid(self) -> None:
        rule = self.rule
        found = [place or Place(1, self.total) for place in self.places]
        period = math.lcm(*(p.run * p.entries for p in found if p.entries > 1), 1)
        block = _block(self.total, [p for p in found if p.entries > 1], self.dtype)
        self.block, self.warps = block, max(1, block * self.dtype.itemsize // BYTES) if NATIVE else 4
        self.warps = min(self.warps, 4)
        step = math.lcm(period, block)
        size = step * max(1, LANES // step)
        self.rounds: int
        self.size: int
        self.rounds, self.size = (1, self.total) if size >= self.total else (cdiv(self.total, size), size)
        self.programs = cdiv(self.size, block)
        # All lanes share a single entry: a run as long as all of them.
        runs = [Place(self.programs * block, 1) if p.entries == 1 else p for p in found]
        self.found = runs
        self.where = tuple(
            n for p, row in zip(runs, self.row, strict=True) for n in (p.run, p.entries, row, self._side(p))
        )
        self.span = (self.total, self.rounds, self.size)
        self.rule_code = code(rule, all(p.entries == 1 for p in found))

    def leaves(self, learned: Sequence[bool]) -> bool:
        """Tell whether the kernel leaves the reduction of a gradient to `reduced`."""
        ring = self.rule.ring
        ways = rings.ways(self) if ring else [_way(place, self.block) for place in self.found]
        return any(way == LEFT and wanted for way, wanted in zip(ways, learned, strict=True))

    def _side(self, place: Place) -> int:
        """Return how many programs that follow each other reduce their gradient together, or all of a row."""
        if _way(place, self.block) == EACH:
            return place.entries // self.block
        return max(1, place.run // self.block)

    def raws(self, constants: Constants) -> tuple[Tensor, ...]:
        """Return what kernels read: raw parameters, tensors, and for numbers their tables."""
        return tuple(
            c.raw.contiguous()
            if isinstance(c, Learned)
            else c.contiguous()
            if isinstance(c, Tensor)
            else table
            for c, table in zip(constants, self.tables, strict=True)
        )

    def readable(self, x: Tensor) -> tuple[Tensor, Steps]:
        """Return a tensor like the output and where its neurons are; a copy if two strides do not tell."""
        strides = x.stride()
        if strides not in self.steps:
            self.steps[strides] = find_steps(self.shape, strides, self.order)
        at = self.steps[strides]
        if at is not None:
            return x, at
        return torch.empty_strided(self.shape, self.strides, dtype=x.dtype, device=x.device).copy_(
            x
        ), self.at_out

    def steps_of(self, count: int) -> Tensor:
        """Return room for so many steps of the membrane, each dense in the order of memory."""
        size, strides = (count, *self.shape[1:]), (self.total, *self.state_strides[1:])
        return torch.empty_strided(size, strides, dtype=torch.float32, device=self.device)

    def dense_state(self, state: Tensor) -> Tensor:
        """Return a state in the order of memory, by a copy if it is not."""
        if tuple(state.stride()) == self.state_strides and state.dtype == torch.float32:
            return state
        fresh = torch.empty_strided(
            self.state_shape, self.state_strides, dtype=torch.float32, device=self.device
        )
        return fresh.copy_(state)

    def forward(
        self, current: Tensor, state: Tensor | None, constants: Constants, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Integrate, into a tensor that is given, or a new one."""
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
            borders = rings.forward(self, current, at, state, constants, out, last)
            return out, last, borders
        if self.launch is None:
            chunk = chunk_of(self.time, CHUNK)
            choices = (self.rule_code, state is not None, *chunk, self.block, NATIVE)
            kernel = triton_temporal.temporal_forward_kernel
            self.launch = Launch(kernel, (self.programs,), choices, self.warps)
        self.launch(
            current,
            state,
            out,
            last,
            (self.raws(constants), self.tables, self.where),
            self.time,
            self.span,
            tuple(at),
            tuple(self.at_mean if rate else self.at_out),
            self.numbers,
        )
        return out, last, None

    def backward(
        self,
        grad_out: Tensor | None,
        grad_state: Tensor | None,
        current: Tensor,
        state: Tensor | None,
        constants: Constants,
        learned: Sequence[bool],
        kept: Tensor | None,
        g_current: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
        """Differentiate, into a tensor that is given, or a new one."""
        device = self.device
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
            grads = rings.backward(self, given, at_grad, constants, learned, kept)
        else:
            grads = self._temporal_backward(given, at_grad, constants, learned, kept)
        return g_current, g_state, grads

    def _temporal_backward(
        self,
        given: tuple[Tensor | None, ...],
        at_grad: Steps,
        constants: Constants,
        learned: Sequence[bool],
        spikes: Tensor | None,
    ) -> list[Any]:
        grad_out, grad_state, current, state, g_current, g_state = given
        assert current is not None and g_current is not None  # noqa: S101
        from_spikes = spikes is not None and grad_state is None and grad_out is not None
        has = (state is not None) + 2 * (grad_out is not None) + 4 * (grad_state is not None)
        key = (from_spikes, has, tuple(learned), at_grad, _aligned(grad_out))
        found = self.backwards.get(key)
        if found is None:
            chunk, even = chunk_of(self.time, CHUNK)
            ways = tuple(
                _way(p, self.block) if wanted else 0 for p, wanted in zip(self.found, learned, strict=True)
            )
            kernel: Any = triton_temporal_back.temporal_backward_kernel
            if from_spikes:
                kernel, has = triton_spikes.temporal_spikes_backward_kernel, has % 2
            number = sum(way << 2 * i for i, way in enumerate(ways))
            choices = (self.rule_code, has, number, chunk, even, self.block, NATIVE)
            launch = Launch(kernel, (self.programs,), choices, self.warps)
            found = self.backwards[key] = launch, ways, chunk
        launch, ways, chunk = found
        region = self.programs * self.block
        grads, partials, counters, groups = self.reduction(constants, learned, ways, self.where, region)
        scratch = (partials, counters, groups, region)
        known = (self.raws(constants), self.tables, self.where)
        common = (known, tuple(grads), scratch, self.time, self.span)
        if from_spikes:
            arguments: tuple[Any, ...] = (grad_out, spikes, state, g_current, g_state)
            launch(*arguments, *common, tuple(self.at_out), tuple(at_grad), tuple(self.at_out), self.numbers)
            return self.reduced(constants, grads, partials, learned, ways, self.size)
        at = self.at_current
        if at is None:
            current, at = self.readable(current)
        notes = torch.empty(
            (cdiv(self.time, chunk) - 1) * self.rule.states * self.total,
            dtype=torch.float32,
            device=self.device,
        )
        grad = grad_out if grad_out is not None else current
        arguments = (grad, grad_state, current, state, g_current, g_state, notes)
        launch(*arguments, *common, tuple(at), tuple(at_grad), tuple(self.at_out), self.numbers)
        return self.reduced(constants, grads, partials, learned, ways, self.size)

    def reduction(
        self,
        constants: Constants,
        learned: Sequence[bool],
        ways: tuple[int, ...],
        where: tuple[int, ...],
        region: int,
        spans: int = 1,
    ) -> tuple[list[Any], Tensor, Tensor, int]:
        """Return tensors for gradients, partial sums ``[spans, 4 * region]``, counters, and their groups."""
        raws = self.raws(constants)
        if True not in learned:
            return list(raws), self.tables[0].expand(spans, -1), self.tables[0], 0
        grads = [
            _place_of_grad(c, raw) if wanted else raw
            for c, raw, wanted in zip(constants, raws, learned, strict=True)
        ]
        partials = torch.empty((spans, 4 * region), dtype=torch.float32, device=self.device)
        groups = self.groups.get((ways, where))
        if groups is None:
            groups = self.groups[ways, where] = max(
                self.found[i].entries if way == SHARED else where[4 * i + 3] if way == EACH else 1
                for i, way in enumerate(ways)
            )
        return grads, partials, _counters(self, 4 * groups), groups

    def reduced(
        self,
        constants: Constants,
        grads: list[Any],
        partials: Tensor,
        learned: Sequence[bool],
        ways: Sequence[int],
        size: int,
    ) -> list[Any]:
        """Return the gradients of the constants; sum here what the lanes left."""
        if LEFT not in ways:
            return [g if wanted else None for g, wanted in zip(grads, learned, strict=True)]
        for i, (constant, place) in enumerate(zip(constants, self.found, strict=True)):
            if ways[i] == LEFT:
                lanes = partials.view(len(partials), 4, -1)[:, i, :size]
                total = lanes.reshape(-1, place.entries, place.run if place.entries > 1 else size).sum((0, 2))
                if isinstance(constant, Learned):
                    grads[i] = constant.pull(total.view(constant.raw.shape))
                elif isinstance(constant, Tensor):
                    grads[i] = total.view(constant.shape).to(constant.dtype)
        return [g if wanted else None for g, wanted in zip(grads, learned, strict=True)]


def _place_of_grad(constant: Tensor | Learned | float, raw: Tensor) -> Tensor:
    given = constant.grad if isinstance(constant, Learned) else None
    return torch.empty_like(raw) if given is None else given


def _shape(constant: Tensor | Learned | float) -> tuple[int, ...]:
    if isinstance(constant, Learned):
        return tuple(constant.raw.shape)
    return tuple(constant.shape) if isinstance(constant, Tensor) else ()


def _aligned(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr() % 16


def _block(total: int, places: Sequence[Place], dtype: torch.dtype) -> int:
    """Choose how many neurons a program takes: few for a small layer, so that all multiprocessors work."""
    largest = 128 * 4 // dtype.itemsize if NATIVE else 128
    block = 32
    while block < largest and total >= 2 * block * PROGRAMS:
        block *= 2
    for place in places:  # no more than share an entry, or than divide the entries
        unit = place.entries if place.run == 1 else place.run
        while block > 32 and unit % block:
            block //= 2
    return block


def _way(place: Place, block: int) -> int:
    if place.entries == 1 or place.run % block == 0:
        return SHARED
    return EACH if place.run == 1 and place.entries % block == 0 else LEFT


_kept_tables: dict[Any, Tensor] = {}


def _table(constant: Tensor | Learned | float, device: torch.device) -> Tensor:
    """Return how a constant is read: form, number, low, high, inward, inverse, speed."""
    if isinstance(constant, Learned):
        if constant.rows is not None:
            return constant.rows
        row = (float(constant.form), 0.0, *map(float, constant[2:6]), 1.0)
    elif isinstance(constant, Tensor):
        row = (float(Form.VALUE), 0.0, -math.inf, math.inf, 1.0, 0.0, 1.0)
    else:
        row = (0.0, float(constant), -math.inf, math.inf, 1.0, 0.0, 1.0)
    kept = _kept_tables.get((row, device))
    if kept is None:
        host = torch.tensor(row, dtype=torch.float32)
        if not _is_recording(device):
            kept = host.to(device)
            if len(_kept_tables) < 4096:  # none is ever let go of: a recorded graph may still read it
                _kept_tables[row, device] = kept
        else:
            kept = torch.empty(len(row), dtype=torch.float32, device=device)
            for i, number in enumerate(row):
                kept[i].fill_(number)
    return kept


_pools: dict[torch.device, list[Any]] = {}
POOL = 1 << 18


def _counters(plan: Plan, size: int) -> Tensor:
    """Return counters at zero that no other kernel uses at the same time: of the stream, or of the graph."""
    device = plan.device
    if device.type != "cuda":
        return _zeros(device, size)
    if _is_recording(device):
        return _zeros(device, size)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    found = plan.counters.get(stream)
    if found is None or found.numel() < size:
        found = plan.counters[stream] = _zeros(device, size)
    return found


def _zeros(device: torch.device, size: int) -> Tensor:
    """Take zeros from a pool that was made outside of any recorded graph; a kernel leaves them zero."""
    pool = _pools.get(device)
    if pool is None and not _is_recording(device):
        pool = _pools[device] = [torch.zeros(POOL, dtype=torch.int32, device=device), 0]
    if pool is None or pool[1] + size > POOL:
        return torch.zeros(size, dtype=torch.int32, device=device)
    pool[1] += size
    taken: Tensor = pool[0][pool[1] - size : pool[1]]
    return taken
