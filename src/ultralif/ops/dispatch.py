"""The implementation for a device: Triton on CUDA, C on the CPU.

Elsewhere the definition runs, which keeps every intermediate result for its derivative, at least 32 bytes for
each step and neuron.
"""

from typing import Any

import torch
from torch import Tensor

from ultralif.ops import cpu, flat
from ultralif.ops.recurrence import Constants, Rule, decode, encode

__all__ = ["backward", "forward", "gpu_for", "is_fused", "is_taken"]


def is_fused(current: Tensor, rule: Rule) -> bool:
    """Tell whether a kernel computes a rule for a current on its device."""
    if torch.compiler.is_compiling():  # the answer counts as a constant, since a built kernel stays built
        return _is_fused_by_choices(current.device.type, current.dtype, encode(rule)[0], rule.ring > 0)
    return is_taken(current.device.type, current.dtype, rule)


def _is_fused_by_choices(device: str, dtype: torch.dtype, choices: str, ring: bool) -> bool:
    return is_taken(device, dtype, decode(choices, int(ring), (0.0, 0.0, 0.0)))


# The mark that torch.compiler.assume_constant_result sets. Calling that would import the compiler, which
# takes a second.
vars(_is_fused_by_choices)["_dynamo_marked_constant"] = True


def is_taken(device: str, dtype: torch.dtype, rule: Rule) -> bool:
    """Tell whether a device has kernels for a rule."""
    if device == "cuda":
        return dtype != torch.float64
    return device == "cpu" and cpu.available() and cpu.takes(rule)


def gpu_for(current: Tensor) -> Any:
    """Return the implementation for a GPU, if that is where the current is."""
    if current.is_cuda:
        from ultralif.ops import gpu  # imports triton, which a machine without a GPU need not have

        return gpu
    return None


def forward(
    current: Tensor, state: Tensor | None, constants: Constants, rule: Rule, plan: Any = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the spikes, the last state, and what the backward pass on a GPU starts from, if anything."""
    gpu = gpu_for(current)
    if gpu is not None:
        found: tuple[Tensor, Tensor, Tensor | None] = gpu.forward(current, state, constants, rule, plan)
        return found
    return *flat.forward(cpu, cpu.stored(current), state, constants, rule), None


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learned: tuple[bool, ...],
    kept: tuple[Tensor | None, Tensor | None] = (None, None),
    plan: Any = None,
    *_: Tensor | float,
) -> tuple[Tensor | None, ...]:
    """Return the gradients for the current, the state and each constant.

    ``kept`` has the spikes, if they tell the membrane, and what `forward` returned last.
    """
    gpu = gpu_for(current)
    if gpu is not None:
        found: tuple[Any, ...] = gpu.backward(
            grad_out, grad_state, current, state, constants, rule, learned, kept, plan
        )
    else:
        grad_out, grad_state = (None if g is None else cpu.stored(g) for g in (grad_out, grad_state))
        given = (cpu.stored(current), state, constants, rule, learned)
        found = flat.backward(cpu, grad_out, grad_state, *given, kept[0])
    return found[0], found[1], *found[2]
