"""The theory as code: convergence, regions, volumes, boundaries, and the paper's claims."""

from ultralif.analysis.arrangement import Regions, count_regions, enumerate_regions, region_bound
from ultralif.analysis.boundaries import BoundarySlice, boundary_slice, boundary_slices, class_scores
from ultralif.analysis.convergence import (
    Convergence,
    MarginBounds,
    Trajectory,
    compare_with_limit,
    margin_theorem,
    state_ceiling,
    trajectory,
)
from ultralif.analysis.position import Position, general_position, whitney_count
from ultralif.analysis.prune import (
    Criterion,
    Merged,
    merge_redundant,
    prune_neurons,
    prune_order,
    redundant_groups,
)
from ultralif.analysis.regions import (
    Growth,
    Plane,
    firing_current,
    growth,
    hyperplanes,
    line_crossings,
    plane_hyperplanes,
    plane_through,
    random_plane,
    raster_bound,
    sample_regions,
)
from ultralif.analysis.undriven import escape_current, ring_matrix, steady_state, undriven_ring
from ultralif.analysis.zonotope import log_volume, log_volume_gap, zonotope_volume
from ultralif.nn.volume import orthogonal_, volume_regularizer

__all__ = [
    "BoundarySlice",
    "Convergence",
    "Criterion",
    "Growth",
    "MarginBounds",
    "Merged",
    "Plane",
    "Position",
    "Regions",
    "Trajectory",
    "boundary_slice",
    "boundary_slices",
    "class_scores",
    "compare_with_limit",
    "count_regions",
    "enumerate_regions",
    "escape_current",
    "firing_current",
    "general_position",
    "growth",
    "hyperplanes",
    "line_crossings",
    "log_volume",
    "log_volume_gap",
    "margin_theorem",
    "merge_redundant",
    "orthogonal_",
    "plane_hyperplanes",
    "plane_through",
    "prune_neurons",
    "prune_order",
    "random_plane",
    "raster_bound",
    "redundant_groups",
    "region_bound",
    "ring_matrix",
    "sample_regions",
    "state_ceiling",
    "steady_state",
    "trajectory",
    "undriven_ring",
    "volume_regularizer",
    "whitney_count",
    "zonotope_volume",
]
