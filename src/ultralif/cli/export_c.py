"""The part of ``ultralif export`` that writes C: the self-test's samples, and a comparison with floats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.cli.export_feed import measure

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ultralif.cli.export_feed import Feed
    from ultralif.export import IntegerNetwork

__all__ = ["make_c"]

REPLAYED = 8  # samples in the self-test


def make_c(
    net: nn.Module,
    mode: Any,
    integer: IntegerNetwork,
    out: Path,
    feed: Feed,
    budget: int | None,
) -> dict[str, Any]:
    """Write the C program of an integer network with its self-test, and return what to print about it."""
    from ultralif.export import to_c
    from ultralif.export.c import ways
    from ultralif.nn import Neuron

    kinds = [type(module).__name__ for module in net.modules() if isinstance(module, Neuron)]
    samples = feed.some(REPLAYED)
    source = "recorded" if feed.recorded is not None else "test"
    measured = measure(net, mode, feed, integer)
    if samples is None or (feed.recorded is None and "accuracy" in measured):
        samples, source = _drawn(integer), "drawn"
    samples = samples[: integer.timesteps]
    size = to_c(integer, out, samples[:, :REPLAYED], memory_budget=budget, title=f"{kinds[0]}, {mode}")
    if not measured:
        measured = {"decides_as_floats": _alike(net, mode, integer, samples)}
    return {
        "shapes": str(integer),
        "timesteps": integer.timesteps,
        **_input(integer),
        "constant_bytes": size.rom,
        "state_bytes": size.ram,
        **{f"layer {name}": way for name, way in ways(integer).items()},
        **measured,
        "self_test": f"{min(samples.shape[1], REPLAYED)} {source} samples",
        "next": f"make -C {out} test",
    }


def _input(integer: IntegerNetwork) -> dict[str, Any]:
    """Say what the first layer takes."""
    if integer.levels is None:
        return {"input": "event counts", "max_events": integer.max_events}
    levels = integer.levels
    return {"input": f"real numbers in 8 bits: {levels.low} to {levels.high}, {levels.step:.4g} each"}


def _alike(net: nn.Module, mode: Any, integer: IntegerNetwork, samples: Tensor) -> str:
    from ultralif.export.harden import answer
    from ultralif.nn import mode as in_mode

    with in_mode(net, mode):
        floats = answer(net, samples.to(next(net.parameters())))[0].argmax(1)
    alike = integer.run(samples).scores.argmax(1) == floats
    return f"{int(alike.sum())} of {len(alike)} samples"


def _drawn(integer: IntegerNetwork) -> Tensor:
    """Draw binary spikes, no more in a time step than the network takes, or one picture of real numbers."""
    import torch

    shape = (min(integer.timesteps, 10), REPLAYED, integer.inputs)
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    if integer.levels is not None:
        drawn = integer.levels.step * (
            integer.levels.low + drawn * (integer.levels.high - integer.levels.low)
        )
        return drawn[:1].expand(shape).reshape(*shape[:2], *integer.nodes[0].shape)
    spikes = drawn < 0.2
    spikes &= spikes.cumsum(-1) <= integer.max_events
    return spikes.view(*shape[:2], *integer.nodes[0].shape)
