"""Decide while the input is still coming in: one time step at a time, and stop when the answer is clear."""

import tempfile

import torch
from torch import Tensor

import ultralif as ul

TIMESTEPS, MARGIN = 10, 1.2


@torch.no_grad()
def decide(net: ul.Network, stream: Tensor) -> tuple[int, int]:
    """Read [T, *input] until one class leads by MARGIN; return the class and the number of steps."""
    states, total, steps = None, torch.zeros(10), 0
    for x in stream:
        steps += 1
        scores, states = net.step(x.unsqueeze(0), states)  # the network keeps no state
        total += scores[0]
        first, second = total.topk(2).values
        if first - second > MARGIN * TIMESTEPS:
            break
    return int(total.argmax()), steps


def main() -> tuple[float, float, float]:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as runs:
        config = ul.RunConfig(neuron="UltraDLIF", timesteps=TIMESTEPS, epochs=40, learning_rate=1e-2)
        result = ul.train(config, runs_dir=runs)
        net = ul.load(result.path)
    ul.set_mode(net, "hard")  # binary spikes, as a device would compute
    digits = ul.data.load("digits")
    x, labels = next(ul.data.Loader(digits.test, 360, TIMESTEPS, shuffle=False).epoch(0))
    whole = 100 * (net(x).argmax(1) == labels).float().mean().item()
    answers, steps = zip(*(decide(net, x[:, i]) for i in range(len(labels))), strict=True)
    early = 100 * (torch.tensor(answers) == labels).float().mean().item()
    mean = sum(steps) / len(steps)
    print(f"all {TIMESTEPS} steps: {whole:.1f} % correct")
    print(f"stopped early: {early:.1f} % correct after {mean:.1f} steps on average")
    return whole, early, mean


if __name__ == "__main__":
    main()
