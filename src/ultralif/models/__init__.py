"""Whole networks in plain PyTorch: each file can be copied into a project of yours and changed there."""

from ultralif.models.resnet import ResNet, resnet
from ultralif.models.vgg import VGG, vgg

__all__ = ["VGG", "ResNet", "resnet", "vgg"]
