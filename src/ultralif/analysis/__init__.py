"""Analyse a network: linear regions, volumes, decision boundaries, pruning."""

from ultralif.analysis.arrangement import Regions, count_regions, enumerate_regions, region_bound
from ultralif.analysis.boundaries import BoundarySlice, boundary_slice, boundary_slices, class_scores
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
    static_bound,
)
from ultralif.analysis.zonotope import log_volume, log_volume_gap, zonotope_volume
from ultralif.nn.volume import orthogonal_, volume_regularizer

__all__ = [
    "BoundarySlice",
    "Criterion",
    "Growth",
    "Merged",
    "Plane",
    "Position",
    "Regions",
    "boundary_slice",
    "boundary_slices",
    "class_scores",
    "count_regions",
    "enumerate_regions",
    "firing_current",
    "general_position",
    "growth",
    "hyperplanes",
    "line_crossings",
    "log_volume",
    "log_volume_gap",
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
    "sample_regions",
    "static_bound",
    "volume_regularizer",
    "whitney_count",
    "zonotope_volume",
]
