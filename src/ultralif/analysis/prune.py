"""Shrink networks: merge equal neurons, and remove those that span the least volume.

When a neuron in a ring (UltraDLIF) is removed, its neighbours get new neighbours. At T = 1 this has no
effect. Over more steps it changes the result, even if the removed neuron was equal to another one.
"""

import copy
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from ultralif.errors import InputError
from ultralif.nn import Network

__all__ = ["Criterion", "Merged", "merge_redundant", "prune_neurons", "prune_order", "redundant_groups"]

Criterion = Literal["volume", "magnitude", "random"]


class Merged(NamedTuple):
    """A network after merging equal neurons, and the merged groups.

    Example:
        >>> merged = merge_redundant(Network((4, 8, 2)))
        >>> len(merged.groups)  # no two neurons are equal
        0
    """

    network: Network
    groups: list[list[int]]


@torch.no_grad()
def redundant_groups(weight: Tensor, bias: Tensor | None, tol: float = 1e-6) -> list[list[int]]:
    """Return the groups of rows whose weights and biases differ by less than tol times their norm.

    Neurons with different weights are not redundant, even if the weights are parallel, because they fire for
    different inputs.

    Example:
        >>> import torch
        >>> redundant_groups(torch.tensor([[1.0], [1.0], [2.0]]), torch.zeros(3))
        [[0, 1]]
    """
    rows = weight if bias is None else torch.cat((weight, bias[:, None]), 1)
    near = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    near = near < tol * rows.norm(dim=1).clamp_min(1e-30)
    groups, taken = [], set[int]()
    for j in range(len(rows)):
        members = [k for k in near[j].nonzero().flatten().tolist() if k >= j and k not in taken]
        taken.update(members)
        if len(members) > 1:
            groups.append(members)
    return groups


@torch.no_grad()
def merge_redundant(net: Network, layer: int = 0, tol: float = 1e-6) -> Merged:
    """Merge neurons with equal weights and bias into one, and sum their outgoing weights.

    The network computes the same function as before, up to tol (for rings, see the module docstring).
    Neurons are not merged if the layer has separate learned constants for each of them.

    Args:
        net: a network; it is not changed.
        layer: index of the hidden layer.
        tol: see `redundant_groups`.

    Example:
        >>> from ultralif.nn import Network
        >>> merge_redundant(Network((4, 8, 2))).network.sizes
        (4, 8, 2)
    """
    linear, following = _linears(net, layer)
    if any(constant.numel() > 1 for constant in net.neurons[layer].state_dict().values()):
        return Merged(copy.deepcopy(net), [])
    groups = redundant_groups(linear.weight, linear.bias, tol)
    outgoing = following.weight.clone()
    for first, *others in groups:
        outgoing[:, first] += outgoing[:, others].sum(1)
    gone = {j for _, *others in groups for j in others}
    kept = [j for j in range(linear.out_features) if j not in gone]
    return Merged(_rebuild(net, layer, kept, outgoing, following.bias), groups)


@torch.no_grad()
def prune_neurons(
    net: Network,
    keep: int,
    *,
    by: Criterion = "volume",
    layer: int = 0,
    mean_spikes: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Return a copy of a network that keeps the given number of neurons in a hidden layer.

    Args:
        net: a network; it is not changed.
        keep: the number of neurons to keep.
        by: the criterion for removing the others, see `prune_order`.
        layer: index of the hidden layer.
        mean_spikes: ``[h]``, each neuron's mean spike; if given, the mean contribution of the removed
            neurons is added to the next layer's bias.
        generator: for ``by="random"``.

    Example:
        >>> from ultralif.nn import Network
        >>> prune_neurons(Network((4, 8, 2)), 5).sizes
        (4, 5, 2)
    """
    linear, following = _linears(net, layer)
    h = linear.out_features
    if not 1 <= keep <= h:
        raise InputError(f"keep must be between 1 and the layer's {h} neurons, got {keep}")
    gone = prune_order(linear.weight, h - keep, by, generator)
    kept = sorted(set(range(h)) - set(gone))
    bias: Tensor | None = following.bias
    if mean_spikes is not None and gone:
        lost = following.weight[:, gone] @ mean_spikes[gone]
        bias = lost if bias is None else bias + lost
    return _rebuild(net, layer, kept, following.weight, bias)


@torch.no_grad()
def prune_order(
    weight: Tensor, count: int, by: Criterion = "volume", generator: torch.Generator | None = None
) -> list[int]:
    """Return the rows to remove, in order.

    Args:
        weight: ``[h, n]``.
        count: the number of rows to remove.
        by: ``volume`` repeatedly removes the row whose removal costs the least `log_volume`: for h <= n the
            one nearest to the span of the others, for h > n the one with the least leverage. ``magnitude``
            removes the rows with the smallest norm, and ``random`` removes random rows.
        generator: for ``random``.

    Example:
        >>> import torch
        >>> prune_order(torch.tensor([[1.0, 0.0], [0.0, 0.1], [0.0, 2.0]]), 1, by="magnitude")
        [1]
    """
    if by == "random":
        return [int(j) for j in torch.randperm(len(weight), generator=generator)[:count]]
    if by == "magnitude":
        return [int(j) for j in weight.norm(dim=1).argsort(stable=True)[:count]]
    if by != "volume":
        raise InputError(f"by must be one of {', '.join(get_args(Criterion))}, got {by!r}")
    rows, left = weight.double(), list(range(len(weight)))
    order: list[int] = []
    while len(order) < count and len(left) > rows.shape[1]:
        inverse = _inverse(rows[left].T @ rows[left])
        leverage = ((rows[left] @ inverse) * rows[left]).sum(1)
        order.append(left.pop(int(leverage.argmin())))
    inverse = _inverse(rows[left] @ rows[left].T)
    while len(order) < count:
        # 1 / inverse_jj is the squared distance of row j from the span of the others
        j = int(inverse.diagonal().argmax())
        order.append(left.pop(j))
        stay = [k for k in range(len(inverse)) if k != j]
        column = inverse[stay, j]
        inverse = inverse[stay][:, stay] - column[:, None] * column / inverse[j, j]
    return order


def _inverse(gram: Tensor) -> Tensor:
    """Invert a Gram matrix, with a small number added to its diagonal in case rows are dependent."""
    jitter = 1e-12 * gram.diagonal().mean().clamp_min(1e-30)
    inverse: Tensor = torch.linalg.inv(
        gram + jitter * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    )
    return inverse


def _linears(net: Network, layer: int) -> tuple[nn.Linear, nn.Linear]:
    hidden = len(net.linears) - 1
    if not 0 <= layer < hidden:
        raise InputError(f"layer must be a hidden layer, 0 to {hidden - 1}, got {layer}")
    linear, following = net.linears[layer], net.linears[layer + 1]
    if not isinstance(linear, nn.Linear) or not isinstance(following, nn.Linear):
        raise InputError(f"layer {layer} is not a plain linear layer, so its neurons cannot be removed")
    return linear, following


def _rebuild(net: Network, layer: int, kept: Sequence[int], outgoing: Tensor, bias: Tensor | None) -> Network:
    """Return a copy of the network with only these neurons in a layer, and new weights in the next layer."""
    smaller = copy.deepcopy(net)
    linear, _ = _linears(net, layer)
    smaller.linears[layer] = _linear(linear.weight[kept], None if linear.bias is None else linear.bias[kept])
    smaller.linears[layer + 1] = _linear(outgoing[:, kept], bias)
    sizes = list(net.sizes)
    sizes[layer + 1] = len(kept)
    smaller.sizes = tuple(sizes)
    neuron = smaller.neurons[layer]
    for name, value in [*neuron.named_parameters(), *neuron.named_buffers()]:
        if value.dim() and value.shape[-1] == linear.out_features:
            chosen = value[..., kept].clone()
            setattr(neuron, name, nn.Parameter(chosen) if isinstance(value, nn.Parameter) else chosen)
    return smaller


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    rows, columns = weight.shape
    layer = nn.Linear(columns, rows, bias=bias is not None, dtype=weight.dtype, device=weight.device)
    layer.weight.copy_(weight)
    if bias is not None:
        layer.bias.copy_(bias)
    return layer
