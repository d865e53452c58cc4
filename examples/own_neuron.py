"""Write your own neuron: a resonator, whose membrane oscillates at its own frequency.

The step function is the whole definition, and the class below adds its constants. Networks, modes,
`ul.train`, `torch.compile` and the floating-point exports accept it like any other neuron.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.functional import Constant, Mode, rest, straight_through
from ultralif.maxplus import hard_spike, soft_spike


class Swing(NamedTuple):
    """The state: the membrane, and its value a quarter turn earlier."""

    v: Tensor
    w: Tensor


def resonator_step(
    current: Tensor,
    state: Swing,
    *,
    eps: Constant,
    leak: Constant,
    turn: Constant,
    threshold: Constant,
    mode: Mode,
) -> tuple[Tensor, Swing]:
    """Turn the state by ``turn`` of half a circle, let it leak, add the current, and spike."""
    angle = torch.pi * torch.as_tensor(turn)
    v = leak * (torch.cos(angle) * state.v - torch.sin(angle) * state.w) + current
    w = leak * (torch.sin(angle) * state.v + torch.cos(angle) * state.w)
    spike = soft_spike(v, threshold, eps)
    if mode == "hard":  # binary, with the soft spike's derivative
        spike = straight_through(hard_spike(v, threshold), spike)
    return spike, Swing(v, w)


class Resonator(ul.Stepped[Swing]):
    """Fires for inputs at its own frequency; eps and turn are learned."""

    formula = staticmethod(resonator_step)
    at_rest = staticmethod(lambda current: Swing(rest(current), rest(current)))
    choices = ("mode",)
    modes = ("soft", "hard")
    learns = frozenset({"eps", "turn"})
    state_type = Swing

    def __init__(self, *, eps: float = 0.3, leak: float = 0.95, turn: Constant = 0.25, **options) -> None:
        super().__init__(**options)
        self.learnable("eps", eps, ul.nn.LOG, bounds=(0.1, 20.0))
        self.learnable("leak", leak, ul.nn.LOGIT, upper=1.0)
        self.learnable("turn", turn, ul.nn.LOGIT, upper=1.0)


def tones(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return noisy tones ``[T, N, 1]`` with random phases, and their labels from 0 to 3."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (samples,), generator=generator)
    phase = 2 * torch.pi * torch.rand(samples, generator=generator)
    angle = 0.1 * torch.pi * (1 + labels) * torch.arange(40)[:, None]
    noise = 0.7 * torch.randn(40, samples, generator=generator)
    return (torch.sin(angle + phase) + noise).unsqueeze(-1), labels


def accuracy(neuron: ul.Neuron, epochs: int = 10) -> float:
    """Train 32 hidden neurons and return their accuracy with binary spikes, in percent."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), neuron, nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    (x, labels), (test, answers) = tones(1000, seed=0), tones(500, seed=1)
    for _ in range(epochs):
        for part in torch.randperm(1000).split(50):
            loss = nn.functional.cross_entropy(net(x[:, part]).mean(0), labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with ul.mode(net, "hard"), torch.no_grad():
        return 100 * (net(test).mean(0).argmax(1) == answers).float().mean().item()


def main() -> dict[str, float]:
    neurons = {
        "SoftLIF": ul.SoftLIF(learn_leak=True, parameter_shape=(32,)),
        "Resonator": Resonator(turn=torch.linspace(0.02, 0.5, 32), parameter_shape=(32,)),
    }
    found = {name: accuracy(neuron) for name, neuron in neurons.items()}
    for name, percent in found.items():
        print(f"{name:10} {percent:5.1f} % of the tones, with binary spikes")
    return found


if __name__ == "__main__":
    main()
