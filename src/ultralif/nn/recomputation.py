"""Train on long sequences with little memory, by running each piece again in the backward pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from ultralif.errors import InputError, check_choice
from ultralif.nn.layers import carried, stateful_layers
from ultralif.nn.neuron import Neuron

__all__ = ["recompute"]

BRANCHES = 8
"""Number of pieces that share one saved state: a larger number saves time, a smaller one saves memory."""

Over = Literal["steps", "mean"]


def recompute(net: nn.Module, x: Tensor, *, steps: int = 4, over: Over = "steps") -> Tensor:
    """Return ``net(x)`` with memory that hardly grows with the number of time steps.

    The sequence runs in pieces, and only the states of the neurons are kept between them. The backward pass
    runs every piece again, one at a time. States and gradients pass from piece to piece, so the result and
    all gradients equal those of ``net(x)``. The one exception is BatchNorm in training mode, whose statistics
    are computed per piece. Training takes at most about twice as long.

    Args:
        net: a network in which each time step depends on earlier ones only through the states of our
            neurons, `LeakyIntegrator`, `Recurrent` and `DelayedLinear`; each of them is called once.
        x: ``[T, B, *input]``.
        steps: number of time steps in a piece.
        over: ``steps``, if the network returns ``[T, B, *outputs]``; ``mean``, if it returns their mean over
            time ``[B, *outputs]``, as `ultralif.models` do.

    Example:
        >>> from ultralif.nn import UltraLIF
        >>> net = nn.Sequential(nn.Linear(8, 4), UltraLIF())
        >>> x = torch.rand(100, 2, 8)
        >>> torch.allclose(recompute(net, x), net(x))
        True
    """
    check_choice("over", over, get_args(Over))
    if steps < 1 or x.dim() < 2 or not len(x):
        raise InputError(
            f"steps must be at least 1 and x must be [T, B, *input], got {steps} and shape {tuple(x.shape)}"
        )
    layers = stateful_layers(net)
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    modes = [(m, m.mode) for m in net.modules() if isinstance(m, Neuron)]

    def run(part: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """Run part of the sequence: one piece at once, longer parts piece by piece."""
        if len(part) <= steps:
            after = list(states)
            with carried(layers, after):
                out: Tensor = net(part)
            return (out * len(part) if over == "mean" else out), after
        length = steps
        while length * BRANCHES < len(part):
            length *= BRANCHES
        outs = []
        for piece in torch.split(part, length):
            out, states = _run_again(run, piece, states, partial(_as_before, norms, modes))
            outs.append(out)
        return (torch.stack(outs).sum(0) if over == "mean" else torch.cat(outs)), states

    out, _ = run(x, [None] * len(layers))
    return out / len(x) if over == "mean" else out


Run = Callable[[Tensor, list[Any]], tuple[Tensor, list[Any]]]


def _run_again(
    run: Run, x: Tensor, states: list[Any], as_before: Callable[[], AbstractContextManager[None]]
) -> tuple[Tensor, list[Any]]:
    """Run part of a sequence, keep only its states, and run it again in the backward pass."""
    leaves, form = pytree.tree_flatten(states)
    first = True
    forms = []

    def flat(x: Tensor, *leaves: Any) -> tuple[Any, ...]:
        nonlocal first
        with nullcontext() if first else as_before():
            first = False
            out, after = run(x, pytree.tree_unflatten(list(leaves), form))
        kept, form_after = pytree.tree_flatten(after)
        forms.append(form_after)
        return (out, *kept)

    out, *kept = checkpoint(flat, x, *leaves, use_reentrant=False)
    return out, pytree.tree_unflatten(kept, forms[0])


@contextmanager
def _as_before(norms: Sequence[Any], modes: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Run in the modes of the forward pass, and do not update running statistics a second time."""
    since = [(neuron, neuron.mode) for neuron, _ in modes]
    for neuron, mode in modes:
        neuron.mode = mode
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked = norm.num_batches_tracked.clone()
    try:
        yield
    finally:
        for neuron, mode in since:
            neuron.mode = mode
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, count
