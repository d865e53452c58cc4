"""`Members`: the interface that networks offer to the training loop."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from ultralif.functional import Mode
from ultralif.nn import Output

__all__ = ["Members", "Role"]

Role = Literal["weight", "eps", "other"]
"""Role of a parameter: weights decay, temperatures have their own learning rate."""


class Members(Protocol):
    """One or several networks that are trained together; each has a place.

    `ultralif.stack.Stack` lays multilayer perceptrons side by side; `ultralif.training.single.Single` is one
    module of any kind. M is their number. Both are `nn.Module`s.
    """

    batches: int
    """Different batches that the members read."""
    order: list[int]
    """The index of the given network at each place."""
    draws: bool
    """True if a forward pass may draw random numbers, as dropout does."""

    def __len__(self) -> int: ...

    def __call__(self, x: Tensor, mode: Mode | None = None, *, by_step: bool = False) -> Output:
        """Return scores ``[M, B, classes]``, and with ``by_step`` those of each step; and spike rates."""
        ...

    def spread(self, of_batches: Tensor) -> Tensor:
        """Return the labels of each member, ``[M, B]``."""
        ...

    def hidden_rate(self, rates: Sequence[Tensor]) -> Tensor:
        """Return the mean spike of the hidden neurons, ``[M]``, from the rates of all spiking layers."""
        ...

    def first_weights(self) -> Sequence[Tensor]:
        """Return the weights of each member's first layer as matrices."""
        ...

    def role(self, name: str) -> Role:
        """Return the role of a parameter."""
        ...

    def modes(self, place: int) -> tuple[Mode, ...]:
        """Return the modes of a member's neurons."""
        ...

    def constants(self, name: str) -> list[Tensor | None]:
        """Return a constant of each member's first spiking layer, or None for neurons without it."""
        ...

    def assign(self, name: str, place: int, value: float) -> None:
        """Give a constant of a member another value."""
        ...

    def is_finite(self) -> Tensor:
        """Tell for each place whether all parameters are finite, ``[M]``."""
        ...

    def copy_member(self, place: int, source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
        """Copy the parameters at one place from one ``state_dict`` into another."""
        ...

    def unstack(self) -> Sequence[nn.Module]:
        """Return the trained networks in the order in which they were given."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters by name."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return parameters and buffers by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Take parameters and buffers."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Switch batch norm and dropout to training, or to evaluation."""
        ...
