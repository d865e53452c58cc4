"""``ultralif analyze``: a network's regions, volumes and decision boundaries, and pruning."""

from dataclasses import dataclass
from math import comb, inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ultralif.cli.output import check_place, print_values
from ultralif.cli.parse import Actions, Positional
from ultralif.cli.sources import Source, load_network, pick_layer, save_network
from ultralif.errors import InputError, check_range
from ultralif.names import Mode

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from ultralif.nn import Neuron

__all__ = ["COMMAND"]

MOST_SLICES = 100_000


@dataclass(frozen=True)
class OfNetwork:
    """The network to analyse, and how the result is printed."""

    source: Positional[str]
    """Sizes of a random network, such as 784-64-10, a run, or a weight file."""
    neuron: str = "UltraLIF"
    """The neuron of a random network."""
    seed: int = 0
    """Seed for a random network and all other random draws."""
    runs_dir: Path | None = None
    """Runs folder."""
    json: bool = False
    """Print one JSON document."""

    def load(self) -> Source:
        """Load the network."""
        return load_network(self.source, self.neuron, self.seed, self.runs_dir)

    def generator(self) -> "Generator":
        """Return the random number generator."""
        import torch

        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True)
class OfLayer(OfNetwork):
    """A layer of a network."""

    layer: int = 0
    """Index of the layer."""

    def parts(self) -> "tuple[nn.Linear, Neuron[Any]]":
        """Return the linear map and the neurons."""
        return pick_layer(self.load().network, self.layer)


@dataclass(frozen=True)
class OfSpikes(OfLayer):
    """A layer in a mode."""

    mode: Mode = "tropical"
    """Spike mode; it shifts the hyperplanes."""

    def hyperplanes(self) -> "tuple[Tensor, Tensor]":
        """Return normals and offsets."""
        from ultralif import analysis
        from ultralif.nn import mode as in_mode

        linear, neurons = self.parts()
        with in_mode(neurons, self.mode):
            return analysis.hyperplanes(linear, neurons)


def regions(of: OfSpikes) -> None:
    """Count the regions of a layer's spike patterns at T = 1, exactly.

    Args:
        of: the network, or one of its layers.
    """
    from torch.linalg import matrix_rank

    from ultralif import analysis

    weight, offset = of.hyperplanes()
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
    print_values(result, of.json)


def slice_(
    of: OfSpikes,
    *,
    segments: int = 100,
    planes: int = 10,
    box: tuple[float, float] = (0.0, 1.0),
) -> None:
    """Count the regions that random segments and planes intersect at T = 1, exactly and at any size.

    Args:
        of: the network, or one of its layers.
        segments: number of segments, each between two points in the box.
        planes: number of infinite planes, each through a point in the box.
        box: smallest and largest value of an input.
    """
    from ultralif import analysis

    if min(segments, planes) < 1 or not box[0] < box[1]:
        raise InputError(f"segments={segments} and planes={planes} must be positive, box={box} ascending")
    if max(segments, planes) > MOST_SLICES:
        raise InputError(
            f"segments={segments} and planes={planes} would take hours; choose at most {MOST_SLICES} of each"
        )
    weight, offset = of.hyperplanes()
    h, n = weight.shape
    generator = of.generator()
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
    print_values({"neurons": h, "inputs": n, "regions": rows}, of.json)


def growth(
    of: OfSpikes,
    *,
    steps: tuple[int, ...] = (1, 2, 4, 8),
    varying: bool = False,
    extent: float = 4.0,
    resolution: int = 200,
) -> None:
    """Count a layer's spike rasters over time for inputs in a random plane, and print the bound.

    Args:
        of: the network, or one of its layers.
        steps: numbers of time steps.
        varying: draw a new input from the plane at every step; otherwise one input is held for all steps.
        extent: largest distance from the origin at which the plane is sampled.
        resolution: points along each side; the number of samples is its square.
    """
    import torch

    from ultralif import analysis

    linear, neurons = of.parts()
    if not (2 <= resolution <= 2000 and 0 < extent < inf):
        raise InputError(f"resolution={resolution} must be between 2 and 2000 and extent={extent} positive")
    generator = of.generator()
    plane = analysis.random_plane(linear.in_features, generator)
    points = plane.grid(extent, resolution).flatten(0, 1)
    if varying:
        drawn = torch.randint(len(points), (max(steps, default=1), len(points)), generator=generator)
        points = points[drawn]
    rows = analysis.growth(linear, neurons, points, steps, dimension=2, spike_mode=of.mode)
    print_values(
        {"neurons": linear.out_features, "samples": points.shape[-2], "rasters": [r._asdict() for r in rows]},
        of.json,
    )


def volume(of: OfLayer) -> None:
    """Measure a layer's weights: rank, log-volume, and the zonotope's exact volume if that is feasible.

    Args:
        of: the network, or one of its layers.
    """
    import torch

    from ultralif import analysis

    linear, _ = of.parts()
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
    print_values(result, of.json)


def prune(
    of: OfLayer,
    *,
    keep: int | None = None,
    by: Literal["volume", "magnitude", "random"] = "volume",
    merge_tol: float = 1e-6,
    out: Path | None = None,
) -> None:
    """Merge equal neurons of a layer, then remove the neurons whose loss costs the least log-volume.

    Args:
        of: the network, or one of its layers.
        keep: number of neurons to keep; by default, only equal neurons are merged.
        by: criterion for choosing the neurons to remove.
        merge_tol: neurons are equal if weights and bias differ by less than this, relative to their norm.
        out: file to write the smaller network to.
    """
    from ultralif import analysis

    check_place(out)
    network, arguments, _ = of.load()
    before = pick_layer(network, of.layer)[0].weight.detach()
    smaller, groups = analysis.merge_redundant(network, of.layer, merge_tol)
    if keep is not None:
        generator = of.generator()
        smaller = analysis.prune_neurons(smaller, keep, by=by, layer=of.layer, generator=generator)
    after = pick_layer(smaller, of.layer)[0].weight.detach()
    result: dict[str, object] = {
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
    print_values(result, of.json)


MOST_STEPS = 100_000
MOST_POINTS = 2000


def boundary(
    of: OfNetwork,
    *,
    out: Path = Path("boundary.png"),
    samples: Path | None = None,
    timesteps: int = 1,
    resolution: int = 200,
) -> None:
    """Draw a network's classes in the plane through three samples, with all spike modes side by side.

    Args:
        of: the network.
        out: the image file, png or svg.
        samples: a .npy file of three inputs; by default, random inputs between 0 and 1.
        timesteps: time steps for which each input is held.
        resolution: points along each side.
    """
    import torch

    from ultralif import analysis
    from ultralif.report.figures import boundary_figure

    check_range("timesteps", timesteps, 1, MOST_STEPS)
    check_range("resolution", resolution, 2, MOST_POINTS)
    check_place(out)
    network = of.load().network
    generator = of.generator()
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
    print_values({"slices": rows, "written": str(boundary_figure(out, places, extent, slices))}, of.json)


def _samples(path: Path) -> "Tensor":
    import torch

    from ultralif.data.files import read_npy

    try:
        found = torch.from_numpy(read_npy(path)).float()
    except (TypeError, ValueError) as error:
        raise InputError(f"samples {str(path)!r} is not a .npy file of numbers ({error})") from error
    if not bool(found.isfinite().all()):
        raise InputError(f"samples {str(path)!r} contains NaN or infinite numbers; remove them")
    return found


COMMAND: Actions = {
    "regions": regions,
    "slice": slice_,
    "growth": growth,
    "volume": volume,
    "prune": prune,
    "boundary": boundary,
}
