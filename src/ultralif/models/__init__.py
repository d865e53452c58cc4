"""Complete networks in plain PyTorch: copy a file into your project and adapt it."""

from typing import Any

from ultralif.models import resnet as _resnet
from ultralif.models import vgg as _vgg
from ultralif.models.resnet import ResNet, resnet
from ultralif.models.vgg import VGG, vgg
from ultralif.names import find_name

__all__ = ["VGG", "ResNet", "create", "resnet", "vgg"]


def create(name: str, **options: Any) -> VGG | ResNet:
    """Return a network by name: ``vgg5`` to ``vgg11r``, or ``resnet10`` to ``resnet34``.

    Args:
        name: one of those names.
        options: the arguments of `vgg` or `resnet`, such as ``classes``, ``timesteps`` or ``neuron``.

    Example:
        >>> import torch
        >>> net = create("vgg9", classes=100, width=0.125)
        >>> net(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 100])
    """
    makers: dict[str, Any] = dict.fromkeys(_vgg.STAGES, vgg) | dict.fromkeys(_resnet.STAGES, resnet)
    found = find_name("model", name, makers)
    network: VGG | ResNet = makers[found](found, **options)
    return network
