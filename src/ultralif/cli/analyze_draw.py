"""The part of ``ultralif analyze`` that draws decision boundaries."""

from pathlib import Path
from typing import TYPE_CHECKING

from ultralif.cli.output import check_place, print_values
from ultralif.cli.source import load_network
from ultralif.errors import InputError, check_range

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["boundary"]

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
        found = torch.from_numpy(read_npy(path).copy()).float()
    except (TypeError, ValueError) as error:
        raise InputError(f"samples {str(path)!r} is not a .npy file of numbers ({error})") from error
    if not bool(found.isfinite().all()):
        raise InputError(f"samples {str(path)!r} holds numbers that are NaN or infinite; leave those out")
    return found
