"""One large convolutional UltraLIF network on many GPUs, or on the cores of a laptop.

torchrun --nproc-per-node 8 examples/large_conv.py --dataset cifar10 --width 256 --batch-size 1024
torchrun --nproc-per-node 2 examples/large_conv.py --steps 20

Three techniques make it large. Each process trains on part of every batch (DistributedDataParallel). Products
use bfloat16 while membranes stay in float32 (autocast). A block keeps only its input for the backward pass
and recomputes the rest (activation checkpointing), so each extra block stores only its input spikes.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # if imported after a group is created, it keeps that group's threads alive
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import ultralif as ul
from ultralif.data import Loader, load


class Block(nn.Module):
    """Convolve every time step, normalize, and integrate over time."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm = nn.GroupNorm(8, outputs)
        self.neuron = ul.UltraLIF()

    def forward(self, x: Tensor) -> Tensor:
        current = self.norm(self.conv(x.flatten(0, 1)))
        return self.neuron(current.float().unflatten(0, x.shape[:2]))


class ConvNet(nn.Module):
    """Maps spikes ``[T, B, C, H, W]`` to scores ``[B, classes]``."""

    def __init__(self, channels: int, classes: int, width: int, depth: int) -> None:
        super().__init__()
        widths = [channels, *(width * 2 ** (i // 2) for i in range(depth))]
        self.blocks = nn.ModuleList(Block(*widths[i : i + 2], stride=1 + i % 2) for i in range(depth))
        self.readout = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.readout(x.mean((0, 3, 4)))


def train(given: argparse.Namespace, device: torch.device) -> None:
    """Train as one of the processes; the first process prints the loss averaged over all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = load(given.dataset, device=device)
    loader = Loader(data.train, given.batch_size, given.timesteps, seed=0)  # the same in all processes
    torch.manual_seed(0)
    net = ConvNet(data.shape[0], data.classes, given.width, given.depth).to(device)
    model = DistributedDataParallel(net, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = epoch = 0
    while step < given.steps:
        for x, labels in loader.epoch(epoch):
            if step == given.steps or len(labels) < size:
                break
            mine = slice(len(labels) * rank // size, len(labels) * (rank + 1) // size)
            share = (mine.stop - mine.start) / len(labels)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16):
                loss = cross_entropy(model(x[:, mine]), labels[mine]) * share
            (loss * size).backward()  # the gradients are averaged over the processes
            optimizer.step()
            step += 1
            told = loss.detach().float()
            dist.all_reduce(told)
            if rank == 0:
                print(f"step {step}/{given.steps}: loss {told.item():.4f}", flush=True)
        epoch += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits", help="images, such as digits, mnist or cifar10")
    parser.add_argument("--width", type=int, default=16, help="channels of the first block")
    parser.add_argument("--depth", type=int, default=4, help="blocks; every second one halves the image size")
    parser.add_argument("--timesteps", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128, help="total over all processes")
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    train(given, torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu"))
    dist.destroy_process_group()  # now that the model is gone, this ends the group's threads


if __name__ == "__main__":
    main()
