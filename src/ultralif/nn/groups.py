"""Parameter groups for an optimizer: weights, normalization and neurons need different options."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ultralif.nn.parameters import Parametrized

__all__ = ["parameter_groups"]

_NORMS = (
    nn.modules.batchnorm._NormBase,  # all batch and instance normalization layers
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


def parameter_groups(
    net: nn.Module,
    *,
    weights: Mapping[str, Any] | None = None,
    norms: Mapping[str, Any] | None = None,
    neurons: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the parameters of a network in three groups for an optimizer of `torch.optim`.

    Neurons often need a different learning rate than weights, and weight decay would pull their constants
    towards meaningless values. The groups are named ``weights``, ``norms`` (including all biases) and
    ``neurons`` (eps, leak, threshold and so on). ``weight_decay`` is 0 in the last two unless you pass
    another value. A group without parameters is left out, and a shared parameter is listed once.

    Args:
        net: any network.
        weights: options for the weights, such as ``{"weight_decay": 0.01}``.
        norms: options for normalization layers and biases.
        neurons: options for the neurons' constants, such as ``{"lr": 1e-2}``.

    Example:
        >>> import torch
        >>> from ultralif.nn import UltraLIF
        >>> net = nn.Sequential(nn.Linear(4, 3), UltraLIF())
        >>> groups = parameter_groups(net, weights={"weight_decay": 0.1}, neurons={"lr": 0.01})
        >>> [(group["name"], len(group["params"])) for group in groups]
        [('weights', 1), ('norms', 1), ('neurons', 1)]
        >>> optimizer = torch.optim.AdamW(groups, lr=1e-3)
    """
    found: dict[str, list[nn.Parameter]] = {"weights": [], "norms": [], "neurons": []}
    seen: set[nn.Parameter] = set()
    for module in net.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter in seen:
                continue
            seen.add(parameter)
            if isinstance(module, Parametrized):
                found["neurons"].append(parameter)
            elif isinstance(module, _NORMS) or "bias" in name:
                found["norms"].append(parameter)
            else:
                found["weights"].append(parameter)
    options: dict[str, Mapping[str, Any]] = {
        "weights": weights or {},
        "norms": {"weight_decay": 0.0} | dict(norms or {}),
        "neurons": {"weight_decay": 0.0} | dict(neurons or {}),
    }
    return [{"name": name, "params": params, **options[name]} for name, params in found.items() if params]
