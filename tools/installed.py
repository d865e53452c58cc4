"""Check an installed ultralif without a compiler: kernels, a training step, neurons against definitions.

python tools/installed.py [--kernels]

runs in the environment to check; ``--kernels`` requires the wheel's compiled kernels.
"""

import platform
import shutil
import sys

import numpy as np
import torch

import ultralif as ul
from ultralif.nn import NEURONS
from ultralif.ops.cpu import build


def differs(name: str) -> float:
    """Return the largest difference between a neuron and its definition, in spikes and gradients."""
    torch.manual_seed(0)
    current, weight = torch.randn(2, 9, 3, 70, dtype=torch.float64)
    found = []
    for backend in ("auto", "reference"):
        neuron = NEURONS[name](backend=backend).double()
        x = current.clone().requires_grad_()
        spikes = neuron(x)
        grads = torch.autograd.grad((spikes * weight).sum(), [x, *neuron.parameters()])
        found.append(torch.cat([t.detach().flatten() for t in (spikes, *grads)]))
    return float((found[0] - found[1]).abs().max())


def main() -> None:
    """Print one line, or fail."""
    if any(map(shutil.which, ("cc", "gcc", "clang"))):
        raise SystemExit("a compiler is on the path, so this check proves nothing")
    packaged = build._packaged()
    if "--kernels" in sys.argv and (packaged is None or build.library() is None):
        raise SystemExit("the wheel's kernels were not found or not loaded")
    worst = {name: differs(name) for name in NEURONS}
    if not max(worst.values()) < 1e-9:
        raise SystemExit(f"neurons differ from their definitions: {worst}")
    network = ul.Network((64, 32, 10), neuron="UltraLIF")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    x, y = torch.rand(16, 64), torch.arange(16) % 10
    losses = []
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(network(x.expand(5, 16, 64)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < losses[0]:
        raise SystemExit(f"training did not lower the loss: {losses}")
    kernels = packaged.name[:9] if packaged else "definition"
    print(
        f"ultralif {ul.__version__}: python {platform.python_version()}, torch {torch.__version__}, numpy "
        f"{np.__version__}, kernels {kernels}, {len(worst)} neurons within {max(worst.values()):.0e}, "
        f"loss {losses[0]:.3f} to {losses[-1]:.3f}"
    )


if __name__ == "__main__":
    main()
