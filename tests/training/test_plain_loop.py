"""Training against a plain PyTorch loop, with every option away from its default.

The other tests compare training with itself. Here nothing of `ultralif.training` is used on the other side:
start, order, neuron, loss, schedule and optimizer are written out.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from training.small import small
from ultralif.data import Dataset, Split, load
from ultralif.data.encoders import rate
from ultralif.data.loader import cut_out, shift_and_flip
from ultralif.data.split import Events
from ultralif.training import RunConfig, Store, train_stack
from ultralif.training.batches import Data
from ultralif.training.loop import Job, close_epoch, prepare_epoch, steps
from ultralif.training.networks import build_networks

CPU = torch.device("cpu")


class PlainNet(nn.Module):
    """UltraPLIF written out: a soft maximum of leaking membrane and current, a sigmoid spike, a reset."""

    def __init__(self, sizes: tuple[int, ...], c: RunConfig) -> None:
        super().__init__()
        torch.manual_seed(c.seed)
        self.linears = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(sizes))
        if c.orthogonal:
            weight = self.linears[0].weight
            norm = weight.detach().norm()
            nn.init.orthogonal_(weight)
            weight.data *= norm / weight.detach().norm()
        self.double()
        start, leak = torch.tensor(c.neuron_options["eps"]), torch.tensor(c.neuron_options["leak"])
        spiking = range(len(sizes) - 2 + (c.readout == "spiking"))
        self.log_eps = nn.ParameterList(start.log().double().clone() for _ in spiking)
        self.logit_leak = nn.ParameterList(torch.logit(leak).double().clone() for _ in spiking)
        self.bounds = (c.eps_min, c.eps_max)

    def forward(self, x: Tensor, hard: bool) -> tuple[Tensor, list[Tensor]]:
        """Return the scores of each step and the spikes of each layer."""
        signal, seen = x.flatten(2), []
        for linear, log_eps, logit in zip(self.linears, self.log_eps, self.logit_leak, strict=False):
            eps = Inward.apply(log_eps.exp(), *self.bounds)
            v, spikes = torch.zeros(()), []
            for current in linear(signal):
                drift = (v + logit.sigmoid().log()).expand_as(current)
                v = eps * torch.logsumexp(torch.stack((drift, current)) / eps, 0)
                s = soft = torch.sigmoid((v - 0.5) / eps)
                if hard:
                    s = (v > 0.5).double() + soft - soft.detach()
                v = v * (1 - (s.detach() if hard else s))
                spikes.append(s)
            signal = torch.stack(spikes)
            seen.append(signal)
        return (self.linears[-1](signal) if len(self.log_eps) < len(self.linears) else signal), seen


class Inward(torch.autograd.Function):
    """A clamp whose gradient lives on where a descent step leads back inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.bounds = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,), (low, high) = ctx.saved_tensors, ctx.bounds
        return torch.where(torch.where(grad > 0, x > low, x < high), grad, 0.0), None, None


def penalties(net: PlainNet, hidden: list[Tensor], c: RunConfig) -> Tensor:
    """lambda times the mean over all hidden neurons, minus alpha times the log-volume of the first layer."""
    weight = net.linears[0].weight
    gram = weight @ weight.T
    gram = gram + 1e-6 * gram.diagonal().mean() * torch.eye(len(gram))
    mean = sum(s.sum() for s in hidden) / sum(s.numel() for s in hidden)
    return c.sparsity * mean - c.volume_reg * 0.5 * torch.logdet(gram)


def seed_of(c: RunConfig, epoch: int, use: int) -> int:
    return int(np.random.SeedSequence((c.seed, epoch, use)).generate_state(1, np.uint64)[0] >> 1)


def order_of(c: RunConfig, epoch: int, count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed_of(c, epoch, 0)))


def compare(net: PlainNet, tensors: dict[str, Tensor], tolerance: float) -> None:
    for name, value in net.linears.state_dict().items():
        torch.testing.assert_close(tensors[f"linears.{name}"], value, rtol=tolerance, atol=tolerance)
    for layer, (log_eps, logit) in enumerate(zip(net.log_eps, net.logit_leak, strict=True)):
        torch.testing.assert_close(
            tensors[f"neurons.{layer}.log_eps"], log_eps.data, rtol=tolerance, atol=tolerance
        )
        torch.testing.assert_close(
            tensors[f"neurons.{layer}.logit_leak"], logit.data, rtol=tolerance, atol=tolerance
        )


def test_images_with_adam(store: Store) -> None:
    c = small(
        neuron="UltraPLIF", timesteps=3, seed=7, epochs=4, batch_size=300, learning_rate=0.02, hidden=(6, 4),
        schedule="linear", warmup_epochs=1, weight_decay=0.1, label_smoothing=0.1, sparsity=0.3,
        volume_reg=0.02, orthogonal=True, gain=0.8, flip=True, shift=1, cutout=3, mixup=0.4,
        hard_epochs=2, eps=0.6, leak=0.7, eps_min=0.55, eps_max=0.65, eps_speed=5.0, track_test=True,
    )  # fmt: skip
    (result,) = train_stack([c], store)
    images, labels = (lambda s: (s.batch(torch.arange(len(s))), s.labels))(load("digits").train)
    net = PlainNet((64, 6, 4, 10), c)
    weights, eps = [m.weight for m in net.linears], list(net.log_eps)
    rest = [*(m.bias for m in net.linears), *net.logit_leak]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": eps}, {"params": rest}]
    adam, history = torch.optim.AdamW(groups, weight_decay=0.0), []
    for epoch in range(4):
        losses = []
        for step, index in enumerate(order_of(c, epoch, len(labels)).split(300)):
            done = epoch + step / 5
            lr = 0.02 * (done if done < 1 else 1 - (done - 1) / 3)
            for group, speed in zip(adam.param_groups, (1, 5, 1), strict=True):
                group["lr"] = lr * speed
            generator = torch.Generator().manual_seed(seed := seed_of(c, epoch, 1 + step))
            x = cut_out(shift_and_flip(images[index], generator, 1), generator, 3).float() / 255
            part = float(np.random.default_rng(seed).beta(0.4, 0.4))
            y = one_hot(labels[index], 10).float()
            x, y = (part * a + (1 - part) * a.roll(1, 0) for a in (x, y))
            scores, hidden = net(rate(x, 3, generator, 0.8).double(), hard=epoch >= 2)
            loss = cross_entropy(scores.mean(0), y.double(), label_smoothing=0.1) + penalties(net, hidden, c)
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
        history.append(sum(losses) / 5)
    run = store.read(c.id)
    # Adam divides by the size of a gradient: where that is nearly zero its rounding counts.
    compare(net, run.contents.tensors(), 1e-6)
    assert [epoch["loss"] for epoch in run.history] == pytest.approx(history, rel=1e-10)
    assert any(not 0.55 < e.exp().item() < 0.65 for e in eps), "a bound was reached"
    assert result.mode == "hard" and run.history[-1]["test"] == pytest.approx(result.accuracy["hard"])


def test_events_with_sgd() -> None:
    c = small(
        dataset="randman", neuron="UltraPLIF", timesteps=4, seed=3, epochs=3, batch_size=50, hidden=(6, 5),
        learning_rate=0.05, optimizer="sgd", weight_decay=0.05, loss="tet", readout="spiking", sparsity=0.2,
        volume_reg=0.05, binary_events=True, hard_share=0.3, eps=0.5, leak=0.8, eps_speed=9.0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 4, (120, 4, 64), generator=generator) * (
        torch.rand(120, 4, 64, generator=generator) < 0.2
    )
    labels = torch.randint(10, (120,), generator=generator)
    cells = frames.flatten(1)
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), (cells > 0).sum(1).cumsum(0)))
    rows, keys = cells.nonzero(as_tuple=True)
    events = Events(offsets, keys.int(), cells[rows, keys].to(torch.uint8), 4, (64,))
    split = Split(events, labels, torch.arange(120))
    names = tuple(map(str, range(10)))
    data = Data(Dataset("randman", (64,), 10, names, split, split, "", None, None), split, None)
    job = Job.begin([c], build_networks([c], CPU), data, CPU)
    run = steps(job)
    while not job.is_over:
        prepare_epoch(job)
        for _ in run(job):
            pass
        close_epoch(job)
    net = PlainNet((64, 6, 5, 10), c)
    groups = [
        {"params": [m.weight for m in net.linears], "weight_decay": 0.05},
        {"params": list(net.log_eps)},
        {"params": [*(m.bias for m in net.linears), *net.logit_leak]},
    ]
    sgd = torch.optim.SGD(groups, lr=1.0, momentum=0.9, nesterov=True)
    for epoch in range(3):
        for group, speed in zip(sgd.param_groups, (1, 9, 1), strict=True):
            group["lr"] = 0.05 * speed * 0.5 * (1 + math.cos(math.pi * epoch / 3))
        for index in order_of(c, epoch, 120).split(50):
            x = frames[index].transpose(0, 1).clamp(max=1).double()
            scores, seen = net(x, hard=epoch >= 2)
            by_step = torch.stack([cross_entropy(score, labels[index]) for score in scores])
            sgd.zero_grad()
            (by_step.mean() + penalties(net, seen[:2], c)).backward()
            sgd.step()
    (network,) = job.members.unstack()
    compare(net, network.state_dict(), 1e-8)
