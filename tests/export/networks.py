"""Small networks of every shape that can be exported."""

import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.nn import TimeDistributed as Each

SHAPE = (2, 9, 8)


def vgg(neuron=ul.LIF, **options) -> nn.Module:
    """Batch norm before and after pooling, pooling by mean and by maximum before the neurons."""
    return nn.Sequential(
        Each(nn.Sequential(nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.AvgPool2d(2))),
        neuron(**options),
        Each(nn.Sequential(nn.Conv2d(6, 4, 3, padding="same"), nn.MaxPool2d(2, 1), nn.BatchNorm2d(4))),
        neuron(**options),
        nn.Flatten(2),
        nn.Dropout(0.5),
        nn.Linear(4 * 3 * 3, 5),
    )


def pooled_spikes(neuron=ul.LIF, **options) -> nn.Module:
    """Pooling of spikes, with windows that overlap; strides, dilation and groups."""
    return nn.Sequential(
        Each(nn.Conv2d(2, 6, (3, 2), padding=(2, 1), dilation=(2, 1))),
        neuron(**options),
        Each(nn.AvgPool2d((3, 2), stride=(2, 1))),
        Each(nn.Conv2d(6, 4, 3, stride=(1, 2), groups=2)),
        neuron(**options),
        Each(nn.MaxPool2d(2, 1)),
        nn.Flatten(2),
        nn.Linear(8, 7),
        neuron(**options),
        nn.Linear(7, 5),
    )


class Residual(nn.Module):
    """Currents are added to currents, spikes to spikes; the head reads the mean over map and time."""

    def __init__(self, neuron=ul.LIF, **options) -> None:
        super().__init__()
        self.stem = Each(nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)))
        self.first, self.second, self.third, self.fourth = (neuron(**options) for _ in range(4))
        self.inner = Each(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)))
        self.outer = Each(nn.Conv2d(4, 4, 1))
        self.last = Each(nn.Conv2d(4, 6, 3, stride=2))
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        current = self.stem(x)
        current = current + self.inner(self.first(current))
        spikes = self.second(current)
        both = spikes + self.third(self.outer(spikes))
        return self.head(self.fourth(self.last(both)).mean((-1, -2)).mean(0))


KINDS = {"vgg": vgg, "pooled spikes": pooled_spikes, "residual": Residual}


def made(kind: str, seed: int = 0, neuron=ul.LIF, **options) -> nn.Module:
    """Return a network whose neurons fire, with normalization that does something."""
    torch.manual_seed(seed)
    net = KINDS[kind](neuron, **options)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.2, 0.6)
                module.weight.uniform_(0.6, 1.4)
                module.bias.normal_(0.1, 0.2)
            elif isinstance(module, nn.Linear | nn.Conv2d):
                module.weight.mul_(2)
    return net.eval()


def events(seed: int, steps: int = 5, batch: int = 8) -> Tensor:
    return (torch.rand(steps, batch, *SHAPE, generator=torch.Generator().manual_seed(seed)) < 0.3).float()
