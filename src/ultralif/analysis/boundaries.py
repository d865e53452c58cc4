"""Decision boundaries in a plane through three samples: where the two best class scores tie."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from ultralif.analysis.regions import Plane, plane_through
from ultralif.errors import InputError
from ultralif.functional import Mode
from ultralif.nn import Network, mode

__all__ = ["BoundarySlice", "boundary_slice", "boundary_slices", "class_scores"]

MAX_POINTS = 4_000_000


class BoundarySlice(NamedTuple):
    """A network's classes in a plane, as ``[resolution, resolution]`` tensors; row 0 is the bottom.

    Example:
        >>> from ultralif.analysis import plane_through
        >>> cut = boundary_slice(lambda x: x[:, :2], plane_through(torch.eye(3)), extent=1.0, resolution=8)
        >>> cut.labels.shape, cut.labels.unique().tolist()
        (torch.Size([8, 8]), [0, 1])
    """

    labels: Tensor
    margin: Tensor
    """Difference between the best and the second-best score; 0 where they tie."""
    boundary: Tensor
    """True next to a change of class, where two scores cross."""
    tied: Tensor
    """True where the two best scores are equal; if scores are piecewise constant, this covers whole areas."""


def class_scores(net: Network, timesteps: int = 1) -> Callable[[Tensor], Tensor]:
    """Return a function that maps inputs ``[N, n]``, held for all steps, to class scores ``[N, classes]``.

    Example:
        >>> import torch
        >>> from ultralif.nn import Network
        >>> class_scores(Network((4, 8, 2)), timesteps=3)(torch.rand(5, 4)).shape
        torch.Size([5, 2])
    """
    dtype = next(net.parameters()).dtype

    def scores(x: Tensor) -> Tensor:
        logits: Tensor = net(x.to(dtype).expand(timesteps, *x.shape))
        return logits

    return scores


@torch.no_grad()
def boundary_slice(
    scores: Callable[[Tensor], Tensor], plane: Plane, extent: float, resolution: int = 200
) -> BoundarySlice:
    """Evaluate class scores on a square of a plane.

    Args:
        scores: a function that maps inputs ``[N, n]`` to class scores ``[N, classes]``.
        plane: the plane.
        extent: half the side length of the square.
        resolution: points along each side.

    Example:
        >>> cut = boundary_slice(lambda x: x[:, :2], plane_through(torch.eye(3)), extent=1.0, resolution=8)
        >>> bool(cut.boundary.any())  # the scores of the two classes cross in this square
        True
    """
    if not 2 <= resolution <= MAX_POINTS**0.5:
        raise InputError(f"resolution must be between 2 and {int(MAX_POINTS**0.5)}, got {resolution}")
    grid = plane.grid(extent, resolution).flatten(0, 1)
    values = torch.cat([scores(chunk) for chunk in torch.split(grid, 8192)]).double()
    if values.shape[-1] < 2:
        raise InputError(f"scores must have at least two classes, got shape {tuple(values.shape)}")
    best = values.topk(2, dim=-1).values
    labels = values.argmax(-1).reshape(resolution, resolution)
    margin = (best[:, 0] - best[:, 1]).reshape(resolution, resolution)
    boundary = torch.zeros_like(labels, dtype=torch.bool)
    boundary[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    boundary[1:] |= labels[1:] != labels[:-1]
    return BoundarySlice(labels, margin, boundary, margin <= 1e-7 * best[:, 0].abs().max().clamp_min(1e-30))


def boundary_slices(
    net: Network,
    samples: Tensor,
    *,
    timesteps: int = 1,
    resolution: int = 200,
    modes: Sequence[Mode] = get_args(Mode),
) -> tuple[Tensor, float, dict[Mode, BoundarySlice]]:
    """Slice a network through three samples ``[3, n]``, once in each mode.

    Returns:
        the samples' positions in the plane, ``[3, 2]``; half the side length of the square; the slice for
        each mode.

    Example:
        >>> positions, extent, slices = boundary_slices(Network((3, 8, 2)), torch.eye(3), resolution=8)
        >>> positions.shape, sorted(slices)
        (torch.Size([3, 2]), ['hard', 'soft', 'tropical'])
    """
    flat = samples.flatten(1)
    if flat.shape[1] != net.sizes[0]:
        raise InputError(f"samples must have the network's {net.sizes[0]} inputs, got {flat.shape[1]}")
    plane = plane_through(flat)
    places = (flat.double() - plane.origin) @ torch.stack((plane.right, plane.up), 1)
    extent = 1.5 * float(places.abs().max())
    slices = {}
    for each in modes:
        with mode(net, each):
            slices[each] = boundary_slice(class_scores(net, timesteps), plane, extent, resolution)
    return places, extent, slices
