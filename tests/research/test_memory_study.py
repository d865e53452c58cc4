"""The study of memory trains every neuron it names, and on a GPU by recorded steps."""

from typing import Any

import pytest
import torch

CLASSES = 10


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tasks, small, with random samples."""
    from research.studies import memory_tasks

    def load(task: str, folder: None, device: str, most: None) -> tuple[Any, Any]:
        draw = torch.Generator().manual_seed(0)
        labels = torch.arange(40) % CLASSES
        x = torch.rand(28, 40, 28, generator=draw)
        if task == "columns":
            x = torch.randint(256, (40, 3, 32, 32), dtype=torch.uint8, generator=draw)
        samples = memory_tasks.TaskSamples(*(part.to(device) for part in (x, labels, torch.arange(40))))
        return samples, samples

    monkeypatch.setattr(memory_tasks, "load", load)
    for name, task in memory_tasks.TASKS.items():
        monkeypatch.setitem(memory_tasks.TASKS, name, task._replace(hidden=8, batch=8, epochs=3))
    return memory_tasks


@pytest.mark.parametrize("task", ["rows", "columns", "permuted"])
def test_every_neuron_is_trained_and_judged(tasks: Any, task: str) -> None:
    from research.studies.memory_nets import METHODS

    for method in METHODS:
        row = tasks.measure(tasks.grid(task, method)[0]._replace(held=False), None, "cpu")
        assert 0 <= row["hard"] <= 100
        assert row["memory"] < 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable")
def test_recorded_steps_are_those_taken_one_by_one(tasks: Any, capfd: pytest.CaptureFixture[str]) -> None:
    cell = tasks.grid("rows", "none")[0]
    with torch.cuda.stream(torch.cuda.Stream()):
        data = tasks.load("rows", None, "cuda", None)[0]
        nets = [tasks.train(cell, data, 3, record=record).state_dict() for record in (True, False)]
        torch.testing.assert_close(*nets, rtol=1e-3, atol=1e-3)
        pictures = tasks.load("columns", None, "cuda", None)[0]
        for method in ("saturate", "PLIF, learned width"):
            tasks.train(tasks.grid("columns", method)[0], pictures, 3, record=True)
        torch.cuda.synchronize()
    assert "cannot be recorded" not in capfd.readouterr().out
