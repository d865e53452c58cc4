"""Write a neuron of your own: UltraLIF behind a synapse that lets currents linger.

The step function is the whole definition. The class below gives it constants; networks, stacks, modes,
`ul.train`, `torch.compile` and the tools of `ul.export` that need no integers take it like any other neuron.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import ultralif as ul
from ultralif.functional import rest, ultralif_step

EPOCHS = 8


class SynapticState(NamedTuple):
    """What the neuron remembers."""

    v: Tensor
    current: Tensor


def synaptic_step(
    current: Tensor, state: SynapticState, *, decay: ul.functional.Constant, **constants
) -> tuple[Tensor, SynapticState]:
    """Advance by one time step: J = decay * J + I drives UltraLIF in place of I."""
    lingering = decay * state.current + current
    spike, v = ultralif_step(lingering, state.v, **constants)
    return spike, SynapticState(v, lingering)


@ul.register
class SynapticUltraLIF(ul.Stepped[SynapticState]):
    """UltraLIF with a synapse; eps, leak and decay are learned."""

    formula = staticmethod(synaptic_step)
    at_rest = staticmethod(lambda current: SynapticState(rest(current), rest(current)))
    choices = ("v_reset", "mode")
    modes = ("soft", "hard", "tropical")
    learns = frozenset({"eps", "leak", "decay"})
    state_type = SynapticState

    def __init__(self, *, eps: float = 1.0, leak: float = 0.9, decay: float = 0.8, **options) -> None:
        super().__init__(**options)
        self.learnable("eps", eps, ul.nn.LOG, bounds=(0.1, 20.0))
        self.learnable("leak", leak, ul.nn.LOGIT, upper=1.0)
        self.learnable("decay", decay, ul.nn.LOGIT, upper=1.0)


def train(neuron: str | type[ul.Neuron], split: ul.data.Split, epochs: int = EPOCHS) -> ul.Network:
    torch.manual_seed(0)
    net = ul.Network((64, 64, 10), neuron=neuron)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(epochs):
        for x, labels in ul.data.Loader(split, batch_size=64).epoch(epoch):
            loss = cross_entropy(net(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def main() -> dict[str, float]:
    randman = ul.data.load("randman", timesteps=30)  # only spike times tell the classes apart
    batch = next(ul.data.Loader(randman.test, batch_size=len(randman.test)).epoch(0))
    found = {}
    for neuron in ("UltraLIF", SynapticUltraLIF):
        net = train(neuron, randman.train)
        name = type(net.neurons[0]).__name__
        found[name] = ul.export.gap(net, [batch])["soft"].accuracy
        print(f"{name:17} {found[name]:5.1f} % correct after {EPOCHS} epochs")
    print(f"decay learned: {net.neurons[0].constant('decay').item():.2f}")
    return found


if __name__ == "__main__":
    main()
