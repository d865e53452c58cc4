"""Steps that a GPU replays are those that it takes one by one; rehearsed on the CPU, and run on a GPU."""

import gc
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from research.paper.grids import CONTROLS, main_variants
from ultralif.data.dataset import Dataset
from ultralif.data.split import Images, Split
from ultralif.training import Interrupted, Progress, graph, loop
from ultralif.training.batches import Data
from ultralif.training.graph import _Recorder, no_garbage_collection
from ultralif.training.loop import Job, prepare_epoch
from ultralif.training.networks import build_networks
from ultralif.training.optimizer import Adam

CPU = torch.device("cpu")
WAYS = ("forward", "backward")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
X = torch.rand(70, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = (X.mean((1, 2, 3)) > 0.5).long()
RUN: dict[str, Any] = {
    "timesteps": 2, "epochs": 4, "batch_size": 32, "hard_epochs": 2, "warmup_epochs": 1, "optimizer": "sgd",
    "learning_rate": 0.05, "encoding": "constant",
}  # fmt: skip


class Asking(nn.Module):
    """Looks at a number, which a step that is recorded cannot."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum().item() > 0 else -x


def network(*more: nn.Module) -> nn.Sequential:
    """Return a network none of whose gradients are mere rounding, of which Adam would make whole steps."""
    torch.manual_seed(1)
    first = ul.TimeDistributed(nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3)))
    layers = (first, ul.UltraLIF(eps=0.3), *more, nn.Flatten(2), nn.Dropout(0.3), nn.Linear(108, 2))
    return nn.Sequential(*layers)


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a record be a step whose changes are undone, and a replay one that is taken; list what happens."""
    done: list[str] = []

    class Graph:
        def replay(self) -> None:
            done.append("replay")
            recorder, given = self.about  # type: ignore[attr-defined]
            recorder.take(*given)

    @contextmanager
    def recording(made: Graph, pool: object) -> Iterator[None]:
        recorder, given = current[-1]
        made.about = (recorder, given)  # type: ignore[attr-defined]
        before = [tensor.clone() for tensor in recorder._tensors()]
        asked = [module for module in recorder.job.members.unstack()[0].modules() if type(module) is Asking]
        yield
        if asked:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        done.append("record")
        for tensor, value in zip(recorder._tensors(), before, strict=True):
            tensor.copy_(value)

    class Stream:
        def wait_stream(self, other: object) -> None:
            pass

    current: list[tuple[_Recorder, tuple[Any, ...]]] = []
    record = _Recorder._record

    def noted(self: _Recorder, *given: Any) -> None:
        current.append((self, given))
        record(self, *given)

    cuda = graph.torch.cuda
    for name, value in {
        "CUDAGraph": Graph, "graph": recording, "graph_pool_handle": object, "Stream": lambda _: Stream(),
        "current_stream": lambda _: Stream(), "stream": lambda _: nullcontext(),
    }.items():  # fmt: skip
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setattr(graph, "leave_record", lambda stream: None)
    monkeypatch.setattr(_Recorder, "_record", noted)
    monkeypatch.setattr(loop, "eager_steps", lambda job: graph.graph_steps(job, notes.append))
    notes: list[str] = done
    return done


def train(folder: Path, device: str, *more: nn.Module, **options: Any) -> dict[str, Tensor]:
    net = network(*more)
    ul.train(net, (X, Y), (X, Y), runs_dir=folder, device=device, **{**RUN, **options})
    return {name: value.cpu() for name, value in net.state_dict().items()}


def stacked_job(samples: int, device: torch.device, **options: Any) -> Job:
    """Begin to train the paper's 18 variants on random images."""
    members = [v.config("mnist", 2, 42) for v in main_variants() if v not in CONTROLS]
    kernels = [re.sub("Unclipped|Unscaled", "", m.neuron) for m in members]
    members = [m.with_(neuron=name, **options) for m, name in zip(members, kernels, strict=True)]
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (samples, 1, 28, 28), dtype=torch.uint8, generator=draw).to(device)
    labels = torch.randint(10, (samples,), generator=draw).to(device)
    split = Split(Images(pixels), labels, torch.arange(samples, device=device))
    dataset = Dataset("mnist", (1, 28, 28), 10, tuple("0123456789"), split, split, "", None, None)
    job = Job.begin(members, build_networks(members, device), Data(dataset, split, None), device)
    prepare_epoch(job)
    return job


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], near: float = 0.0) -> None:
    torch.testing.assert_close(one, other, rtol=near, atol=near)


def test_rehearsed_steps_are_those_that_are_taken_one_by_one(
    tmp_path: Path, rehearsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record a mode; the last batch of an epoch, which is smaller, is not replayed."""
    replayed = train(tmp_path / "a", "cpu")
    assert rehearsed == (["record"] + ["replay"] * 4) * 2
    monkeypatch.undo()
    assert_same(replayed, train(tmp_path / "b", "cpu"))


def test_rehearsed_steps_go_on_where_they_were_stopped(tmp_path: Path, rehearsed: list[str]) -> None:
    whole = train(tmp_path / "a", "cpu")
    asked = iter(range(100))
    with pytest.raises(Interrupted):
        train(tmp_path / "b", "cpu", stopping=lambda: int(next(asked) == 4))
    assert_same(whole, train(tmp_path / "b", "cpu"))


def test_a_network_that_asks_is_run_as_it_is_and_says_so_once(tmp_path: Path, rehearsed: list[str]) -> None:
    train(tmp_path, "cpu", Asking())
    assert rehearsed == [
        "steps cannot be recorded as a CUDA graph (operation not permitted when stream is capturing); "
        "kernels are launched one by one"
    ]


def test_no_object_is_freed_while_a_step_is_recorded() -> None:
    class Cycle:
        pass

    def make() -> weakref.ref[Cycle]:
        cycle = Cycle()
        cycle.itself = cycle  # type: ignore[attr-defined]
        return weakref.ref(cycle)

    before = make()
    with no_garbage_collection():
        assert before() is None
        inside = make()
        garbage = [[n] for n in range(100_000)]
        assert inside() is not None and garbage
    assert gc.isenabled()


def test_a_step_of_a_stack_is_few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six kinds of eighteen members: a kernel each forward and back; one each for all constants; the rest."""
    pytest.importorskip("triton")
    from ultralif.ops import autograd
    from ultralif.ops.triton import encode, launch, plan
    from ultralif.stack import kernels

    launched: Counter[str] = Counter()

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *args, **options: launched.update([self.name])

    for name in kernels.__all__:
        monkeypatch.setattr(kernels, name, Kernel(name))
    monkeypatch.setattr(encode, "images_kernel", Kernel("images_kernel"))
    monkeypatch.setattr(launch.Launch, "__call__", lambda self, *_: launched.update([self.kernel.__name__]))
    monkeypatch.setattr(autograd, "on_gpu", lambda current: True)
    monkeypatch.setattr(autograd, "has_kernel", lambda *about: True)
    monkeypatch.setattr(Adam, "_move", Adam._move_at_once)
    job = stacked_job(128, CPU)
    launched.clear()
    feed = graph._Made(job)
    feed.hand_over(128)
    _Recorder(job, feed, lambda note: None).take(None, 128)
    plan.forget()
    kinds = {f"{family}_{way}_kernel": n for family, n in (("temporal", 4), ("ring", 2)) for way in WAYS}
    rest = {f"{name}_kernel": 1 for name in ("images", "decode", "gather", "readout", "adam")}
    assert launched == {**kinds, **rest}


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("options", [{}, {"optimizer": "adam", "learning_rate": 0.01}], ids=str)
def test_a_gpu_replays_the_steps_that_it_takes_one_by_one(tmp_path: Path, options: dict[str, Any]) -> None:
    notes: list[Progress] = []
    replayed = train(tmp_path / "a", "cuda", report=notes.append, **options)
    assert not [told.note for told in notes if told.note]
    assert_same(replayed, train(tmp_path / "b", "cuda", graph=False, **options), near=1e-3)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_gpu_replays_the_steps_of_a_stack(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds side by side, and short work beside long: five steps of two sizes, all sums and parameters."""
    found = []
    for _ in range(2):
        job = stacked_job(600, torch.device("cuda"), timesteps=1, optimizer=optimizer)
        notes: list[str] = []
        assert len(list(loop.steps(job, notes.append)(job))) == 5 and not notes
        found.append({**job.parameters(), **job.optimizer.tensors(), "sums": job.sums})
        monkeypatch.setattr(_Recorder, "find", lambda *_: None)  # kernel by kernel
    assert_same(*found, near=1e-5)


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_runs_a_network_that_asks(tmp_path: Path) -> None:
    told: list[Progress] = []
    asking = train(tmp_path / "a", "cuda", Asking(), report=told.append)
    assert len([progress.note for progress in told if progress.note]) == 1
    assert_same(asking, train(tmp_path / "b", "cuda", Asking(), graph=False), near=1e-3)
