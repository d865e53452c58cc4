"""`ultralif.load`: trained networks from runs, from the library's zoo and from NIR files."""

from pathlib import Path

from torch import nn

from ultralif.training.networks import Trained, find_run

__all__ = ["find_trained", "load"]


def load(
    source: str | Path, runs_dir: str | Path | None = None, *, net: nn.Module | None = None
) -> nn.Module:
    """Return a trained network.

    Args:
        source: a run's folder; a run's name or its first characters; a ``.nir`` file; or the name of a
            network that comes with the library, as listed by ``ultralif models list``.
        runs_dir: the folder where runs are stored; None means ``$ULTRALIF_RUNS`` or ``./runs``.
        net: for a run of your own network, an instance of it; the parameters are loaded into it, and it is
            returned.

    Example:
        >>> import ultralif as ul
        >>> net = ul.load("fashion-mnist/lif-t1")
        >>> net.sizes
        (784, 64, 10)
    """
    return find_trained(source, runs_dir, net).network


def find_trained(
    source: str | Path, runs_dir: str | Path | None = None, net: nn.Module | None = None
) -> Trained:
    """Return the network that `load` returns, and the config of its run."""
    if Path(source).is_file():
        from ultralif.export.nir_read import from_nir

        return Trained(from_nir(Path(source)), None)
    return find_run(source, runs_dir, net)
