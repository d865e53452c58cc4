"""A neuron's constants, fixed or learned; learned ones stay in their range by construction."""

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, Literal, Self, overload

import torch
from torch import Tensor, nn

from ultralif.errors import InputError, check_flag
from ultralif.functional import Constant
from ultralif.ops.constants import Form, Learned

__all__ = ["Attribute", "Parametrized", "are_limits", "fits", "short"]


class Parametrized(nn.Module):
    """A module with constants: numbers, tensors, or learned parameters."""

    def __init__(self) -> None:
        super().__init__()
        self._declared: dict[str, tuple[float, float]] = {}  # the exclusive bounds of each
        self._numbers: dict[str, float] = {}
        self._learned: dict[str, tuple[Form, tuple[float, float] | None]] = {}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Add the mode and fixed numbers to a ``state_dict``'s metadata, which `torch.save` stores."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", {}).get(prefix[:-1])
        if metadata is not None:
            metadata["fixed"] = dict(self._numbers)
            metadata["mode"] = getattr(self, "mode", None)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any, **options: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest, **options)
        for name, value in local_metadata.get("fixed", {}).items():
            if name in self._numbers:
                self.assign(name, value)
        if local_metadata.get("mode") in getattr(self, "modes", ()):
            setattr(self, "mode", local_metadata["mode"])  # noqa: B010 - only neurons have modes

    def declare(
        self,
        name: str,
        value: Constant,
        form: Form,
        *,
        learn: bool,
        lower: float = 0.0,
        upper: float = math.inf,
        bounds: tuple[float, float] | None = None,
        shape: Sequence[int] | None = None,
    ) -> None:
        """Register the constant ``name``, as the parameter ``<form>_<name>`` if it is learned.

        Args:
            name: the name under which `constant` returns it.
            value: its (initial) value: a number, or a tensor that broadcasts against the features.
            form: the form in which a learned constant is stored.
            learn: make it an `nn.Parameter`.
            lower: exclusive lower limit of a fixed constant.
            upper: upper limit, exclusive for a learned constant, inclusive for a fixed one.
            bounds: clamp a learned constant to this range. At a bound, gradients that would push it outside
                are dropped.
            shape: expand a learned number to this shape, with one value per entry.
        """
        _check_type(name, value)
        check_flag(f"learn_{_short(name)}", learn)
        self._declared[name] = lower, upper
        if not learn:
            _check_range(name, value, lower, upper, closed="upper")
            if isinstance(value, Tensor):
                self.register_buffer(f"fixed_{name}", value.detach().clone())
            else:
                self._numbers[name] = float(value)
            return
        if bounds is not None and not (are_limits(bounds) and bounds[0] < bounds[1]):
            raise InputError(
                f"{_short(name)}_range must be two increasing positive numbers, got {bounds}; pass "
                "(lowest, highest)"
            )
        low, high = bounds or (0.0, min(upper, form.upper))
        also = f", another {_short(name)}_range, or learn_{_short(name)}=False" if bounds else ""
        _check_range(f"a learned {name}", value, low, high, closed="both" if bounds else "", also=also)
        raw = form.to_raw(torch.as_tensor(value, dtype=torch.get_default_dtype()).detach())
        if shape is not None:
            if not fits(raw.shape, shape):
                raise InputError(
                    f"{name} has shape {tuple(raw.shape)}, but parameter_shape is {tuple(shape)}; pass a "
                    "number, or leave parameter_shape out"
                )
            raw = raw.expand(tuple(shape))
        self.register_parameter(f"{form.prefix}_{name}", nn.Parameter(raw.clone()))
        self._learned[name] = (form, bounds)

    def keep(self, name: str, value: Constant) -> None:
        """Store an argument that is not learned: a finite number as an attribute, or a tensor as a buffer."""
        _check_type(name, value)
        if not math.isfinite(value if not isinstance(value, Tensor) else float(value.sum())):
            raise InputError(f"{name} must be finite, got {value}; pass a number, or leave {name} out")
        if isinstance(value, Tensor):
            self.register_buffer(name, value.detach().clone())
        else:
            setattr(self, name, value)

    def declared(self) -> tuple[str, ...]:
        """Return the names of the constants."""
        return tuple(self._declared)

    def learned(self, name: str) -> tuple[Form, tuple[float, float] | None, nn.Parameter] | None:
        """Return the form, bounds and raw parameter of a learned constant; None if it is fixed."""
        if name not in self._learned:
            return None
        form, bounds = self._learned[name]
        return form, bounds, getattr(self, f"{form.prefix}_{name}")

    def shapes(self) -> Iterator[tuple[str, torch.Size]]:
        """Yield the name and the shape of every constant that is a tensor."""
        for name, (form, _) in self._learned.items():
            yield name, getattr(self, f"{form.prefix}_{name}").shape
        for name, buffer in self.named_buffers(recurse=False):
            yield name.removeprefix("fixed_"), buffer.shape

    def constant(self, name: str) -> Constant:
        """Return the current value of a constant: a number if it is a fixed number, else a tensor."""
        if name in self._numbers:
            return self._numbers[name]
        if name not in self._learned:
            fixed: Tensor = getattr(self, f"fixed_{name}")
            return fixed
        return self._decoder(name).value()

    def given(self, name: str) -> Constant | Learned:
        """Return a constant in the form that operators expect; they decode learned constants themselves."""
        return self._decoder(name) if name in self._learned else self.constant(name)

    def _decoder(self, name: str) -> Learned:
        form, bounds = self._learned[name]
        low, high = bounds or (-math.inf, math.inf)
        return Learned(getattr(self, f"{form.prefix}_{name}"), form, low, high)

    def constants(self) -> dict[str, float]:
        """Return the current value of every constant, decoded and clamped, with the mean of each tensor.

        Example:
            >>> from ultralif.nn import LIF
            >>> LIF(leak=0.8).constants()
            {'threshold': 0.5, 'leak': 0.8, 'surrogate_slope': 2.0}
        """
        values = {name: self.constant(name) for name in self._declared}
        return {
            name: float(value.detach().double().mean()) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }

    def shown(self, name: str) -> str:
        """Return a constant formatted for ``repr``, such as ``eps=0.2 learned``."""
        return f"{name}={short(self.constant(name))}" + (" learned" if name in self._learned else "")

    @torch.no_grad()
    def assign(self, name: str, value: Constant) -> None:
        """Set a constant's value; if it is learned, training continues from there.

        Args:
            name: a declared constant.
            value: a number, or a tensor that broadcasts to the constant's shape.
        """
        self.__dict__.pop("_ready", None)  # drop calls prepared with the old value
        if name not in self._declared:
            raise InputError(
                f"{type(self).__name__} has no constant {name!r}; it has {', '.join(self._declared)}"
            )
        _check_type(name, value)
        if name in self._learned:
            form, bounds = self._learned[name]
            low, high = bounds or (0.0, min(self._declared[name][1], form.upper))
            _check_range(name, value, low, high, closed="both" if bounds else "")
            raw: Tensor = getattr(self, f"{form.prefix}_{name}")
            raw.copy_(form.to_raw(torch.as_tensor(value, dtype=raw.dtype)))
            return
        _check_range(name, value, *self._declared[name], closed="upper")
        if name in self._numbers:
            self._numbers[name] = float(value)
        else:
            getattr(self, f"fixed_{name}").copy_(torch.as_tensor(value))


class Attribute:
    """A constant as an attribute: reading returns its current value, setting calls `Parametrized.assign`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, module: None, owner: type) -> Self: ...
    @overload
    def __get__(self, module: Parametrized, owner: type) -> Constant: ...
    def __get__(self, module: Parametrized | None, owner: type) -> Self | Constant:
        return self if module is None else module.constant(self.name)

    def __set__(self, module: Parametrized, value: Constant) -> None:
        module.assign(self.name, value)


def short(value: Constant | str | bool) -> str:
    """Format a value for ``repr``; a tensor is shown by its mean."""
    if isinstance(value, Tensor):
        if value.is_meta:
            return "unknown"
        shape = f" mean of {tuple(value.shape)}" if value.dim() else ""
        return f"{float(value.detach().double().mean()):g}{shape}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def are_limits(limits: object) -> bool:
    """Return whether limits are two positive finite numbers, the first not above the second."""
    return (
        isinstance(limits, Sequence)
        and len(limits) == 2
        and all(isinstance(limit, Real) for limit in limits)
        and 0.0 < limits[0] <= limits[1] < math.inf
    )


def fits(shape: Sequence[int], features: Sequence[int]) -> bool:
    """Return whether a shape broadcasts against the features from the right without enlarging them.

    Example:
        >>> fits((3, 1), (3, 64)), fits((64,), (1,)), fits((2, 64), (64,))
        (True, False, False)
    """
    aligned = zip(reversed(shape), reversed(features), strict=False)
    return len(shape) <= len(features) and all(size in (1, wanted) for size, wanted in aligned)


def _short(name: str) -> str:
    """Return a constant's name as used in ``learn_slope``."""
    return name.removeprefix("surrogate_")


def _check_type(name: str, value: object) -> None:
    if not isinstance(value, Real | Tensor):
        raise TypeError(f"{name} must be a number or a tensor, got {value!r}; use torch.tensor for several")


def _check_range(
    name: str,
    value: Constant,
    low: float,
    high: float,
    *,
    closed: Literal["", "upper", "both"],
    also: str = "",
) -> None:
    """Raise an InputError if any entry of a constant is outside its range, or infinite."""
    if isinstance(value, Tensor) and value.is_meta:
        return  # under torch.device("meta") there are no values yet
    if isinstance(value, Tensor) and not value.numel():
        raise InputError(f"{name} is an empty tensor; pass a number, or one value for each neuron")
    least, most = (x.item() for x in value.aminmax()) if isinstance(value, Tensor) else (value, value)
    above = low < least or (closed == "both" and low == least)
    below = most < high or (bool(closed) and most == high < math.inf)
    if not (above and below):
        brackets = "[" if closed == "both" else "(", "]" if closed and high < math.inf else ")"
        shown = value if not isinstance(value, Tensor) else value.tolist()
        raise InputError(
            f"{name} must be in {brackets[0]}{low:g}, {high:g}{brackets[1]}, got {shown}; "
            f"pass a value inside that range{also}"
        )
