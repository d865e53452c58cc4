"""What all spiking neurons share: constants, modes, three ways to call, clear errors."""

import inspect
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypedDict, TypeVar, get_args

import torch
from torch import Tensor

from ultralif.errors import InputError, check_choice
from ultralif.functional import Constant, Mode
from ultralif.nn.parameters import LOGIT, Form, Parametrized, fits
from ultralif.ops import Backend

__all__ = ["Neuron", "NeuronOptions"]

S = TypeVar("S", bound=tuple[Tensor, ...])


class NeuronOptions(TypedDict, total=False):
    """The keyword arguments of every neuron; `Neuron` describes them."""

    threshold: Constant
    v_reset: Constant
    learn_threshold: bool | None
    parameter_shape: Sequence[int] | None
    batch_first: bool
    check_finite: bool
    backend: Backend


class Neuron(Parametrized, Generic[S]):
    """A layer of spiking neurons over ``[T, B, *features]`` that keeps nothing between calls.

    Args:
        threshold: a spike is ``V > threshold``.
        v_reset: the membrane after a spike.
        learn_threshold: learn the threshold, as a sigmoid. None: as the class does.
        parameter_shape: give each learned constant this shape (``(64,)``: one per neuron); without it
            one number serves the layer.
        batch_first: take and return ``[B, T, *features]``.
        check_finite: raise an InputError if a current is NaN or infinite.
        backend: ``auto`` integrates by the fastest kernel, ``reference`` by the definition.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("hard",)
    """The modes of this neuron; it starts in the first."""

    learns: ClassVar[frozenset[str]] = frozenset()
    """The constants that are learned unless a ``learn_*`` argument says otherwise."""

    state_type: type[S]

    def __init__(
        self,
        *,
        threshold: Constant = 0.5,
        v_reset: Constant = 0.0,
        learn_threshold: bool | None = None,
        parameter_shape: Sequence[int] | None = None,
        batch_first: bool = False,
        check_finite: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_choice("backend", backend, get_args(Backend))
        if not math.isfinite(v_reset if not isinstance(v_reset, Tensor) else float(v_reset.sum())):
            raise InputError(f"v_reset must be finite, got {v_reset}; choose a membrane below the threshold")
        self.v_reset: Constant
        if isinstance(v_reset, Tensor):
            self.register_buffer("v_reset", v_reset.detach().clone())
        else:
            self.v_reset = v_reset
        if parameter_shape is not None and not isinstance(parameter_shape, Sequence):
            raise InputError(f"parameter_shape must be sizes, such as (64,), got {parameter_shape!r}")
        self.batch_first = batch_first
        self.check_finite = check_finite
        self.backend: Backend = backend
        self._shape = parameter_shape
        self._mode: Mode = self.modes[0]
        self.learnable("threshold", threshold, LOGIT, learn_threshold)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a class the signature that its ``**options`` amount to."""
        super().__init_subclass__(**kwargs)
        merged: dict[str, inspect.Parameter] = {}
        for base in reversed(cls.__mro__[: cls.__mro__.index(Neuron) + 1]):
            if "__init__" in vars(base):
                merged |= inspect.signature(vars(base)["__init__"]).parameters
        options = [p for p in merged.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
        cls.__signature__ = inspect.Signature(options)

    __signature__: ClassVar[inspect.Signature]

    def learnable(
        self, name: str, value: Constant, form: Form, learn: bool | None = None, **limits: Any
    ) -> None:
        """Give the neuron a constant, a number or a parameter that is learned.

        Args:
            name: `constant` returns it by this name, and the step takes it by it.
            value: where it begins.
            form: ``LOG`` keeps a learned one positive, ``LOGIT`` between 0 and 1.
            learn: learn it. None: if the class lists it in ``learns``.
            limits: ``upper``, ``bounds``: see `ultralif.nn.parameters`.
        """
        learn = name in self.learns if learn is None else learn
        self.declare(name, value, form, learn=learn, shape=self._shape, **limits)

    @property
    def threshold(self) -> Constant:
        """The spike threshold now."""
        return self.constant("threshold")

    @property
    def leak(self) -> Constant:
        """The decay factor now, for a neuron that has one."""
        return self.constant("leak")

    @property
    def eps(self) -> Constant:
        """The temperature now, for a neuron that has one."""
        return self.constant("eps")

    @property
    def mode(self) -> Mode:
        """How the neuron computes: ``soft``, ``hard`` or ``tropical``; see `ultralif.set_mode`."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in self.modes:
            raise InputError(
                f"mode must be one of {', '.join(self.modes)} for {type(self).__name__}, got {mode!r}; "
                "ultralif.set_mode gives hard to neurons that lack a mode"
            )
        self._mode = mode

    def forward(self, current: Tensor) -> Tensor:
        """Return the spikes for a current ``[T, B, *features]``, from rest."""
        return self.run(current)[0]

    def rate(self, current: Tensor) -> Tensor:
        """Return the mean spike over time, ``[B, *features]``, from rest."""
        if self._forward_hooks or self._forward_pre_hooks:  # whoever watches the module sees its spikes
            spikes: Tensor = self(current)
            return spikes.mean(1 if self.batch_first else 0)
        return self._scan_rate(self._time_major(current, None))

    def run(self, current: Tensor, state: S | None = None) -> tuple[Tensor, S]:
        """Return the spikes for ``[T, B, *features]`` and the state to go on from."""
        spikes, state = self._scan(self._time_major(current, state), state)
        return (spikes.transpose(0, 1) if self.batch_first else spikes), state

    def _time_major(self, current: Tensor, state: S | None) -> Tensor:
        """Check current and state, and return the current with time first."""
        self._check_current(current, ("T", "B"))
        if self.batch_first:
            current = current.transpose(0, 1)
        if current.shape[0] == 0:
            raise InputError(
                f"current has no time steps, its [T, B, *features] are {tuple(current.shape)}; "
                "pass at least one"
            )
        self._check_shapes(state, current.shape[1:])
        return current

    def step(self, x: Tensor, state: S | None = None) -> tuple[Tensor, S]:
        """Return the spike for one time step ``[B, *features]`` and the state to go on from."""
        self._check_current(x, ("B",))
        self._check_shapes(state, x.shape)
        spikes, state = self._scan(x.unsqueeze(0), state)
        return spikes[0], state

    def _scan(self, current: Tensor, state: S | None) -> tuple[Tensor, S]:
        """Integrate ``[T, B, *features]``: what a neuron is, and all that a new one has to define."""
        raise NotImplementedError

    def _scan_rate(self, current: Tensor) -> Tensor:
        """Integrate to the mean over time; a kernel does it without keeping the spikes."""
        return self._scan(current, None)[0].mean(0)

    def _check_current(self, current: Tensor, leading: tuple[str, ...]) -> None:
        if not isinstance(current, Tensor) or not current.is_floating_point():
            kind = current.dtype if isinstance(current, Tensor) else type(current).__name__
            raise TypeError(f"current must be a floating-point tensor, got {kind}; call .float() on it")
        if current.dim() <= len(leading):
            raise InputError(
                f"current must be [{', '.join(leading)}, *features], got shape "
                f"{tuple(current.shape)}; add the missing axes with unsqueeze"
            )
        if self.check_finite and not bool(torch.isfinite(current).all()):
            bad = int((~torch.isfinite(current)).sum())
            raise InputError(
                f"current holds {bad} NaN or infinite values among {current.numel()}; look for what "
                "diverged before this layer, or pass check_finite=False"
            )

    def _check_shapes(self, state: S | None, shape: torch.Size) -> None:
        """Compare the constants and the state with one step of the current, ``[B, *features]``."""
        for name, size in self.shapes():
            if not fits(size, shape[1:]):
                raise InputError(
                    f"{name} has shape {tuple(size)}, which does not broadcast against features "
                    f"{tuple(shape[1:])}; give the neuron a parameter_shape or a tensor that does"
                )
        if state is None:
            return
        if not isinstance(state, self.state_type):
            raise TypeError(
                f"state must be the {self.state_type.__name__} that run or step returned, got "
                f"{type(state).__name__}; pass None to start at rest"
            )
        for tensor in state:
            if tensor.shape != shape:
                raise InputError(
                    f"state has shape {tuple(tensor.shape)}, but one step of the current has "
                    f"{tuple(shape)}; pass state=None to start at rest"
                )

    def extra_repr(self) -> str:
        """Show the constants and the mode."""
        shown = [f"{name}={value:g}" for name, value in self._numbers.items()]
        shown += [f"{name}={'learned' if name in self._learned else 'fixed'}" for name, _ in self.shapes()]
        return ", ".join([*sorted(shown), f"mode={self._mode}"])
