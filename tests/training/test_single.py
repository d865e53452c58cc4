"""Any module with our neurons is trained by the loop that trains stacks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import ultralif as ul
from training.small import small, stop_after
from ultralif.data import user_data
from ultralif.errors import InputError
from ultralif.stack import Stack
from ultralif.training import Interrupted, Store
from ultralif.training.batches import load_data
from ultralif.training.loop import Job, close_epoch, prepare_epoch, recalibrate_bn, steps
from ultralif.training.members import Single
from ultralif.training.networks import build_networks
from ultralif.training.result import Operations

CPU = torch.device("cpu")
X = torch.rand(96, 1, 6, 6, generator=torch.Generator().manual_seed(0))
Y = (X.mean((1, 2, 3)) > 0.5).long()
TEST = (X[:30], Y[:30])


def convolutional() -> nn.Sequential:
    torch.manual_seed(1)
    first = ul.TimeDistributed(nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)))
    return nn.Sequential(first, ul.UltraLIF(eps=0.3), nn.Flatten(2), nn.Dropout(0.2), nn.Linear(48, 2))


def trained(job: Job) -> list[dict[str, Any]]:
    run = steps(job)
    while not job.is_over:
        prepare_epoch(job)
        for _ in run(job):
            pass
        close_epoch(job)
    return job.history


@pytest.mark.parametrize(("optimizer", "tolerance"), [("adam", 1e-6), ("sgd", 1e-9)])
def test_a_network_by_itself_is_a_stack_of_one(optimizer: str, tolerance: float) -> None:
    """Adam divides by the size of a gradient: where that is nearly zero its rounding counts."""
    config = small(
        neuron="UltraPLIF", hidden=(6, 5), optimizer=optimizer, eps_speed=4.0, weight_decay=0.1, sparsity=0.2,
        volume_reg=0.01, hard_epochs=1, loss="mean", learning_rate=0.01, epochs=3,
    )  # fmt: skip
    data = load_data(config, CPU)
    (stacked,), (alone,) = (build_networks([config], CPU) for _ in range(2))
    ours = trained(Job.of(Single(alone), [config], data, CPU))
    stack = Job.begin([config], [stacked], data, CPU)
    assert isinstance(stack.members, Stack)
    theirs = trained(stack)
    stack.members.unstack()
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(value, stacked.state_dict()[name], rtol=tolerance, atol=tolerance)
    for name in ("spike_rate", "eps", "leak"):
        mine, others = ([epoch[name][0] for epoch in history] for history in (ours, theirs))
        assert mine == pytest.approx(others, rel=tolerance), name


OPTIONS: dict[str, Any] = {"timesteps": 2, "epochs": 3, "batch_size": 32, "learning_rate": 0.01, "shift": 1}


def test_killed_and_continued_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    """With batch norm and dropout, whose state and random numbers are part of it."""
    whole, parts = convolutional(), convolutional()
    first = ul.train(whole, (X, Y), TEST, runs_dir=tmp_path / "whole", **OPTIONS)
    with pytest.raises(Interrupted):
        ul.train(parts, (X, Y), TEST, runs_dir=tmp_path / "parts", stopping=stop_after(5), **OPTIONS)
    again = convolutional()
    second = ul.train(again, (X, Y), TEST, runs_dir=tmp_path / "parts", **OPTIONS)
    assert second.id == first.id and second.accuracy == first.accuracy
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    histories = [Store(tmp_path / place).read(first.id).history for place in ("whole", "parts")]
    assert histories[0] == histories[1]
    finished = convolutional()
    with pytest.warns(UserWarning, match="nothing was trained"):
        ul.train(finished, (X, Y), TEST, runs_dir=tmp_path / "whole", **OPTIONS)
    assert torch.equal(finished[4].weight, whole[4].weight), "a finished run gives its parameters"
    loaded = ul.load(first.id, tmp_path / "whole", net=convolutional())
    assert torch.equal(loaded[4].weight, whole[4].weight)
    assert not any(module._forward_hooks for module in whole.modules())


def test_whatever_brings_the_same_samples_is_the_same_run() -> None:
    pairs = [(x.numpy(), int(y)) for x, y in zip(X, Y, strict=True)]
    sources = [(X, Y), (X.numpy(), Y.numpy()), TensorDataset(X, Y), pairs]
    assert len({user_data.register_data(source, TEST) for source in sources}) == 1
    assert user_data.register_data((X, 1 - Y), TEST) != user_data.register_data((X, Y), TEST)
    assert user_data.register_data((X, Y), TEST) != user_data.register_data((X, Y), TEST, events=True)


def test_operations_are_counted_layer_by_layer(tmp_path: Path) -> None:
    net = convolutional()
    result = ul.train(net, (X, Y), TEST, runs_dir=tmp_path, **(OPTIONS | {"epochs": 1}))
    with torch.no_grad(), ul.mode(net, "hard"):
        spikes = net[1](net[0](TEST[0].expand(2, -1, -1, -1, -1)))
    first, last = result.by_mode["hard"].layers.values()
    assert first.macs == pytest.approx(2 * 3 * 16 * 9) and first.acs == 0  # no pixel is zero
    assert last.acs == pytest.approx(float(spikes.sum()) / 30 * 2) and last.macs == 0
    assert Store(tmp_path).rows()[0].by_mode["hard"].layers == result.by_mode["hard"].layers
    assert result.by_mode["hard"].spike_rates == pytest.approx((float(spikes.mean()),), abs=1e-6)


def test_synapses_with_delays_are_counted(tmp_path: Path) -> None:
    net = nn.Sequential(ul.DelayedLinear(20, 16, max_delay=3), ul.LIF(), nn.Linear(16, 2))
    x = torch.rand(32, 20, generator=torch.Generator().manual_seed(0)) + 0.1
    data = x, (x[:, 0] > 0.6).long()
    result = ul.train(net, data, data, timesteps=4, epochs=1, runs_dir=tmp_path)
    assert result.by_mode["hard"].layers["0"] == Operations(4 * 20 * 16, 0.0)


def test_batch_norm_is_recalibrated_in_the_last_mode() -> None:
    name = user_data.register_data((X, Y), TEST)
    config = small(
        dataset=name, model="own:x", encoding="constant", timesteps=2, batch_size=32, recalibrate_bn=2,
        hard_share=1.0, precision="float32",
    )  # fmt: skip
    net = convolutional()
    net[0].module[1].running_mean.fill_(7.0)
    job = Job.of(Single(net), [config], load_data(config, CPU), CPU)
    recalibrate_bn(job)
    norm = net[0].module[1]
    assert norm.num_batches_tracked == 2 and norm.momentum == 0.1
    with torch.no_grad():
        mean = net[0].module[0](X).mean((0, 2, 3))
    torch.testing.assert_close(norm.running_mean, mean, atol=0.05, rtol=0)


def test_only_weights_decay() -> None:
    single = Single(convolutional())
    roles = {name.removeprefix("net."): single.role(name) for name, _ in single.named_parameters()}
    weights = {name for name, role in roles.items() if role == "weight"}
    assert weights == {"0.module.0.weight", "4.weight"} and roles["1.log_eps"] == "eps"


SPIKES = nn.Sequential(ul.LIF(), nn.Flatten(2), nn.Linear(36, 2))


@pytest.mark.parametrize(
    ("net", "options", "says"),
    [
        (nn.Linear(4, 2), {}, "without ultralif neurons"),
        (nn.Sequential(ul.LIF()), {}, "without weights"),
        (nn.Sequential(nn.Linear(6, 6), ul.LIF()), {"timesteps": 2}, r"scores \[B, classes\]"),
        (
            nn.Sequential(ul.LIF(), nn.Flatten(2), nn.Linear(36, 2)),
            {"dataset": "mnist"},
            "dataset is not an option",
        ),
        (SPIKES, {"epoch": 3}, "epoch is not an option .* did you mean epochs?"),
        (SPIKES, {"lr": 0.1}, "did you mean learning_rate?"),
        (nn.Sequential(nn.Flatten(2), nn.Linear(36, 1), ul.LIF()), {"timesteps": 2}, "1 scores, but labels"),
    ],
    ids=["no neuron", "no weights", "no scores", "field of the library", "typo", "initials", "few scores"],
)
def test_what_cannot_be_trained_is_refused(net: nn.Module, options: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        ul.train(net, (X, Y), TEST, runs_dir=tmp_path, **options)


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ((X, Y[:5]), "one class"),
        ((X, Y - 1), "one class"),
        ((X[:, :, :5], Y), "pass samples of the same shape"),
        ((X * torch.nan, Y), "NaN or infinite"),
        ("mnist", "a pair of tensors, a Dataset or a DataLoader"),
        ([(1, 2, 3)] * 4, "pairs of a sample and its class"),
    ],
    ids=["count", "negative", "shape", "nan", "name", "triples"],
)
def test_data_that_cannot_be_used_are_refused(train: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        user_data.register_data(train, TEST)
