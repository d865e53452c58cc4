"""Encode images as spikes or currents over time, drawn on the device from a generator."""

from typing import Literal, get_args

import torch
from torch import Tensor

from ultralif.data.table import Normalization
from ultralif.errors import InputError, check_choice

__all__ = [
    "NORMALIZED",
    "Encoding",
    "constant",
    "encode",
    "rate",
]

Encoding = Literal["rate", "rate-normalized", "rate-clipped", "constant", "constant-normalized"]
NORMALIZED: tuple[Encoding, ...] = ("rate-normalized", "rate-clipped", "constant-normalized")
"""The encodings that need the mean and standard deviation of the pixels."""


def rate(x: Tensor, timesteps: int, generator: torch.Generator, gain: float = 0.5) -> Tensor:
    r"""Draw spikes ``[T, B, *shape]`` with :math:`P(s_t = 1) = \mathrm{gain} \cdot x` (appendix D.1).

    With equal generators, a longer draw begins with exactly the steps of a shorter one.

    Args:
        x: pixels in [0, 1], ``[B, *shape]``.
        timesteps: T.
        generator: on the device of ``x``.
        gain: the spike probability of a white pixel, in [0, 1].

    Example:
        >>> rate(torch.ones(1, 3), 2, torch.Generator().manual_seed(0), gain=1.0)
        tensor([[[1., 1., 1.]],
        <BLANKLINE>
                [[1., 1., 1.]]])
    """
    _check(x, timesteps, gain)
    return _bernoulli((gain * x).clamp_(0, 1), timesteps, generator)


def _normalized(x: Tensor, normalization: Normalization) -> Tensor:
    mean, std = (torch.tensor(v, device=x.device).view(-1, *[1] * (x.dim() - 2)) for v in normalization)
    return (x - mean) / std


def constant(x: Tensor, timesteps: int) -> Tensor:
    """Return ``x`` as a constant current ``[T, B, *shape]``, a view that allocates no memory."""
    _check(x, timesteps, 1.0)
    return x.expand(timesteps, *x.shape)


def encode(
    x: Tensor,
    timesteps: int,
    generator: torch.Generator,
    *,
    encoding: Encoding = "rate",
    gain: float = 0.5,
    normalization: Normalization | None = None,
) -> Tensor:
    r"""Encode pixels in [0, 1] with the named encoding.

    With the normalised pixel :math:`z = (x - \mu) / \sigma`, ``rate-normalized`` draws spikes with
    :math:`P = \mathrm{clip}(\mathrm{gain} \cdot z, 0, 1)`, another interpretation of the paper.
    ``rate-clipped`` uses :math:`P = \mathrm{gain} \cdot \mathrm{clip}(z, 0, 1)`, as the paper's released code
    does, so that no pixel's spike probability exceeds the gain. ``constant-normalized`` is the current z at
    every step.

    Args:
        x: pixels in [0, 1], ``[B, C, ...]``.
        timesteps: T.
        generator: on the device of ``x``.
        encoding: the encoding's name.
        gain: factor applied to the spike probability.
        normalization: mean and standard deviation of each channel, for the encodings that need them.
    """
    check_choice("encoding", encoding, get_args(Encoding))
    _check(x, timesteps, gain)
    if encoding in NORMALIZED:
        if normalization is None:
            raise InputError(
                f"encoding {encoding!r} needs the dataset's normalization; pass it, or use 'rate'"
            )
        x = _normalized(x, normalization)
    if encoding.startswith("constant"):
        return constant(x, timesteps)
    p = gain * x.clamp(0, 1) if encoding == "rate-clipped" else (gain * x).clamp_(0, 1)
    return _bernoulli(p, timesteps, generator)


def _check(x: Tensor, timesteps: int, gain: float) -> None:
    if not x.is_floating_point():
        raise InputError(f"x must be a floating-point tensor in [0, 1], got {x.dtype}; divide bytes by 255")
    if timesteps < 1:
        raise InputError(f"timesteps must be at least 1, got {timesteps}")
    if not 0 <= gain <= 1:
        raise InputError(f"gain must be in [0, 1], got {gain}; it is the spike probability of a white pixel")


def _bernoulli(p: Tensor, timesteps: int, generator: torch.Generator) -> Tensor:
    """Draw ones with probability p."""
    if p.device.type == "cpu":
        return _bernoulli_by_bytes(p, timesteps, generator)
    out = torch.empty(timesteps, *p.shape, device=p.device)
    u = torch.empty_like(p)
    for spikes in out:  # one step at a time, because on a GPU the size of a draw changes all its numbers
        torch.lt(u.uniform_(generator=generator), p, out=spikes)
    return out


def _bernoulli_by_bytes(p: Tensor, timesteps: int, generator: torch.Generator) -> Tensor:
    """Draw ones with probability p on the CPU, eight at a time, skipping groups of eight black pixels."""
    n = p.numel()
    scaled = torch.zeros(-(-n // 8), 8)
    torch.mul(p.reshape(-1), 256, out=scaled.view(-1)[:n])
    lit = _groups(scaled.bool())
    if len(lit) > 0.75 * len(scaled):
        spikes = _draw_bytes(scaled, timesteps, generator)
    else:
        drawn = _draw_bytes(scaled.index_select(0, lit), timesteps, generator)
        spikes = torch.zeros(timesteps, len(scaled), dtype=torch.int64)
        spikes.index_copy_(1, lit, drawn.view(torch.int64).squeeze(-1))
    return spikes.view(torch.uint8).view(timesteps, -1)[:, :n].float().view(timesteps, *p.shape)


def _draw_bytes(scaled: Tensor, timesteps: int, generator: torch.Generator) -> Tensor:
    """Draw booleans ``[T, G, 8]`` that are true with probability ``scaled / 256``, ``[G, 8]``.

    Let 256 p = h + r with h an integer. A uniform byte below h produces a spike, a byte above h none, and
    the byte h itself produces one with probability r. So P = h/256 + r/256 = p. r is exact in float32 and
    compared with 24 random bits, which is finer than comparing p with a random float. A CPU generator yields
    64 bits at a time: eight bytes, but only one float. It fills memory in order, so a longer draw begins with
    the shorter one; r has its own generator so that this stays true.
    """
    fine = torch.Generator().manual_seed(int(torch.randint(2**63 - 1, (), generator=generator)))
    whole = scaled.clamp(max=255).to(torch.uint8)
    rest = scaled - whole
    drawn = torch.empty(timesteps, *whole.shape, dtype=torch.uint8)
    drawn.view(torch.int64).random_(-(2**63), None, generator=generator)
    spikes = drawn < whole
    tied = (drawn == whole).logical_and_(rest.bool())
    at = _groups(tied)
    won = torch.rand(len(at), 8, generator=fine) < rest.index_select(0, at % max(len(rest), 1))
    spikes.view(-1, 8)[at] |= tied.view(-1, 8).index_select(0, at) & won
    return spikes


def _groups(marks: Tensor) -> Tensor:
    """Return the indices of the groups of eight booleans ``[..., 8]`` in which any is true."""
    return marks.view(torch.int64).view(-1).nonzero().squeeze(1)
