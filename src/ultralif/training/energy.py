"""Cost of a network: the paper's measure, its picojoules, and counted operations."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["E_AC", "E_MAC", "Operations", "ann_energy", "count_operations", "relative_sops", "snn_energy"]

E_AC = 0.9
"""Picojoules of an addition in float32 at 45 nm (Horowitz 2014)."""
E_MAC = 4.6
"""Picojoules of a multiplication and an addition."""


def relative_sops(timesteps: int, rate: float) -> float:
    r"""Return the paper's energy, :math:`T \cdot \bar s` (section 6).

    Example:
        >>> relative_sops(10, 0.5)
        5.0
    """
    return timesteps * rate


def snn_energy(timesteps: int, rate: float, synapses: int) -> float:
    r"""Return the paper's picojoules of a spiking network, :math:`T \bar s N_{syn} E_{AC}` (appendix D.7).

    It counts additions only, so it is meaningful only for binary spikes.
    """
    return relative_sops(timesteps, rate) * synapses * E_AC


def ann_energy(synapses: int) -> float:
    r"""Return the paper's picojoules of the same network without spikes, :math:`N_{syn} E_{MAC}`."""
    return synapses * E_MAC


@dataclass(frozen=True)
class Operations:
    """Synaptic operations for one sample: how many multiply, how many only add."""

    macs: float
    acs: float

    @property
    def energy(self) -> float:
        """Picojoules of these operations."""
        return self.macs * E_MAC + self.acs * E_AC


def count_operations(
    sizes: Sequence[int],
    timesteps: int,
    input_density: float,
    rates: Sequence[float],
    *,
    input_binary: bool,
    binary: bool,
) -> Operations:
    """Count the synaptic operations of a multilayer perceptron for one sample.

    An input or spike that is zero costs nothing. One that is 1 costs an addition for each synapse behind it;
    any other value costs a multiplication as well. Soft spikes are never zero: all their synapses multiply.
    Biases and the neurons' own arithmetic are left out, as NeuroBench leaves them out.

    Args:
        sizes: inputs, hidden layers, classes.
        timesteps: T.
        input_density: the part of the inputs that is not zero.
        rates: the mean spike of each spiking layer that feeds another.
        input_binary: the inputs are 0 and 1.
        binary: the spikes are 0 and 1.

    Example:
        >>> count_operations((4, 8, 2), 10, 0.5, [0.25], input_binary=True, binary=True)
        Operations(macs=0.0, acs=200.0)
        >>> count_operations((4, 8, 2), 10, 0.5, [0.25], input_binary=True, binary=False)
        Operations(macs=160.0, acs=160.0)
    """
    first = timesteps * input_density * sizes[0] * sizes[1]
    macs, acs = (0.0, first) if input_binary else (first, 0.0)
    for rate, n_in, n_out in zip(rates, sizes[1:], sizes[2:], strict=False):
        if binary:
            acs += timesteps * rate * n_in * n_out
        else:
            macs += float(timesteps * n_in * n_out)
    return Operations(macs, acs)
