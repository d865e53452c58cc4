"""Layers between neurons: ordinary modules, applied to every time step."""

from torch import Tensor, nn

__all__ = ["TimeDistributed"]


class TimeDistributed(nn.Module):
    """Apply a module for batches ``[B, ...]`` to a sequence ``[T, B, ...]``, time folded into the batch.

    Convolutions and pooling need it; `nn.Linear` does not, because it takes any leading axes.

    Example:
        >>> import torch
        >>> conv = TimeDistributed(nn.Conv2d(1, 8, 3))
        >>> conv(torch.zeros(5, 2, 1, 28, 28)).shape
        torch.Size([5, 2, 8, 26, 26])
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[T, B, ...]`` for ``[T, B, ...]``."""
        folded: Tensor = self.module(x.flatten(0, 1))
        return folded.reshape(*x.shape[:2], *folded.shape[1:])
