"""Batches that a GPU makes by itself, for training steps that are recorded and replayed."""

import torch
from torch import Tensor

from ultralif.data.encoders import NORMALIZED
from ultralif.data.loader import Loader
from ultralif.data.split import Events, Images
from ultralif.errors import InputError

__all__ = ["DeviceBatches"]


class DeviceBatches:
    """The batches of a `Loader` on a GPU, written into the same memory again and again.

    The order of the samples is the loader's; the random numbers are the GPU's own.

    Args:
        loader: one whose split is on a GPU.
        binary: cut event counts to 0 and 1.
    """

    def __init__(self, loader: Loader, *, binary: bool = False) -> None:
        self.loader, self.binary = loader, binary
        split = loader.split
        device = split.labels.device
        self.order = torch.zeros(len(split), dtype=torch.int64, device=device)
        self.labels = torch.zeros(len(split), dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.seed = torch.zeros(1, dtype=torch.int64, device=device)
        self.store = split.store
        if isinstance(self.store, Images):
            self.slope, self.offset = self._line(self.store, device)

    def _line(self, images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return for each channel the line from a byte to the probability of a spike, or to the current."""
        loader = self.loader
        channels = images.shape[0] if len(images.shape) > 2 else 1
        gain = loader.gain if self.draws else 1.0
        slope, offset = torch.full((channels,), gain / 255), torch.zeros(channels)
        if loader.encoding in NORMALIZED:
            if loader.normalization is None:
                raise InputError(
                    f"encoding {loader.encoding!r} needs the dataset's normalization; use 'rate'"
                )
            mean, std = (torch.tensor(values) for values in loader.normalization)
            slope, offset = slope / std, -gain * mean / std
        return slope.to(device), offset.to(device)

    @property
    def draws(self) -> bool:
        """True if images become random spikes, False if they become currents."""
        return self.loader.encoding.startswith("rate")

    def begin(self, epoch: int, step: int = 0) -> None:
        """Begin an epoch at the batch with that number."""
        order = self.loader.order(epoch)
        self.order.copy_(self.loader.split.rows[order])
        self.labels.copy_(self.loader.split.labels[order])
        self.position.fill_(step * self.loader.batch_size)
        self.seed.fill_(self.loader.seed_of(epoch, 1))

    def fill(self, x: Tensor, labels: Tensor) -> None:
        """Write the next batch to ``x [T, B, D]`` and ``labels [B]``; it can be recorded in a graph."""
        from ultralif.ops.encode import encode_images, fill_frames

        wanted = {"labels": self.labels, "picked": labels}
        if isinstance(self.store, Events):
            parts = self.store.offsets, self.store.keys, self.store.counts
            fill_frames(x, *parts, self.order, self.position, binary=self.binary, **wanted)
        elif isinstance(self.store, Images):
            crop = self.loader.augment.shift
            lines = self.slope, self.offset
            most = self.loader.gain if self.loader.encoding == "rate-clipped" else 1.0
            image = self.store.pixels, self.order, self.position, self.seed
            encode_images(x, *image, *lines, most=most, draws=self.draws, crop=crop, **wanted)

    def advance(self, count: int) -> None:
        """Go on by a number of samples; it can be recorded in a graph."""
        self.position += count
