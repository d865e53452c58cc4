"""Train a spiking convolutional network on digits.

Pixels enter as constant currents, so the first layer multiplies; all other layers receive spikes.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import ultralif as ul

TIMESTEPS, EPOCHS, BATCH = 4, 10, 32


def network() -> nn.Sequential:
    """Map [T, B, 1, 8, 8] to class scores [T, B, 10]; convolutions treat time as part of the batch."""
    return nn.Sequential(
        ul.TimeDistributed(nn.Conv2d(1, 16, 3, padding=1)),
        ul.UltraDLIF(centered=True, eps=0.2),
        ul.TimeDistributed(nn.AvgPool2d(2)),
        ul.TimeDistributed(nn.Conv2d(16, 32, 3, padding=1)),
        ul.UltraDLIF(centered=True, eps=0.2),
        ul.TimeDistributed(nn.Sequential(nn.AvgPool2d(2), nn.Flatten())),
        nn.Linear(32 * 2 * 2, 10),
    )


@torch.no_grad()
def accuracy(net: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Return the percentage of samples whose mean score over time is highest for their class."""
    hits = [net(x).mean(0).argmax(1) == labels for x, labels in batches]
    return 100 * torch.cat(hits).float().mean().item()


def main() -> dict[str, float]:
    torch.manual_seed(0)
    digits = ul.data.load("digits")
    loader = ul.data.Loader(digits.train, BATCH, TIMESTEPS, encoding="constant")
    test = list(ul.data.Loader(digits.test, 128, TIMESTEPS, encoding="constant", shuffle=False).epoch(0))
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        for x, labels in loader.epoch(epoch):
            loss = cross_entropy(net(x).mean(0), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    found = {}
    for mode in ("soft", "hard", "tropical"):
        with ul.mode(net, mode):
            found[mode] = accuracy(net, test)
        print(f"{mode:9} spikes: {found[mode]:5.1f} % of the test digits")
    temperatures = [layer.eps.item() for layer in net if isinstance(layer, ul.UltraDLIF)]
    print("temperatures learned:", ", ".join(f"{eps:.2f}" for eps in temperatures))
    return found


if __name__ == "__main__":
    main()
