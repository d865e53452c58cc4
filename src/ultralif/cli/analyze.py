"""``ultralif analyze``: regions, volumes, pruning, and decision boundaries of a network."""

from math import comb, inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ultralif.cli.output import check_place, print_values
from ultralif.cli.parse import Actions, dispatch
from ultralif.cli.sources import load_network, pick_layer, save_network
from ultralif.errors import InputError, check_range
from ultralif.names import Mode

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["COMMAND", "main"]

MOST_SLICES = 100_000


def main(argv: list[str]) -> None:
    """Run the command."""
    dispatch(COMMAND, argv, "analyze")


def _hyperplanes(
    source: str, neuron: str, seed: int, layer: int, mode: Mode, runs_dir: Path | None
) -> "tuple[Tensor, Tensor]":
    from ultralif import analysis
    from ultralif.nn import mode as in_mode

    linear, neurons = pick_layer(load_network(source, neuron, seed, runs_dir).network, layer)
    with in_mode(neurons, mode):
        return analysis.hyperplanes(linear, neurons)


def regions(
    source: str,
    /,
    *,
    neuron: str = "UltraLIF",
    seed: int = 0,
    layer: int = 0,
    mode: Mode = "tropical",
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Count the regions of a layer's spike patterns at T = 1, exactly.

    Args:
        source: sizes of a random network, such as 2-5-3, a run, or a file of weights.
        neuron: the neuron of a random network.
        seed: the seed of a random network.
        layer: which layer.
        mode: how neurons spike; it moves the hyperplanes.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    from torch.linalg import matrix_rank

    from ultralif import analysis

    weight, offset = _hyperplanes(source, neuron, seed, layer, mode, runs_dir)
    h, n = weight.shape
    rank = int(matrix_rank(weight))
    count = analysis.count_regions(weight, offset)
    few = comb(h, min(h, n)) + comb(h, n + 1) <= 200_000
    position = analysis.general_position(weight, offset) if few else None
    result = {
        "neurons": h,
        "inputs": n,
        "rank": rank,
        "regions": count,
        "bound": analysis.region_bound(h, rank),
        "general_position": position.general if position else None,
        "least_singular_value": position.margin if position else None,
    }
    print_values(result, json)


def slice_(
    source: str,
    /,
    *,
    neuron: str = "UltraLIF",
    seed: int = 0,
    layer: int = 0,
    mode: Mode = "tropical",
    segments: int = 100,
    planes: int = 10,
    box: tuple[float, float] = (0.0, 1.0),
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Count the regions that random segments and random planes meet at T = 1: exact, at any size.

    Args:
        source: sizes of a random network, such as 784-64-10, a run, or a file of weights.
        neuron: the neuron of a random network.
        seed: the seed of a random network, and of the segments and planes.
        layer: which layer.
        mode: how neurons spike; it moves the hyperplanes.
        segments: number of segments, each between two points of the box.
        planes: number of planes, each through a point of the box; a plane has no end.
        box: least and greatest value of an input.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    import torch

    from ultralif import analysis

    if min(segments, planes) < 1 or not box[0] < box[1]:
        raise InputError(f"segments={segments} and planes={planes} must be positive, box={box} ascending")
    if max(segments, planes) > MOST_SLICES:
        raise InputError(
            f"segments={segments} and planes={planes} would take hours; choose at most {MOST_SLICES} of each"
        )
    weight, offset = _hyperplanes(source, neuron, seed, layer, mode, runs_dir)
    h, n = weight.shape
    generator = torch.Generator().manual_seed(seed)
    met = analysis.sample_regions(
        weight, offset, segments=segments, planes=planes, box=box, generator=generator
    )
    rows = [
        {
            "through": through,
            "samples": len(counts),
            "fewest": min(counts),
            "mean": sum(counts) / len(counts),
            "most": max(counts),
            "bound": analysis.region_bound(h, dimension),
        }
        for dimension, (through, counts) in enumerate(zip(("segment", "plane"), met, strict=True), 1)
    ]
    print_values({"neurons": h, "inputs": n, "regions": rows}, json)


def growth(
    source: str,
    /,
    *,
    neuron: str = "UltraLIF",
    seed: int = 0,
    layer: int = 0,
    mode: Mode = "tropical",
    steps: tuple[int, ...] = (1, 2, 4, 8),
    varying: bool = False,
    extent: float = 4.0,
    resolution: int = 200,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Count a layer's spike rasters over time in a random plane of inputs, and print the bound.

    Args:
        source: sizes of a random network, such as 2-4-2, a run, or a file of weights.
        neuron: the neuron of a random network.
        seed: the seed of a random network and of the plane.
        layer: which layer.
        mode: mode of the neurons; a soft spike counts if it is above one half.
        steps: numbers of time steps.
        varying: draw a new input from the plane at every step; otherwise one input is held for all steps.
        extent: distance from the origin up to which the plane is sampled.
        resolution: points along a side; the number of samples is its square.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    import torch

    from ultralif import analysis

    linear, neurons = pick_layer(load_network(source, neuron, seed, runs_dir).network, layer)
    if not (2 <= resolution <= 2000 and 0 < extent < inf):
        raise InputError(f"resolution={resolution} must be in 2..2000 and extent={extent} above 0")
    generator = torch.Generator().manual_seed(seed)
    plane = analysis.random_plane(linear.in_features, generator)
    points = plane.grid(extent, resolution).flatten(0, 1)
    if varying:
        drawn = torch.randint(len(points), (max(steps, default=1), len(points)), generator=generator)
        points = points[drawn]
    rows = analysis.growth(linear, neurons, points, steps, dimension=2, spike_mode=mode)
    print_values(
        {"neurons": linear.out_features, "samples": points.shape[-2], "rasters": [r._asdict() for r in rows]},
        json,
    )


def volume(
    source: str,
    /,
    *,
    neuron: str = "UltraLIF",
    seed: int = 0,
    layer: int = 0,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Measure the weights of a layer: rank, log-volume, and the zonotope's exact volume where it is feasible.

    Args:
        source: layer sizes of a random network, such as 3-6-2, a run, or a file of weights.
        neuron: the neuron of a random network.
        seed: the seed of a random network.
        layer: which layer.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    import torch

    from ultralif import analysis

    linear, _ = pick_layer(load_network(source, neuron, seed, runs_dir).network, layer)
    weight = linear.weight.detach().double()
    h, n = weight.shape
    values = torch.linalg.svdvals(weight)
    result = {
        "neurons": h,
        "inputs": n,
        "rank": int(torch.linalg.matrix_rank(weight)),
        "condition": float(values[0] / values[-1]),
        "log_volume": float(analysis.log_volume(weight)),
        "log_volume_if_orthogonal": min(h, n) * log(float(weight.norm()) / min(h, n) ** 0.5),
        "zonotope_volume": float(analysis.zonotope_volume(weight)) if comb(h, n) <= 1_000_000 else None,
        "gap_of_log_volume": analysis.log_volume_gap(h, n),
    }
    print_values(result, json)


def prune(
    source: str,
    /,
    *,
    keep: int | None = None,
    by: Literal["volume", "magnitude", "random"] = "volume",
    merge_tol: float = 1e-6,
    neuron: str = "UltraLIF",
    seed: int = 0,
    layer: int = 0,
    out: Path | None = None,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Merge equal neurons of a layer, then remove those that cost the least log-volume.

    Args:
        source: sizes of a random network, such as 784-64-10, a run, or a file of weights.
        keep: number of neurons to keep; without it only equal ones are merged.
        by: rule that chooses the neurons to remove.
        merge_tol: neurons are equal if weights and bias differ by less than this, relative to their length.
        neuron: the neuron of a random network.
        seed: the seed of a random network, and of a random choice.
        layer: which hidden layer.
        out: write the smaller network to this file.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    import torch

    from ultralif import analysis

    check_place(out)
    network, arguments, _ = load_network(source, neuron, seed, runs_dir)
    before = pick_layer(network, layer)[0].weight.detach()
    smaller, groups = analysis.merge_redundant(network, layer, merge_tol)
    if keep is not None:
        generator = torch.Generator().manual_seed(seed)
        smaller = analysis.prune_neurons(smaller, keep, by=by, layer=layer, generator=generator)
    after = pick_layer(smaller, layer)[0].weight.detach()
    result: dict[str, Any] = {
        "merged": sum(len(group) - 1 for group in groups),
        "neurons_before": len(before),
        "neurons_after": len(after),
        "parameters_before": sum(p.numel() for p in network.parameters()),
        "parameters_after": sum(p.numel() for p in smaller.parameters()),
        "log_volume_before": float(analysis.log_volume(before)),
        "log_volume_after": float(analysis.log_volume(after)),
    }
    if out is not None:
        save_network(smaller, arguments, out)
        result["written"] = str(out)
    print_values(result, json)


MOST_STEPS = 100_000
MOST_POINTS = 2000


def boundary(
    source: str,
    /,
    *,
    out: Path = Path("boundary.png"),
    samples: Path | None = None,
    neuron: str = "UltraLIF",
    seed: int = 0,
    timesteps: int = 1,
    resolution: int = 200,
    runs_dir: Path | None = None,
    json: bool = False,
) -> None:
    """Draw a network's classes in the plane through three samples: soft, hard and tropical side by side.

    Args:
        source: sizes of a random network, such as 2-16-4, a run, or a file of weights.
        out: the picture, png or svg.
        samples: a .npy file of three inputs; random ones between 0 and 1 if not given.
        neuron: the neuron of a random network.
        seed: the seed of a random network and of random samples.
        timesteps: time steps for which each input is held.
        resolution: points along a side.
        runs_dir: where runs are kept.
        json: print one JSON document.
    """
    import torch

    from ultralif import analysis
    from ultralif.report.figures import boundary_figure

    check_range("timesteps", timesteps, 1, MOST_STEPS)
    check_range("resolution", resolution, 2, MOST_POINTS)
    check_place(out)
    network = load_network(source, neuron, seed, runs_dir).network
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(3, network.sizes[0], generator=generator) if samples is None else _samples(samples)
    places, extent, slices = analysis.boundary_slices(
        network, points, timesteps=timesteps, resolution=resolution
    )
    rows = [
        {
            "mode": name,
            "classes": len(torch.unique(cut.labels)),
            "on_boundary": float(cut.boundary.double().mean()),
            "tied": float(cut.tied.double().mean()),
        }
        for name, cut in slices.items()
    ]
    print_values({"slices": rows, "written": str(boundary_figure(out, places, extent, slices))}, json)


def _samples(path: Path) -> "Tensor":
    import torch

    from ultralif.data.files import read_npy

    try:
        found = torch.from_numpy(read_npy(path)).float()
    except (TypeError, ValueError) as error:
        raise InputError(f"samples {str(path)!r} is not a .npy file of numbers ({error})") from error
    if not bool(found.isfinite().all()):
        raise InputError(f"samples {str(path)!r} holds numbers that are NaN or infinite; leave those out")
    return found


COMMAND: Actions = {
    "regions": regions,
    "slice": slice_,
    "growth": growth,
    "volume": volume,
    "prune": prune,
    "boundary": boundary,
}
