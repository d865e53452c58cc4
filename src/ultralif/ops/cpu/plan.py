"""Call the C kernels on a layer of any layout, viewed as ``[T, B, F]``.

A dense layout with time outermost is only viewed in another shape; all others are copied.
"""

import ctypes
import math
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops.constants import Learned, Value, tensors_of, value_of
from ultralif.ops.cpu import build
from ultralif.ops.layout import axes_by_memory, dense_strides, find_place, find_steps, like_strides, shape_of
from ultralif.ops.rule import CHOICES, NUMBERS, Constants, Curve, Membrane, Reset, Rule

__all__ = ["CallPlan", "find_plan", "stored", "takes"]

_TYPES = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 2}
"""The current's types by their number in kernels.c: 0 for the membrane's type, others for 16-bit types."""
_Strides = ctypes.c_int64 * 3
_Pointers = ctypes.c_void_p * 14


class _Constant(ctypes.Structure):
    """The structure `Constant` of constants.h."""

    _fields_ = (
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("length", ctypes.c_int64),
        ("number", ctypes.c_double),
        *((name, ctypes.c_int32) for name in ("form", "inverse")),
    )


class _Call(ctypes.Structure):
    """The structure `Rule` of kernels.c; its last fields come from rule.h."""

    _fields_ = (
        ("parallel", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("time", "batch", "features")),
        ("current", _Strides),
        ("grad", _Strides),
        ("constants", _Constant * 4),
        *((name, ctypes.c_int32) for name in ("type", "threads")),
        ("ring", ctypes.c_int64),
        *((name, ctypes.c_double) for name in NUMBERS),
        *((name, ctypes.c_int32) for name in CHOICES),
    )


def takes(rule: Rule) -> bool:
    """Return whether the kernels support a rule: any rule except soft spikes of a maximum."""
    plain = rule.curve == Curve.SIGMOID and not (rule.clipped or rule.adapt)
    if rule.membrane == Membrane.ADD:
        has_curve = rule.curve != Curve.SUPERSPIKE or not rule.soft
        return not rule.ring and has_curve and (plain or rule.reset != Reset.SATURATE)
    return (
        plain
        and not (rule.ring and rule.reset == Reset.SATURATE)
        and not (rule.membrane == Membrane.MAX and rule.soft)
    )


def stored(x: Tensor) -> Tensor:
    """Return a tensor with materialized memory, or raise an error if the kernels cannot read it."""
    if x.dtype not in _TYPES or x.layout is not torch.strided:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _TYPES)
        raise TypeError(
            f"neurons support only dense tensors of {known}, got {x.dtype} ({x.layout}); "
            "convert with .to_dense() or .float()"
        )
    if x._is_zerotensor():  # zeros that PyTorch did not materialize
        return torch.zeros(x.shape, dtype=x.dtype)
    return x.resolve_neg()


PLANS = 512  # maximum number of cached plans
_plans: dict[Hashable, "CallPlan"] = {}


def find_plan(current: Tensor, constants: Constants, rule: Rule) -> "CallPlan":
    """Return the plan for a call; the first call creates it."""
    current = stored(current)
    specs = [
        (c.raw.shape, *c[1:5]) if isinstance(c, Learned) else c.shape if isinstance(c, Tensor) else c
        for c in constants
    ]
    key = (current.shape, current.stride(), current.dtype, rule, *specs)
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= PLANS:
            _plans.clear()
        plan = _plans[key] = CallPlan(current, constants, rule)
    return plan


class CallPlan:
    """A layer as ``[T, B, F]``: neurons in memory order, and constants shared by consecutive neurons."""

    def __init__(self, current: Tensor, constants: Constants, rule: Rule) -> None:
        shape, strides = tuple(current.shape), current.stride()
        self.rule, self.shape, self.dtype = rule, shape, current.dtype
        self.state_shape, self.state_dtype = (rule.states, *shape[1:]), compute_dtype(current.dtype)
        shapes = [shape_of(c) if math.prod(shape_of(c)) > 1 else () for c in constants]
        self._find_size(strides, shapes)
        self.expands = [self.spread and math.prod(size) > 1 for size in shapes]
        """For each constant, whether it is expanded over all features (no run of neurons shares an entry)."""
        pairs = list(zip(shapes, self.expands, strict=True))
        lengths = [math.prod(shape[2:] if expands else size) for size, expands in pairs]
        self.longest = max(lengths)
        self.call = _Call(
            build.parallel(),
            *self.size,
            (0, 0, 0),
            (0, 0, 0),
            tuple(map(_described, constants, lengths, self.expands)),
            _TYPES[current.dtype],
            1,
            rule.ring,
            *(getattr(rule, name) for name in (*NUMBERS, *CHOICES)),
        )
        library = build.library()
        assert library is not None, "the caller asked for a kernel"  # noqa: S101
        double = current.dtype == torch.float64
        self.function = library.integrate_double if double else library.integrate_float

    def _find_size(self, current: tuple[int, ...], shapes: Sequence[tuple[int, ...]]) -> None:
        """Choose batch and features, and whether constants must be expanded over all features."""
        shape, ring = self.shape, self.rule.ring
        self.strides = like_strides(shape, current)
        order = axes_by_memory(shape, self.strides)
        total = math.prod(shape[1:])
        places = [find_place(size, shape, order) for size in shapes]
        periods = {place.run * place.entries for place in places if place and place.entries > 1}
        ring_last = ring <= 1 or order[-1] == len(shape) - 1
        self.spread = None in places or len(periods) > 1 or not ring_last
        if self.spread:
            order = tuple(axis for axis in range(1, len(shape)) if shape[axis] != 1)
            features = math.prod(shape[2:])
        else:
            at = find_steps(shape, current, order)
            features = max([*periods, ring]) if periods or ring else at.size if at else total
        self.order, self.size = order, (shape[0], total // features, features)
        step = dense_strides(shape, order)
        self.dense = (total, *step)
        """The strides of a sequence, or of states, whose neurons are adjacent in memory order."""
        self._dense = (total, features, 1)
        self.is_like = self.dense == self.strides or shape[0] == 1
        """Whether a sequence in memory order has the current's layout."""
        self.seen: dict[tuple[int, ...], tuple[int, ...]] = {}  # cached results of `_strides`

    def _strides(self, strides: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the three strides of a sequence; None if three cannot describe it."""
        at, (_, batch, features) = find_steps(self.shape, strides, self.order), self.size
        if at is None or at.size not in (batch * features, features):
            return None
        return at.time, at.inner * features if at.size == batch * features else at.outer, at.inner

    def _readable(self, *sequences: Tensor) -> list[tuple[Tensor, tuple[int, ...]]]:
        """Return sequences with their three strides, copying any that three strides cannot describe."""
        found = []
        for x in sequences:
            if x.layout is not torch.strided or x.is_neg() or x._is_zerotensor():
                x = stored(x)
            strides = x.stride()
            at = self.seen.get(strides)
            if at is None:
                at = self.seen[strides] = self._strides(strides) or ()
            if not at:
                x, at = torch.empty_strided(self.shape, self.dense, dtype=x.dtype).copy_(x), self._dense
            found.append((x, at))
        return found

    def _dense_step(self, x: Tensor) -> Tensor:
        """Return tensors of one step, ``[S, B, *features]``, in memory order."""
        x = stored(x.to(self.state_dtype))
        if x.stride() == self.dense:
            return x
        return torch.empty_strided(x.shape, self.dense, dtype=x.dtype).copy_(x)

    def _like_current(self, x: Tensor) -> Tensor:
        """Return a copy of a sequence in memory order with the current's layout."""
        return torch.empty_strided(self.shape, self.strides, dtype=x.dtype).copy_(x)

    def _run(
        self, call: _Call, x: Tensor, start: Tensor | None, constants: Constants, *others: Tensor | None
    ) -> None:
        """Run the kernel, passing the constants as contiguous tensors or as numbers in the call."""
        tensors: list[Tensor | None] = [x, start]
        for tensor, constant, expands in zip(tensors_of(constants), constants, self.expands, strict=True):
            if expands:
                tensor = torch.as_tensor(value_of(constant)).expand(self.shape[2:])
            if tensor is not None and (tensor.is_neg() or tensor._is_zerotensor()):
                tensor = stored(tensor)
            tensors.append(None if tensor is None else tensor.contiguous())
        tensors += others
        pointers = _Pointers()
        for i, tensor in enumerate(tensors):
            if tensor is not None and tensor.numel():
                pointers[i] = tensor.data_ptr()
        call.threads = torch.get_num_threads()
        if self.function(ctypes.byref(call), pointers):
            raise MemoryError(f"out of memory for a layer of {self.size[2]} neurons; reduce the batch size")

    def forward(
        self, current: Tensor, state: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor, None]:
        """Return the spikes (or their mean), the last state, and nothing for the backward pass."""
        call = _Call.from_buffer_copy(self.call)
        ((x, call.current[:]),) = self._readable(current)
        start = None if state is None else self._dense_step(state)
        shape, strides = (self.shape[1:], self.dense[1:]) if self.rule.rate else (self.shape, self.dense)
        out = torch.empty_strided(shape, strides, dtype=self.dtype)
        last = torch.empty_strided(self.state_shape, self.dense, dtype=self.state_dtype)
        self._run(call, x, start, constants, out, last)
        return (out if self.rule.rate or self.is_like else self._like_current(out)), last, None

    def backward(
        self,
        grad_out: Tensor | None,
        grad_state: Tensor | None,
        current: Tensor,
        state: Tensor | None,
        constants: Constants,
        learned: Sequence[bool],
        kept: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
        """Return the gradients for current, state and constants.

        ``kept`` holds the spikes, if the membrane can be computed from them.
        """
        call, dtype = _Call.from_buffer_copy(self.call), self.state_dtype
        sequences = [current]
        if grad_out is not None and self.rule.rate:
            grad_out = stored(grad_out.to(self.dtype))
            if grad_out.stride() != self.dense[1:]:
                dense = torch.empty_strided(self.shape[1:], self.dense[1:], dtype=self.dtype)
                grad_out = dense.copy_(grad_out)
            call.grad[:] = 0, *self._dense[1:]
        elif grad_out is not None:
            sequences.append(grad_out.to(self.dtype))
        spikes = kept[0] if grad_state is None else None
        if spikes is not None:
            sequences.append(spikes)
        (x, call.current[:]), *others = self._readable(*sequences)
        if spikes is not None:
            spikes, at = others.pop()
            spikes = spikes if at == self._dense else None
        if others:
            grad_out, call.grad[:] = others[0]
        start = None if state is None else self._dense_step(state)
        end = None if grad_state is None else self._dense_step(grad_state)
        g_current = torch.empty_strided(self.shape, self.dense, dtype=self.dtype)
        g_state = None if start is None else torch.empty_strided(start.shape, self.dense, dtype=dtype)
        sums = torch.empty((4, self.longest), dtype=dtype) if True in learned else None
        self._run(call, x, start, constants, None, None, grad_out, end, spikes, g_current, g_state, sums)
        grads: list[Tensor | None] = [None] * 4
        for i, constant in enumerate(constants):
            if learned[i] and sums is not None:
                grads[i] = self._gradient(constant, sums[i], self.expands[i])
        return (g_current if self.is_like else self._like_current(g_current)), g_state, grads

    def _gradient(self, constant: Value, sums: Tensor, expands: bool) -> Tensor:
        """Return a constant's gradient in newly allocated memory."""
        shape = shape_of(constant)
        if not expands:
            return sums[: math.prod(shape)].view(shape).clone()
        total = sums[: math.prod(self.shape[2:])].view(self.shape[2:]).sum_to_size(shape).clone()
        return constant.pull(total) if isinstance(constant, Learned) else total


def _described(constant: Value, length: int, expands: bool) -> tuple[float, ...]:
    """Return the fields of a `_Constant`."""
    if isinstance(constant, Learned) and not expands:
        _, form, low, high, inverse, *_ = constant
        return low, high, length, 0.0, form, inverse
    return (0.0, 0.0, length) if isinstance(constant, Tensor | Learned) else (0.0, 0.0, 1, constant)
