"""Images into spikes or currents over time, drawn on the device from a generator."""

from typing import Literal, get_args

import torch
from torch import Tensor

from ultralif.data.spec import Normalization
from ultralif.errors import InputError

__all__ = ["Encoding", "constant", "encode", "rate", "rate_normalized"]

Encoding = Literal["rate", "rate-normalized", "constant"]


def rate(x: Tensor, timesteps: int, generator: torch.Generator, gain: float = 0.5) -> Tensor:
    r"""Draw spikes ``[T, B, *shape]`` with :math:`P(s_t = 1) = \mathrm{gain} \cdot x` (appendix D.1).

    The first T steps of a longer draw from an equal generator are the draw for T.

    Args:
        x: pixels in [0, 1], ``[B, *shape]``.
        timesteps: T.
        generator: on the device of ``x``.
        gain: the probability of a white pixel, in [0, 1].

    Example:
        >>> rate(torch.ones(1, 3), 2, torch.Generator().manual_seed(0), gain=1.0)
        tensor([[[1., 1., 1.]],
        <BLANKLINE>
                [[1., 1., 1.]]])
    """
    _check(x, timesteps, gain)
    return _bernoulli((gain * x).clamp_(0, 1), timesteps, generator)


def rate_normalized(
    x: Tensor,
    timesteps: int,
    generator: torch.Generator,
    normalization: Normalization,
    gain: float = 0.5,
) -> Tensor:
    r"""Draw spikes with :math:`P = \mathrm{gain} \cdot (x - \mu) / \sigma`, cut to [0, 1].

    It is the other reading of the paper, whose pixel is "normalised".

    Args:
        x: pixels in [0, 1], ``[B, C, ...]``.
        timesteps: T.
        generator: on the device of ``x``.
        normalization: mean and standard deviation of each channel.
        gain: the factor before cutting.
    """
    _check(x, timesteps, gain)
    mean, std = (torch.tensor(v, device=x.device).view(-1, *[1] * (x.dim() - 2)) for v in normalization)
    return _bernoulli((gain * (x - mean) / std).clamp_(0, 1), timesteps, generator)


def constant(x: Tensor, timesteps: int) -> Tensor:
    """Return ``x`` as a current that is the same at every step, ``[T, B, *shape]``; it takes no memory."""
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
    """Encode pixels in [0, 1] by the encoding of that name."""
    if encoding == "rate":
        return rate(x, timesteps, generator, gain)
    if encoding == "constant":
        return constant(x, timesteps)
    if encoding != "rate-normalized":
        raise InputError(f"encoding must be one of {', '.join(get_args(Encoding))}, got {encoding!r}")
    if normalization is None:
        raise InputError(
            "encoding 'rate-normalized' needs the dataset's normalization; pass it, or use 'rate'"
        )
    return rate_normalized(x, timesteps, generator, normalization, gain)


def _check(x: Tensor, timesteps: int, gain: float) -> None:
    if not x.is_floating_point():
        raise InputError(f"x must be a floating-point tensor in [0, 1], got {x.dtype}; divide bytes by 255")
    if timesteps < 1:
        raise InputError(f"timesteps must be at least 1, got {timesteps}")
    if not 0 <= gain <= 1:
        raise InputError(f"gain must lie in [0, 1], got {gain}; it is the spike probability of a white pixel")


def _bernoulli(p: Tensor, timesteps: int, generator: torch.Generator) -> Tensor:
    """Draw ones with probability p, step by step."""
    if p.device.type == "cpu":
        return _from_bytes(p.float(), timesteps, generator)
    out = torch.empty(timesteps, *p.shape, device=p.device)
    u = torch.empty_like(p)
    for spikes in out:
        torch.lt(u.uniform_(generator=generator), p, out=spikes)
    return out


def _from_bytes(p: Tensor, timesteps: int, generator: torch.Generator) -> Tensor:
    """Draw ones with probability p from one random byte each, and from more where the byte leaves it open.

    With 256 p = h + r, h whole: a uniform byte below h makes a spike, one above none, and the byte h itself
    makes one with probability r. So P = h/256 + r/256 = p: r is exact in float32, and drawn with 24 bits,
    which is finer than comparing p with a float. A generator on the CPU gives 64 bits at a time, which are
    eight bytes but only one float.
    """
    n = p.numel()
    groups = -(-n // 8)
    scaled = torch.zeros(groups * 8)
    torch.mul(p.reshape(-1), 256, out=scaled[:n])
    whole = scaled.clamp(max=255).to(torch.uint8)
    rest = (scaled - whole).view(groups, 8)
    is_open = rest.bool().view(-1)
    words = torch.empty(groups, dtype=torch.int64)
    drawn = words.view(torch.uint8)
    out = torch.empty(timesteps, n)
    for spikes in out:
        words.random_(-(2**63), None, generator=generator)
        below = drawn < whole
        tied = (drawn == whole).logical_and_(is_open)
        at = tied.view(torch.int64).nonzero().squeeze(1)  # groups of eight with a tie among them
        won = torch.rand(len(at), 8, generator=generator) < rest[at]
        below.view(groups, 8)[at] |= tied.view(groups, 8)[at] & won
        spikes.copy_(below.view(torch.uint8)[:n])  # bytes become floats faster than booleans do
    return out.view(timesteps, *p.shape)
