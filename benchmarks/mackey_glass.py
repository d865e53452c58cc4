"""Forecast the chaotic Mackey-Glass series as NeuroBench defines the task, with binary or soft spikes.

A network sees the last 50 points and predicts the next one. It is trained on 10 Lyapunov
times of one series (750 points) and then has to continue the series for another 10 from its own predictions.
The score is the symmetric mean absolute percentage error (sMAPE, lower is better). Every repeat starts half a
Lyapunov time later and trains a new network.
"""

import argparse

import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.training.losses import mse

TAU, LYAPUNOV_TIME, POINTS, PAST = 17.0, 197.0, 75, 0.7206597
WINDOW, TIMESTEPS, TRAINED = 50, 8, 750


def series(count: int, delay_steps: int = 170) -> Tensor:
    """Solve x' = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x; return 75 points per Lyapunov time."""
    h = TAU / delay_steps
    x = [PAST] * (delay_steps + 2)

    def slope(now: float, delayed: float) -> float:
        return 0.2 * delayed / (1 + delayed**10) - 0.1 * now

    for _ in range(int(count * LYAPUNOV_TIME / POINTS / h) + 4):
        now, old, new = x[-1], x[-1 - delay_steps], x[-delay_steps]
        middle = (-x[-2 - delay_steps] + 9 * old + 9 * new - x[min(-delay_steps + 1, -1)]) / 16
        a = slope(now, old)
        b = slope(now + h / 2 * a, middle)
        c = slope(now + h / 2 * b, middle)
        d = slope(now + h * c, new)
        x.append(now + h / 6 * (a + 2 * b + 2 * c + d))
    grid = torch.tensor(x[delay_steps + 1 :], dtype=torch.float64)
    at = torch.arange(count, dtype=torch.float64) * (LYAPUNOV_TIME / POINTS / h)
    left = at.long().clamp(1, len(grid) - 3)
    t = at - left
    before, first, second, after = (grid[left + i] for i in (-1, 0, 1, 2))
    return (  # the cubic through four points
        first
        + t / 2 * (second - before)
        + t**2 / 2 * (2 * before - 5 * first + 4 * second - after)
        + t**3 / 2 * (3 * first - before - 3 * second + after)
    ).float()


def network(neuron: str, hidden: int) -> nn.Sequential:
    make = ul.nn.find_neuron(neuron)
    return nn.Sequential(
        *(nn.Linear(WINDOW, hidden), make(), nn.Linear(hidden, hidden), make(), nn.Linear(hidden, 1))
    )


def forecast(net: nn.Module, window: Tensor) -> Tensor:
    """Return the next point of each window ``[B, 50]``, as a change of the last one."""
    scaled = 3 * (window - 0.9)
    return window[:, -1:] + 0.2 * net(scaled.expand(TIMESTEPS, *scaled.shape)).mean(0)


def smape(predicted: Tensor, wanted: Tensor) -> float:
    return float(200 * ((predicted - wanted).abs() / (predicted.abs() + wanted.abs())).mean())


def repeat(points: Tensor, neuron: str, hidden: int, steps: int, seed: int, mode: str) -> float:
    """Train on the first 750 points, continue them for 750 more, and return the sMAPE."""
    torch.manual_seed(seed)
    net = network(neuron, hidden)
    known = points[:TRAINED]
    windows, targets = known.unfold(0, WINDOW, 1)[:-1], known[WINDOW:, None]
    ul.calibrate_init(net, (3 * (windows - 0.9)).expand(TIMESTEPS, -1, -1), 0.2)
    ul.set_mode(net, mode)
    optimizer = torch.optim.Adam(ul.parameter_groups(net), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        noisy = windows + 0.002 * torch.randn_like(windows)  # simulates the network's own errors
        loss = mse(forecast(net, noisy), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    window = known[-WINDOW:][None]
    continued = []
    with torch.no_grad():
        for _ in range(len(points) - TRAINED):
            point = forecast(net, window)
            continued.append(point[0, 0])
            window = torch.cat((window[:, 1:], point), 1)
    return smape(torch.stack(continued), points[TRAINED:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--neuron", default="UltraLIF")
    parser.add_argument("--mode", default="soft")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=5, help="NeuroBench has 30")
    args = parser.parse_args()
    torch.set_num_threads(1)
    whole = series(2 * TRAINED + args.repeats * POINTS // 2)
    scores = []
    for i in range(args.repeats):
        start = i * POINTS // 2
        points = whole[start : start + 2 * TRAINED]
        scores.append(repeat(points, args.neuron, args.hidden, args.steps, i, args.mode))
        print(f"repeat {i + 1}: sMAPE {scores[-1]:.2f}", flush=True)
    print(
        f"{args.neuron} ({args.mode}): mean sMAPE {sum(scores) / len(scores):.2f} over {len(scores)} repeats"
    )


if __name__ == "__main__":
    main()
