"""`Neuron`, the base class of all spiking neurons: constants, modes, and three ways to call it."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Literal, Never, Self, TypedDict, TypeVar, get_args, overload

import torch
from torch import Tensor

from ultralif.errors import InputError, check_choice, check_flag
from ultralif.functional import AdaptiveState, Constant, Mode, Reset, leaky_integrator
from ultralif.nn.arguments import merged_signature, unexpected_values, unknown_argument
from ultralif.nn.checks import check_constants, check_current, check_shape, check_state, check_steps
from ultralif.nn.parameters import Attribute, Parametrized, short
from ultralif.nn.state import State, with_current
from ultralif.ops import Backend
from ultralif.ops.autograd import is_plain
from ultralif.ops.constants import LOGIT, Form
from ultralif.ops.operators import is_tracing, prepare

__all__ = ["FIRING", "Neuron", "NeuronOptions"]

FIRING = ("v_reset", "mode", "reset", "detach_reset", "delayed_reset")
"""The spike and reset options that every neuron in this package accepts."""

S = TypeVar("S", bound=tuple[Tensor, ...])


class NeuronOptions(TypedDict, total=False):
    """The keyword arguments of every neuron; `Neuron` describes them."""

    threshold: Constant
    v_reset: Constant
    mode: Mode | None
    reset: Reset
    detach_reset: bool | None
    delayed_reset: bool
    synapse: Constant | None
    learn_threshold: bool | None
    parameter_shape: Sequence[int] | None
    batch_first: bool
    backend: Backend


class Neuron(Parametrized, Generic[S]):
    """A layer of spiking neurons over ``[T, B, *features]`` that keeps no state between calls.

    To write your own neuron, subclass `ultralif.Stepped`.

    Args:
        threshold: a spike is ``V > threshold``. Any finite number; a learned one is a sigmoid in (0, 1).
        v_reset: the membrane after a spike, for ``reset="zero"``.
        mode: ``soft``, ``hard`` or ``tropical``, if the neuron supports it. None: its first mode.
        reset: the membrane after a spike is ``v_reset`` (``zero``), V - threshold (``subtract``), or V
            (``none``); ``saturate``, for neurons with ``v_sat``, is the soft minimum of V and ``v_sat``.
        detach_reset: do not differentiate the reset with respect to the spike. None: detach binary spikes.
        delayed_reset: reset by the previous step's spike, before firing.
        synapse: the decay factor in (0, 1) of a synaptic current ``i = synapse * i + current``, which then
            drives the membrane instead of the current. None: no synaptic current.
        learn_threshold: learn the threshold, as a sigmoid. None: the class's default.
        parameter_shape: the shape of each learned constant, such as ``(64,)`` for one value per neuron.
            None: one number for the whole layer.
        batch_first: accept and return ``[B, T, *features]``.
        backend: ``auto`` uses the fastest kernel, ``reference`` the PyTorch definition.

    Example:
        >>> import torch
        >>> from ultralif.nn import UltraLIF
        >>> neuron, state = UltraLIF(), None
        >>> for x in torch.rand(10, 2, 64):
        ...     spike, state = neuron.step(x, state)
        >>> spike.shape
        torch.Size([2, 64])
    """

    modes: ClassVar[tuple[Mode, ...]] = ("hard",)
    """The modes this neuron supports; it starts in the first one."""

    learns: ClassVar[frozenset[str]] = frozenset()
    """The constants that are learned unless a ``learn_*`` argument says otherwise."""

    lowest_threshold: ClassVar[float] = -math.inf
    """Lower limit of a fixed threshold, exclusive."""

    state_type: type[S]
    """The type of the state that `run` and `step` return."""

    operator: ClassVar[Callable[..., tuple[Tensor, Any]]]
    """A function from `ultralif.ops` that accepts the declared constants and the choices by name."""

    choices: ClassVar[tuple[str, ...]] = ("v_reset",)
    """The attributes passed to the operator in addition to the constants."""

    __signature__: ClassVar[inspect.Signature]

    def __new__(cls, *values: Any, **options: Any) -> Self:
        """Reject positional arguments with an error that names the class."""
        error = unexpected_values(cls.__name__, values, cls.__signature__)
        if error is not None:
            raise error
        return super().__new__(cls)

    def __init__(
        self,
        *,
        threshold: Constant = 0.5,
        v_reset: Constant = 0.0,
        mode: Mode | None = None,
        reset: Reset = "zero",
        detach_reset: bool | None = None,
        delayed_reset: bool = False,
        synapse: Constant | None = None,
        learn_threshold: bool | None = None,
        parameter_shape: Sequence[int] | None = None,
        batch_first: bool = False,
        backend: Backend = "auto",
        **unknown: Never,
    ) -> None:
        if unknown:
            raise unknown_argument(type(self).__name__, next(iter(unknown)), self.__signature__.parameters)
        check_choice("backend", backend, get_args(Backend))
        check_choice("reset", reset, get_args(Reset) if "v_sat" in self.choices else get_args(Reset)[:-1])
        check_shape("parameter_shape", parameter_shape)
        if detach_reset is not None and not isinstance(detach_reset, bool):
            raise TypeError(f"detach_reset must be True, False or None, got {detach_reset!r}")
        check_flag("delayed_reset", delayed_reset)
        check_flag("batch_first", batch_first)
        super().__init__()
        self.keep("v_reset", v_reset)
        self.reset: Reset = reset
        self.detach_reset = detach_reset
        self.delayed_reset = delayed_reset
        arguments = self.__signature__.parameters
        for name in {"reset", "detach_reset", "delayed_reset"}.intersection(arguments).difference(
            self.choices
        ):
            if getattr(self, name) != arguments[name].default:
                raise InputError(f"{type(self).__name__} ignores {name}; add it to choices")
        self.batch_first = batch_first
        self.backend: Backend = backend
        self._shape = parameter_shape
        self.mode = self.modes[0] if mode is None else mode
        self.learnable("threshold", threshold, LOGIT, learn_threshold, lower=self.lowest_threshold)
        if synapse is not None:
            self.learnable("synapse", synapse, LOGIT, upper=1.0)
            self.state_type = with_current(self.state_type)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Replace ``**options`` in the signature with all arguments and the class's defaults."""
        super().__init_subclass__(**kwargs)
        defaults: dict[str, Any] = {f"learn_{name}": True for name in cls.learns}
        cls.__signature__ = merged_signature(cls, {"mode": cls.modes[0], **defaults})

    v_reset: Constant

    def learnable(
        self, name: str, value: Constant, form: Form, learn: bool | None = None, **limits: Any
    ) -> None:
        """Add a constant to the neuron: a number, or a learned parameter.

        Args:
            name: the name of the step's argument, under which `constant` also returns it.
            value: its initial value.
            form: ``LOG`` keeps a learned constant positive, ``LOGIT`` keeps it between 0 and 1.
            learn: learn it. None: learn it if the class lists it in ``learns``.
            limits: ``lower``, ``upper``, ``bounds``: see `ultralif.nn.parameters`.
        """
        learn = name in self.learns if learn is None else learn
        self.declare(name, value, form, learn=learn, shape=self._shape, **limits)

    threshold = Attribute()
    """The current spike threshold."""
    leak = Attribute()
    """The current decay factor, if the neuron has one."""
    eps = Attribute()
    """The current temperature, if the neuron has one."""

    @property
    def mode(self) -> Mode:
        """The mode: ``soft``, ``hard`` or ``tropical``; see `ultralif.set_mode`."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in self.modes:
            raise InputError(
                f"mode must be one of {', '.join(self.modes)} for {type(self).__name__}, got {mode!r}; "
                "ultralif.set_mode uses hard for neurons that do not support a mode"
            )
        self._mode: Mode = mode

    @overload
    def forward(self, current: Tensor, *, return_membrane: Literal[False] = False) -> Tensor: ...
    @overload
    def forward(self, current: Tensor, *, return_membrane: Literal[True]) -> tuple[Tensor, Tensor]: ...
    def forward(self, current: Tensor, *, return_membrane: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Return the spikes for a current ``[T, B, *features]``, from rest.

        Args:
            current: the input.
            return_membrane: also return the membrane after each step's reset, in the same shape. Both are
                differentiable. The time steps then run one by one, which is slower.
        """
        if return_membrane:
            return self._with_membrane(current)
        if not is_plain(current) or is_tracing():
            return self.run(current)[0]
        ready = self.__dict__.setdefault("_ready", {})
        key = current.shape, current.dtype, current.device
        call = ready.get(key)  # repeated calls skip the checks
        spikes: Tensor | None = None if call is None else call(current, self._parameters)
        if spikes is None:
            spikes = self.run(current)[0]
            plain = not (self.batch_first or "synapse" in self.declared())
            if plain and self.backend == "auto" and (call is not None or key not in ready):
                constants, choices = self._given()
                if len(ready) >= 64:
                    ready.clear()
                ready[key] = prepare(type(self).operator, current, constants | choices, self._parameters)
        return spikes

    def _with_membrane(self, current: Tensor) -> tuple[Tensor, Tensor]:
        axis = 1 if self.batch_first else 0
        state, spikes, membranes = None, [], []
        for x in self._time_major(current, None):
            spike, state = self.step(x, state)
            spikes.append(spike)
            membranes.append(state[0])
        return torch.stack(spikes, axis), torch.stack(membranes, axis).to(current.dtype)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, and drop calls prepared with its old value."""
        self.__dict__.pop("_ready", None)
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out prepared calls, which are specific to one process and its devices."""
        return {name: value for name, value in self.__dict__.items() if name != "_ready"}

    def rate(self, current: Tensor) -> Tensor:
        """Return the mean spike over time, ``[B, *features]``, from rest."""
        if self._forward_hooks or self._forward_pre_hooks:  # hooks must see the module's spikes
            spikes: Tensor = self(current)
            return spikes.mean(1 if self.batch_first else 0)
        return self._integrate(self._time_major(current, None), None, rate=True)[0]

    def run(self, current: Tensor, state: S | None = None) -> tuple[Tensor, S]:
        """Return the spikes for ``[T, B, *features]`` and the state to continue from."""
        spikes, state = self._integrate(self._time_major(current, state), state, rate=False)
        return (spikes.transpose(0, 1) if self.batch_first else spikes), state

    def step(self, x: Tensor, state: S | None = None) -> tuple[Tensor, S]:
        """Return the spike for one time step ``[B, *features]`` and the state to continue from."""
        self._check_current(x, ("B",))
        self._check_step(state, x.shape)
        spikes, state = self._integrate(x.unsqueeze(0), state, rate=False)
        return spikes[0], state

    def _integrate(self, current: Tensor, state: S | None, rate: bool) -> tuple[Tensor, S]:
        constants, choices = self._given()
        return self.integrate(current, state, rate, self.backend, **constants, **choices)

    def _given(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the constants and choices as the operator expects them."""
        find = self.given if hasattr(type(self).operator, "recipe") else self.constant
        constants: dict[str, Any] = {name: find(name) for name in self.declared()}
        if "synapse" in constants:
            constants["synapse"] = self.constant("synapse")
        return constants, {name: getattr(self, name) for name in self.choices}

    @classmethod
    def integrate(
        cls,
        current: Tensor,
        state: Any,
        rate: bool,
        backend: Backend,
        *,
        synapse: Constant | None = None,
        **given: Any,
    ) -> tuple[Tensor, Any]:
        """Run the synapse, if any, and the operator; return spikes or their mean, and the state.

        Args:
            current: ``[T, B, *features]``.
            state: the state that an earlier call returned; None starts at rest.
            rate: return the mean over time.
            backend: as in `Neuron`.
            synapse: decay factor of a synaptic current.
            given: the other constants and the choices.
        """
        i = None
        if synapse is not None:
            if state is not None:
                *inner, i = state
                state = State(*inner) if len(inner) == 1 else AdaptiveState(*inner)
            current, i = leaky_integrator(current, i, leak=synapse)
        v0 = state.v if isinstance(state, State) else state
        spikes, last = cls.operator(current, v0, rate, backend, **given)
        after = last if isinstance(last, tuple) else State(last)
        return spikes, after if i is None else with_current(type(after))(*after, i)

    def _time_major(self, current: Tensor, state: S | None) -> Tensor:
        """Check current and state, and return the current with time first."""
        self._check_current(current, ("T", "B"))
        current = current.transpose(0, 1) if self.batch_first else current
        check_steps(current)
        self._check_step(state, current.shape[1:])
        return current

    def _check_current(self, current: Tensor, leading: tuple[str, ...]) -> None:
        check_current(current, leading)

    def _check_step(self, state: S | None, shape: torch.Size) -> None:
        check_constants(self.shapes(), shape[1:])
        if state is not None:
            check_state(state, self.state_type, shape)

    def special(self) -> dict[str, Any]:
        """Return the choices, other than the mode, that differ from the class's defaults.

        Exporters reject those that they do not support.
        """
        defaults = {name: p.default for name, p in self.__signature__.parameters.items()}
        found = {name: getattr(self, name) for name in self.choices if name != "mode"}
        found |= {"synapse": self.constant("synapse")} if "synapse" in self.declared() else {}
        return {
            name: value
            for name, value in found.items()
            if name in defaults and (isinstance(value, Tensor) or value != defaults[name])
        }

    def extra_repr(self) -> str:
        """Show the constants, the non-default choices and the mode."""
        constants = [self.shown(name) for name in sorted(self.declared())]
        others = (f"{name}={short(value)}" for name, value in self.special().items() if name != "synapse")
        return ", ".join([*constants, *others, f"mode={self.mode}"])
