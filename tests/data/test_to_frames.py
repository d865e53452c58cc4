"""Events of one's own as frames: parity with tonic, every form of input, and augmentations."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import ultralif as ul
from ultralif.data import events as ev
from ultralif.errors import InputError

DTYPE = np.dtype([("x", np.int16), ("y", np.int16), ("t", np.int64), ("p", bool)])


def recording(seed: int, count: int = 500) -> np.ndarray:
    draw = np.random.default_rng(seed)
    events = np.zeros(count, DTYPE)
    events["x"], events["y"] = draw.integers(0, 20, count), draw.integers(0, 12, count)
    events["t"], events["p"] = np.sort(draw.integers(0, 100_000, count)), draw.random(count) < 0.5
    return events


def by_definition(events: np.ndarray, timesteps: int) -> torch.Tensor:
    frames = torch.zeros(timesteps, 2, 12, 20)
    first = int(events["t"].min())
    width = (int(events["t"].max()) - first) // timesteps
    for event in events:
        step = (int(event["t"]) - first) // width
        if step < timesteps:
            frames[step, int(event["p"]), event["y"], event["x"]] += 1
    return frames


@pytest.mark.parametrize("timesteps", [1, 3, 10])
def test_frames_are_those_of_the_definition_and_of_tonic(timesteps: int) -> None:
    for seed in range(5):
        events = recording(seed)
        ours = ul.data.to_frames(events, timesteps, (2, 12, 20))
        assert torch.equal(ours, by_definition(events, timesteps)) and ours.sum() > 400
        tonic = pytest.importorskip("tonic")
        theirs = tonic.transforms.ToFrame(sensor_size=(20, 12, 2), n_time_bins=timesteps)(events)
        assert np.array_equal(ours.numpy(), theirs)


def test_every_form_of_a_recording_gives_the_same_frames() -> None:
    events = recording(7)
    wanted = ul.data.to_frames(events, 4, (2, 12, 20))
    columns = [events[name].astype(np.int64) for name in ("t", "x", "y", "p")]
    signed = [*columns[:3], 2 * columns[3] - 1]
    renamed = events.astype([("x", "i2"), ("Y", "i2"), ("timestamp", "i8"), ("polarity", "?")])
    mixed = np.random.default_rng(0).permutation(events)
    for given in (
        tuple(columns),
        tuple(map(torch.as_tensor, signed)),
        np.stack(columns, 1),
        torch.as_tensor(np.stack(columns, 1)),
        renamed,
        mixed,
    ):
        assert torch.equal(ul.data.to_frames(given, 4, (2, 12, 20)), wanted)
    assert torch.equal(ul.data.to_frames(events, 4, (12, 20)), wanted.sum(1))
    channels = events[["t", "x"]]
    assert torch.equal(ul.data.to_frames(channels, 4, 20), wanted.sum((1, 2)))


def test_times_in_seconds_and_short_recordings_are_binned_too() -> None:
    t, x = np.array([0.0, 0.1, 0.26, 0.74, 1.0]), np.array([0, 1, 1, 2, 0])
    frames = ul.data.to_frames((t, x), 4, 3)
    assert frames.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    short = ul.data.to_frames((np.array([5, 6, 7]), np.array([0, 1, 2])), 10, 3)
    assert short.sum(1).tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert ul.data.to_frames((np.array([], int), np.array([], int)), 4, 3).sum() == 0
    assert ul.data.to_frames(([3], [1]), 4, 3).sum() == 0  # the last event is dropped, as by tonic


def test_it_is_a_transform() -> None:
    transform = partial(ul.data.to_frames, timesteps=5, size=(2, 12, 20))
    samples = [(transform(recording(seed)), seed % 2) for seed in range(6)]
    x, y = next(iter(DataLoader(samples, batch_size=3)))  # type: ignore[arg-type]
    assert x.shape == (3, 5, 2, 12, 20) and y.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("given", "size", "words"),
    [
        (recording(0), (20, 12, 2), "opposite order of tonic's sensor_size"),
        (recording(0), (12, 12), "x ranges from 0 to 19"),
        (recording(0)[["t", "x"]], (12, 20), "no field y, only t, x"),
        (([0, 1], [0, 1, 2]), 3, "all of the same length"),
        (([0, 1], [0.5, 1]), 3, "x must be integers"),
        (([0.0, float("nan")], [0, 1]), 3, "NaN"),
        (np.zeros(3), 3, "structured array"),
        (recording(0), (), "and size (polarities"),
    ],
)
def test_bad_recordings_get_one_clear_error(given, size, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        ul.data.to_frames(given, 4, size)


@pytest.fixture
def frames() -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 4, (6, 50, 2, 9, 11), generator=draw).float()


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def test_drop_removes_single_events(frames: torch.Tensor) -> None:
    kept = ev.drop(frames, 0.3, generator=generator())
    assert bool((kept <= frames).all()) and bool((kept == kept.round()).all())
    assert kept.sum() / frames.sum() == pytest.approx(0.7, abs=0.01)
    assert bool(((kept > 0) & (kept < frames)).any())  # of two events in one cell, one can go
    assert torch.equal(ev.drop(frames, 0.3, generator=generator()), kept)
    assert torch.equal(ev.drop(frames, 0.0), frames) and ev.drop(frames, 1.0).sum() == 0


def test_flip_mirrors_whole_recordings(frames: torch.Tensor) -> None:
    out = ev.flip(frames, generator=generator())
    mirrored = torch.tensor([torch.equal(out[:, i], frames[:, i].flip(-1)) for i in range(50)])
    same = torch.tensor([torch.equal(out[:, i], frames[:, i]) for i in range(50)])
    assert bool((mirrored ^ same).all()) and 10 < int(mirrored.sum()) < 40


def test_shift_moves_whole_recordings(frames: torch.Tensor) -> None:
    out = ev.shift(frames, 2, generator=generator())
    found = set()
    for i in range(50):
        padded = torch.nn.functional.pad(frames[:, i], [2] * 4)
        matches = [
            (dy, dx)
            for dy in range(5)
            for dx in range(5)
            if torch.equal(padded[..., dy : dy + 9, dx : dx + 11], out[:, i])
        ]
        assert len(matches) == 1
        found.add(matches[0])
    assert len(found) > 12  # of 25
    assert torch.equal(ev.shift(frames, 0), frames)
    line = torch.eye(7).reshape(7, 1, 7)
    assert ev.shift(line, 1, generator=generator()).shape == (7, 1, 7)


def test_jitter_moves_events_in_time_and_loses_none(frames: torch.Tensor) -> None:
    out = ev.jitter(frames, 1, generator=generator())
    assert torch.equal(out.sum(0), frames.sum(0)) and not torch.equal(out, frames)
    one = torch.zeros(5, 4000, 1)
    one[2] = 1.0
    moved = ev.jitter(one, 1, generator=generator()).mean((1, 2))
    torch.testing.assert_close(moved, torch.tensor([0, 1 / 3, 1 / 3, 1 / 3, 0]), atol=0.03, rtol=0)
    assert torch.equal(ev.jitter(frames, 0), frames)


def test_augmentations_refuse_what_they_cannot_use(frames: torch.Tensor) -> None:
    for call in (
        lambda: ev.drop(frames, 1.5),
        lambda: ev.flip(frames, -0.1),
        lambda: ev.shift(frames, -1),
        lambda: ev.jitter(frames, -1),
        lambda: ev.drop(frames.long(), 0.5),
        lambda: ev.flip(torch.rand(4, 5)),
    ):
        with pytest.raises(InputError):
            call()
