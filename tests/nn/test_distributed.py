"""Data-parallel training on two processes equals training on one."""

from pathlib import Path

import pytest
import torch

import ultralif as ul
from ultralif.names import NEURON_NAMES

WORKER = """
import os
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import ultralif as ul

rank, rendezvous, result = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
final = {}
for name in ul.NEURONS:
    torch.manual_seed(0)
    net = DistributedDataParallel(ul.Network((6, 5, 3), neuron=name))
    x, y = torch.randn(4, 8, 6), torch.randint(0, 3, (8,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        mine = slice(4 * rank, 4 * rank + 4)
        torch.nn.functional.cross_entropy(net(x[:, mine]), y[mine]).backward()
        optimizer.step()
    final[name] = net.module.state_dict()
if rank == 0:
    torch.save(final, result)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # gloo's threads may still run, and the interpreter's end would abort on them
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_two_processes_train_like_one(python, tmp_path: Path) -> None:
    """Each rank sees half of the batch; after three steps every parameter of every neuron is the same."""
    rendezvous, result = tmp_path / "rendezvous", tmp_path / "result.pt"
    workers = [python.start("-c", WORKER, str(rank), str(rendezvous), str(result)) for rank in range(2)]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=100)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
    trained = torch.load(result, weights_only=True)
    assert set(trained) == set(NEURON_NAMES)
    for name in NEURON_NAMES:
        torch.manual_seed(0)
        net = ul.Network((6, 5, 3), neuron=name)
        x, y = torch.randn(4, 8, 6), torch.randint(0, 3, (8,))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        torch.testing.assert_close(trained[name], net.state_dict(), rtol=1e-4, atol=1e-6)
