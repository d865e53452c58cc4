"""How steps are taken: threads, precision, and what a GPU can record."""

import pytest
import torch

from training.small import small
from ultralif import RunConfig
from ultralif.errors import InputError
from ultralif.training.batches import load_data
from ultralif.training.device import arithmetic, pick_device
from ultralif.training.graph import can_be_recorded
from ultralif.training.loop import Job
from ultralif.training.networks import build_networks, step_work
from ultralif.training.schedule import learning_rate

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("changes", "recorded"),
    [
        ({}, True),
        ({"volume_reg": 0.1}, False),
        ({"encoding": "constant"}, True),
        ({"precision": "float64"}, False),
    ],
    ids=str,
)
def test_what_a_gpu_can_record(changes: dict, recorded: bool) -> None:
    configs = [RunConfig(neuron=name, hidden=(5,), timesteps=1, **changes) for name in ("UltraLIF", "LIF")]
    job = Job.begin(configs, build_networks(configs, CPU), load_data(configs[0], CPU), CPU)
    assert can_be_recorded(job) == recorded


def test_one_member_that_cannot_be_recorded_is_enough() -> None:
    configs = [RunConfig(hidden=(5,), timesteps=1), RunConfig(hidden=(5,), timesteps=1, volume_reg=0.1)]
    job = Job.begin(configs, build_networks(configs, CPU), load_data(configs[0], CPU), CPU)
    assert not can_be_recorded(job)


def test_precision_and_threads_are_put_back() -> None:
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    try:
        with arithmetic(CPU, "tf32", step_work([small()])):
            assert torch.get_float32_matmul_precision() == "high" and torch.get_num_threads() == 1
        with arithmetic(CPU, "float32", step_work([RunConfig(dataset="mnist", hidden=(512,))])):
            assert torch.get_float32_matmul_precision() == "highest" and torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2 and torch.get_float32_matmul_precision() == before[1]
    finally:
        torch.set_num_threads(before[0])


def test_devices() -> None:
    assert pick_device("cpu") == CPU
    assert pick_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="use cpu or auto"):
        pick_device("abacus")


def test_the_learning_rate_is_torchs() -> None:
    """Half a cosine from epoch to epoch, as `CosineAnnealingLR` has it."""
    config = RunConfig(epochs=7, learning_rate=0.3)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7)
    for epoch in range(7):
        assert learning_rate(config, epoch) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        schedule.step()
    assert learning_rate(config.with_(schedule="constant"), 5) == 0.3
