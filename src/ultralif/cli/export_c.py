"""The part of ``ultralif export`` that writes C: the self-test's samples, and a comparison with floats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from ultralif.export import IntegerNetwork

    Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]

__all__ = ["make_c"]

REPLAYED = 8  # samples in the self-test


def make_c(
    net: nn.Module,
    mode: Any,
    integer: IntegerNetwork,
    out: Path,
    recorded: Tensor | None,
    batches: Batches | None,
    budget: int | None,
) -> dict[str, Any]:
    """Write the C program of an integer network with its self-test, and return what to print about it."""
    from ultralif.export import to_c
    from ultralif.nn import Neuron

    kinds = [type(module).__name__ for module in net.modules() if isinstance(module, Neuron)]
    samples, source = recorded, "recorded"
    if samples is None and batches is not None:
        samples, source = next(batches())[0][:, :REPLAYED], "test"
    measured = {} if batches is None else _accuracies(net, mode, integer, batches)
    if samples is None or "accuracy" in measured:
        samples, source = (_drawn(integer), "drawn") if recorded is None else (recorded, source)
    samples = samples[: integer.timesteps]
    size = to_c(integer, out, samples[:, :REPLAYED], memory_budget=budget, title=f"{kinds[0]}, {mode}")
    if not measured:
        measured = {"decides_as_floats": _alike(net, mode, integer, samples)}
    return {
        "shapes": str(integer),
        "timesteps": integer.timesteps,
        "max_events": integer.max_events,
        "constant_bytes": size.rom,
        "state_bytes": size.ram,
        **measured,
        "self_test": f"{min(samples.shape[1], REPLAYED)} {source} samples",
        "next": f"make -C {out} test",
    }


def _accuracies(net: nn.Module, mode: Any, integer: IntegerNetwork, batches: Batches) -> dict[str, Any]:
    """Return the share of right decisions on the whole test set, by floats and by integers."""
    import torch

    from ultralif.export.harden import answer
    from ultralif.nn import mode as in_mode

    right, seen = torch.zeros(2), 0
    try:
        with in_mode(net, mode), torch.no_grad():
            for x, labels in batches():
                decided = (answer(net, x)[0].argmax(1), integer.run(x).scores.argmax(1))
                right += torch.tensor([float((part == labels).sum()) for part in decided])
                seen += len(labels)
    except InputError as error:
        return {"accuracy": f"not measured on the test set: {error}"}
    floats, integers = (100 * right / seen).tolist()
    return {"test_samples": seen, "float_percent": round(floats, 2), "integer_percent": round(integers, 2)}


def _alike(net: nn.Module, mode: Any, integer: IntegerNetwork, samples: Tensor) -> str:
    from ultralif.export.harden import answer
    from ultralif.nn import mode as in_mode

    with in_mode(net, mode):
        floats = answer(net, samples.to(next(net.parameters())))[0].argmax(1)
    alike = integer.run(samples).scores.argmax(1) == floats
    return f"{int(alike.sum())} of {len(alike)} samples"


def _drawn(integer: IntegerNetwork) -> Tensor:
    """Draw binary spikes, no more in a time step than the network takes."""
    import torch

    shape = (min(integer.timesteps, 10), REPLAYED, integer.inputs)
    spikes = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.2
    spikes &= spikes.cumsum(-1) <= integer.max_events
    return spikes.view(*shape[:2], *integer.nodes[0].shape)
