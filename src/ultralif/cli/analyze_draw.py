"""The parts of ``ultralif analyze`` that draw: boundaries, quiet rings, the pictures of the theory."""

from math import inf, log
from pathlib import Path
from typing import TYPE_CHECKING

from ultralif.cli.output import check_place, echo, print_values
from ultralif.cli.source import load_network
from ultralif.errors import InputError, check_range

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["boundary", "figures", "undriven"]

MOST_STEPS = 100_000
MOST_NEURONS = 1000
MOST_VALUES = 10_000_000
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
    from ultralif.report.theory_figures import boundary_figure

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


def undriven(
    *,
    neurons: int = 16,
    steps: int = 12,
    eps: float = 0.1,
    leak: float = 1.0,
    centered: bool = False,
    json: bool = False,
) -> None:
    """Follow a ring of UltraDLIF neurons without input, by powers of its max-plus matrix.

    Args:
        neurons: number on the ring.
        steps: number of time steps.
        eps: temperature of the soft form.
        leak: decay factor; 1 is no decay.
        centered: subtract eps log 3 at each step, so that nothing drifts.
        json: print one JSON document.
    """
    import torch

    from ultralif import analysis, maxplus

    check_range("steps", steps, 1, MOST_STEPS)
    check_range("neurons", neurons, 3, MOST_NEURONS)
    check_range("steps x neurons", steps * neurons, 1, MOST_VALUES)
    if not (0 < eps < inf and 0 < leak <= 1):
        raise InputError(f"eps={eps} must be positive and leak={leak} in (0, 1]")
    v0 = torch.full((neurons,), -1.0, dtype=torch.float64)
    v0[0] = 0.0
    limit = analysis.undriven_ring(v0, steps, leak=leak)
    soft = analysis.undriven_ring(v0, steps, eps=eps, leak=leak, centered=centered)
    rows = [
        {
            "step": t,
            "reached": int((limit[t] > t * log(leak) - 0.5).sum()),
            "limit_max": float(limit[t].max()),
            "soft_max": float(soft[t].max()),
            "soft_min": float(soft[t].min()),
        }
        for t in range(steps + 1)
    ]
    result = {
        "eigenvalue_of_the_limit": float(maxplus.eigenvalue(analysis.ring_matrix(neurons, leak))),
        "drift_per_step_at_eps": log(leak) + (0.0 if centered else eps * log(3)),
        "uniform_after": neurons // 2,
        "soft_spike_it_settles_at": analysis.steady_state(eps, centered=centered).s if leak == 1 else None,
        "membranes": rows,
    }
    print_values(result, json)


def figures(*, out: Path = Path("figures")) -> None:
    """Draw convergence, the activation family, quiet rings and the growth of rasters.

    Args:
        out: the folder for the pictures.
    """
    from ultralif.report.theory_figures import FIGURES

    for name, draw in FIGURES.items():
        echo(str(draw(out / f"{name}.png")))
