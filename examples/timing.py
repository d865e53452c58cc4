"""Classify by spike times alone: every input fires once, so only memory over time can help.

LIF is the best neuron for this. UltraDLIF also adds up its input and comes close. UltraLIF keeps the larger
of past and present instead of adding them. It can only detect which inputs fire together, so it would do
equally well if time ran backwards.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import ultralif as ul

EPOCHS, BATCH, HIDDEN = 20, 64, 64


def train(neuron: str, split: ul.data.Split) -> ul.Network:
    torch.manual_seed(0)
    net = ul.Network((64, HIDDEN, 10), neuron=neuron)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    loader = ul.data.Loader(split, batch_size=BATCH)
    for epoch in range(EPOCHS):
        for x, labels in loader.epoch(epoch):  # x [30, B, 64]: one event per input
            loss = cross_entropy(net(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return net


@torch.no_grad()
def accuracy(net: ul.Network, x: Tensor, labels: Tensor) -> float:
    return 100 * (net(x).argmax(1) == labels).float().mean().item()


def main() -> dict[str, float]:
    randman = ul.data.load("randman", timesteps=30)
    x, labels = next(ul.data.Loader(randman.test, batch_size=len(randman.test)).epoch(0))
    found = {}
    for neuron in ("LIF", "UltraDLIF", "UltraLIF"):
        net = train(neuron, randman.train)
        found[neuron] = accuracy(net, x, labels)
        backwards = accuracy(net, x.flip(0), labels)  # the same events in reverse order
        line = f"{neuron:10} {found[neuron]:5.1f} % correct, {backwards:5.1f} % with time reversed"
        if "soft" in net.neurons[0].modes:
            with ul.mode(net, "hard"):
                line += f", {accuracy(net, x, labels):5.1f} % with binary spikes"
        print(line)
    return found


if __name__ == "__main__":
    main()
