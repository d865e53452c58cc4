"""Data that come batch by batch: a DataLoader is iterated as it is, and resumed where it stopped."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import ultralif as ul
from ultralif.data import user_data
from ultralif.data.stream import Stream, pad_samples
from ultralif.errors import DataWarning, InputError
from ultralif.training import Interrupted, Store

torch.manual_seed(0)
X = torch.rand(60, 6)
Y = (X[:, 0] > 0.5).long()
RUN: dict[str, Any] = {"timesteps": 3, "epochs": 2, "progress": False, "device": "cpu"}


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), ul.UltraLIF(), nn.Dropout(0.1), nn.Linear(8, 2))


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Samples with a random transform; it keeps what was drawn."""

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        self.drawn.append(float(noise := torch.rand(()) / 10))
        return X[i] + noise, Y[i]


def test_a_loader_brings_its_batches_and_draws_transforms_in_every_epoch(tmp_path: Path) -> None:
    data = Noisy()
    loader = DataLoader(data, batch_size=25, shuffle=True, drop_last=True)
    name = user_data.register_data(loader, (X, Y))
    stream = user_data.find_user_data(name, torch.device("cpu")).train
    assert isinstance(stream, Stream) and stream.steps == 2
    data.drawn.clear()
    result = ul.train(net(), loader, (X, Y), runs_dir=tmp_path, **RUN)
    assert result.config["batch_size"] == 25
    epochs = data.drawn[-100:-50], data.drawn[-50:]
    assert not set(epochs[0]) & set(epochs[1]), "the second epoch draws anew"
    with pytest.raises(InputError, match="batch_size is 8, but train is a DataLoader with batches of 25"):
        ul.train(net(), loader, (X, Y), runs_dir=tmp_path, batch_size=8, **RUN)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loader_resumes_at_its_step_with_the_same_bits(workers: int, tmp_path: Path) -> None:
    loader = DataLoader(Noisy(), batch_size=10, shuffle=True, num_workers=workers)
    whole, parts = net(), net()
    ul.train(whole, loader, (X, Y), runs_dir=tmp_path / "whole", **RUN)
    for steps in (4, 3):
        calls = iter([0] * (steps - 1) + [9])
        with pytest.raises(Interrupted):
            ul.train(parts, loader, (X, Y), runs_dir=tmp_path / "parts", stopping=calls.__next__, **RUN)
        assert Store(tmp_path / "parts").unfinished()
        parts = net()
    ul.train(parts, loader, (X, Y), runs_dir=tmp_path / "parts", **RUN)
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_finished_run_of_a_loader_is_named_and_can_be_trained_again(tmp_path: Path) -> None:
    loader = DataLoader(Noisy(), batch_size=10, shuffle=True)
    first = ul.train(net(), loader, (X, Y), runs_dir=tmp_path, **RUN)
    with pytest.warns(UserWarning, match="nothing was trained"):
        assert ul.train(net(), loader, (X, Y), runs_dir=tmp_path, **RUN).finished == first.finished
    again = ul.train(net(), loader, (X, Y), runs_dir=tmp_path, again=True, **RUN)
    assert again.id == first.id and again.finished > first.finished
    assert len(Store(tmp_path).rows()) == 1


def test_samplers_and_iterable_datasets_are_used_as_they_are(tmp_path: Path) -> None:
    class Numbers(IterableDataset[tuple[Tensor, Tensor]]):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return iter(zip(X[:25], Y[:25], strict=True))

    only_ones = WeightedRandomSampler((Y == 1).double().tolist(), 40)
    ones = DataLoader(TensorDataset(X, Y), batch_size=20, sampler=only_ones)
    history = ul.train(net(), ones, (X, Y), runs_dir=tmp_path, **RUN)
    assert history.own.accuracy == pytest.approx(100 * float((Y == 1).float().mean()), abs=15)
    result = ul.train(net(), Numbers(), DataLoader(Numbers(), batch_size=10), runs_dir=tmp_path, **RUN)
    assert result.status == "done" and result.own.accuracy in {4.0 * i for i in range(26)}


class Once(IterableDataset[tuple[Tensor, Tensor]]):
    """Samples that can be read only once."""

    def __init__(self) -> None:
        self.samples = zip(X, Y, strict=True)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.samples


def test_a_pass_without_samples_is_refused_and_is_no_divergence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train yielded no batch; make sure that every pass starts"):
        ul.train(net(), DataLoader(Once(), batch_size=20), (X, Y), runs_dir=tmp_path, **RUN)
    large = DataLoader(TensorDataset(X, Y), batch_size=100, drop_last=True)
    with pytest.raises(InputError, match="train yielded no batch"):
        ul.train(net(), large, (X, Y), runs_dir=tmp_path, **RUN)


def test_test_samples_that_are_dropped_and_classes_without_a_score_are_named(tmp_path: Path) -> None:
    some = DataLoader(TensorDataset(X, Y), batch_size=25, drop_last=True)
    with pytest.warns(DataWarning, match="test leaves out up to 10 of its 60 samples"):
        ul.train(net(), (X, Y), some, runs_dir=tmp_path, **RUN)
    with pytest.raises(InputError, match="classes of a batch are 3 to 4, but net returns 2 scores"):
        ul.train(net(), DataLoader(TensorDataset(X, Y + 3), batch_size=20), (X, Y), runs_dir=tmp_path, **RUN)


def test_a_network_that_takes_the_mean_over_padding_is_named(tmp_path: Path) -> None:
    class Mean(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).mean(0)

    data = torch.rand(20, 5, 6), Y[:20], 1 + torch.arange(20) % 5
    with pytest.warns(DataWarning, match="without time, so they may depend on padded steps"):
        ul.train(Mean(*net()), data, data, events=True, runs_dir=tmp_path, epochs=1, progress=False)


def test_a_digest_sees_the_first_and_the_last_sample() -> None:
    digests = set()
    for changed in (None, 0, 599):
        data = torch.zeros(600, 6)
        if changed is not None:
            data[changed, 3] = 1.0
        loader = DataLoader(TensorDataset(data, torch.arange(600) % 2), batch_size=50)
        digests.add(Stream("train", loader, events=False).digest())
    assert len(digests) == 3


def test_targets_over_time_are_turned_with_their_samples() -> None:
    x = torch.arange(24.0).view(4, 6, 1)
    loader = DataLoader(TensorDataset(x, x[..., 0]), batch_size=4)
    ((frames, targets, _),) = Stream("train", loader, events=True, timed=True).batches(iter(range(9)))
    assert frames.shape == (6, 4, 1) and torch.equal(frames[..., 0], targets)


def test_a_single_nan_in_a_batch_is_refused() -> None:
    x = torch.rand(8, 3)
    x[6, 1] = torch.nan
    stream = Stream("train", DataLoader(TensorDataset(x, torch.arange(8)), batch_size=4), events=False)
    with pytest.raises(InputError, match="NaN"):
        list(stream.batches(iter(range(9))))


class Drawn(Dataset[tuple[Tensor, int]]):
    """Samples drawn by numpy, or by Python's own generator."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.full((3,), self.draw()), i % 2


@pytest.mark.parametrize("draw", [np.random.random, random.random], ids=["numpy", "python"])
def test_a_pass_repeats_what_its_dataset_draws(draw: Callable[[], float]) -> None:
    stream = Stream("train", DataLoader(Drawn(draw), batch_size=2), events=False)
    first, again, other = (
        torch.cat([x for x, *_ in stream.batches(iter(range(begin, begin + 9)))]) for begin in (0, 0, 50)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


class Epochs(SequentialSampler):
    """A sampler that is told the epoch, as those of distributed training are."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.told: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)


def test_a_sampler_is_told_the_epoch(tmp_path: Path) -> None:
    data = TensorDataset(X, Y)
    sampler = Epochs(data)
    ul.train(net(), DataLoader(data, batch_size=20, sampler=sampler), (X, Y), runs_dir=tmp_path, **RUN)
    assert len(set(sampler.told)) == RUN["epochs"]


def test_memory_and_stream_give_the_same_accuracy(tmp_path: Path) -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=7)
    one = ul.train(net(), (X, Y), loader, runs_dir=tmp_path, **RUN)
    other = ul.train(net(), (X, Y), (X, Y), runs_dir=tmp_path, **RUN)
    assert one.accuracy == other.accuracy and one.id != other.id
    assert one.spike_rate == pytest.approx(other.spike_rate)


@pytest.mark.parametrize("steps", [3, 4, 5])
def test_time_and_batch_are_told_apart(steps: int) -> None:
    """Also where a batch has as many samples as steps."""
    frames = torch.rand(20, steps, 2)

    class Recordings(Dataset[tuple[Tensor, Tensor]]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
            return frames[i], torch.tensor(i % 2)

    def time_first(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return torch.stack([x for x, _ in samples], 1), torch.stack([y for _, y in samples])

    for collate in (None, time_first):
        loader = DataLoader(Recordings(), batch_size=4, collate_fn=collate)
        stream = Stream("train", loader, events=True)
        assert stream.timesteps == steps and stream.shape == (2,)
        x, _, _ = next(stream.batches(iter(range(100))))
        torch.testing.assert_close(x, frames[:4].transpose(0, 1))


@pytest.mark.parametrize("make", [net, lambda: ul.Network((6, 8, 2))], ids=["layers", "perceptron"])
def test_rates_and_readout_leave_padding_out(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    """Padding that would make every neuron fire changes neither rates nor accuracy."""
    lengths = torch.randint(2, 6, (40,), generator=torch.Generator().manual_seed(0))
    samples = [
        (torch.rand(int(n), 6, generator=torch.Generator().manual_seed(i)), i % 2)
        for i, n in enumerate(lengths)
    ]

    class Recordings(Dataset[tuple[Tensor, int]]):
        def __len__(self) -> int:
            return len(samples)

        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            return samples[i]

    def loud(batch: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
        x, y, kept = pad_samples(batch)
        steps = torch.arange(x.shape[1])[None, :, None]
        return torch.where(steps < kept[:, None, None], x, torch.full_like(x, 50.0)), y, kept

    results = []
    for collate, size in ((pad_samples, 40), (loud, 40), (None, 1)):
        test = DataLoader(Recordings(), batch_size=size, collate_fn=collate)
        train = DataLoader(Recordings(), batch_size=8, collate_fn=pad_samples)
        options = {**RUN, "timesteps": 5, "epochs": 1, "events": True}
        torch.manual_seed(1)
        results.append(ul.train(make(), train, test, runs_dir=tmp_path, **options))
    assert results[0].accuracy == results[1].accuracy == results[2].accuracy
    for other in results[1:]:
        assert other.spike_rate["hard"] == pytest.approx(results[0].spike_rate["hard"], rel=1e-5)
    assert results[1].spike_rate == results[0].spike_rate


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        (DataLoader(TensorDataset(X, X), batch_size=8), {}, "one class"),
        (DataLoader(TensorDataset(X, Y), batch_size=8), {"events": True}, r"samples \[B, T, ...\]"),
        (DataLoader(TensorDataset(X, Y), batch_size=8), {"validation": 0.2}, "validation set itself"),
        (DataLoader(TensorDataset(X * torch.nan, Y), batch_size=8), {}, "NaN"),
        (DataLoader([torch.rand(6)] * 9, batch_size=3), {}, "pairs of"),
    ],
    ids=["targets", "events", "share", "nan", "no targets"],
)
def test_loaders_that_cannot_be_used_are_refused(
    source: Any, options: dict, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        ul.train(net(), source, (X, Y), runs_dir=tmp_path, **RUN, **options)


def test_recordings_that_are_not_frames_name_the_remedy(tmp_path: Path) -> None:
    events = np.zeros(5, [("t", int), ("x", int), ("y", int), ("p", int)])
    with pytest.raises(InputError, match=r"ul\.data\.to_frames"):
        Stream("train", DataLoader([(events, 0)] * 4, batch_size=2), events=True)  # type: ignore[arg-type]


def test_a_forgotten_events_is_named(tmp_path: Path) -> None:
    frames = torch.rand(8, 5, 2, 6, 6)
    convolution = nn.Sequential(ul.TimeDistributed(nn.Conv2d(2, 4, 3)), ul.UltraLIF(), nn.Flatten(2))
    data = frames, torch.arange(8) % 2
    with pytest.raises(RuntimeError) as error:
        ul.train(convolution, data, data, runs_dir=tmp_path, **RUN)
    assert any("pass events=True" in note for note in error.value.__notes__)


def test_samples_of_different_lengths_name_the_remedy() -> None:
    data = [(torch.rand(n, 6), 0) for n in (3, 4, 5)]
    with pytest.raises(InputError, match=r"collate_fn=ul\.data\.pad_samples"):
        Stream("train", DataLoader(data, batch_size=2), events=True)  # type: ignore[arg-type]


def test_what_a_dataset_keeps_does_not_rename_data_that_it_also_collates() -> None:
    class Collating(Noisy):
        def collate(self, samples: list[Any]) -> Any:
            return default_collate(samples)

    data = Collating()  # it remembers every draw
    loader = DataLoader(data, 20, collate_fn=data.collate)
    assert ul.data.register_data(loader, loader) == ul.data.register_data(loader, loader)
