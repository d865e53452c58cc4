"""Tasks beyond classes: several labels at once, and a forecast of a chaotic series."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.errors import InputError
from ultralif.training import Interrupted, losses
from ultralif.training.api import user_config
from ultralif.training.callbacks import EarlyStopping, EpochState, TensorBoard, WandB

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "mackey_glass.py"


def forecasting() -> Any:
    spec = importlib.util.spec_from_file_location("mackey_glass", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUN: dict[str, Any] = {"progress": False, "device": "cpu"}


def smape(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (2 * (scores - targets).abs() / (scores.abs() + targets.abs())).mean()


def test_two_labels_of_padded_sequences_are_learned(tmp_path: Path) -> None:
    """Label 0: the first channel is busy; label 1: the second. Lengths differ, and padding is noise."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (400, 2), generator=draw).float()
    lengths = torch.randint(4, 11, (400,), generator=draw)
    mask = losses.step_mask(lengths, 10).T
    chance = 0.1 + 0.6 * labels[:, None].expand(-1, 10, -1)
    x = (torch.rand(400, 10, 2, generator=draw) < chance).float()
    x = torch.where(mask[..., None], x, torch.ones_like(x))

    def both(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((scores > 0).float() == targets).all(1).float().mean()

    def trained(readout: Any) -> float:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 32), ul.UltraLIF(), nn.Linear(32, 2), ul.LeakyIntegrator())
        halves = [(x[part], labels[part], lengths[part]) for part in (slice(0, 300), slice(300, 400))]
        options = {"loss": "bce", "readout": readout, "metrics": {"both": both}, "events": True, "epochs": 20}
        result = ul.train(
            net, *halves, runs_dir=tmp_path, batch_size=50, learning_rate=0.02, **RUN, **options
        )
        assert result.own.accuracy is None and result.own.metrics.keys() == {"loss", "both"}
        read = ul.Store(tmp_path).read(result.id).result
        assert read.metrics == result.metrics and "soft both" in repr(read)
        return float(result.own.metrics["both"] or 0.0)

    assert (last := trained("last")) > 0.85  # one in four by chance

    def ignoring(steps: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return steps[-1]

    assert trained(ignoring) < last


def test_numbers_are_regressed_and_the_best_epoch_is_kept(tmp_path: Path) -> None:
    """The learning rate is far too large, so that the last epoch is not the best."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(200, 4, generator=draw)
    y = x.sum(1, keepdim=True)
    sets = [(x[part], y[part]) for part in (slice(0, 120), slice(120, 160), slice(160, 200))]
    states: list[EpochState] = []

    class Keep:
        def on_epoch_end(self, state: EpochState) -> None:
            states.append(state)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 32), ul.UltraLIF(), nn.Linear(32, 1))
    result = ul.train(
        *(net, sets[0], sets[1]),
        validation=sets[2],
        loss="mse",
        metrics={"smape": smape},
        keep_best="min smape",
        callbacks=[Keep()],
        runs_dir=tmp_path,
        **{
            **RUN,
            "timesteps": 4,
            "epochs": 12,
            "batch_size": 20,
            "learning_rate": 0.3,
            "schedule": "constant",
        },
    )
    values = [state.metrics["validation_smape"] for state in states]
    assert len(values) == 12 and result.epochs == 1 + values.index(min(values)) < 12
    with torch.no_grad():
        kept = smape(net(sets[2][0].expand(4, -1, -1)).mean(0), sets[2][1])
    assert float(kept) == pytest.approx(min(values), rel=1e-4)
    history = ul.Store(tmp_path).read(result.id).history
    assert [epoch["validation_smape"] for epoch in history] == values


def test_training_stops_early_and_a_network_learns_targets_over_time(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(80, 6, 2, generator=draw)
    y = x.cumsum(1).sum(2, keepdim=True) / 6  # a target for each step
    net = nn.Sequential(nn.Linear(2, 16), ul.UltraLIF(), nn.Linear(16, 1), ul.LeakyIntegrator())
    options: dict[str, Any] = {"loss": "mse", "readout": None, "events": True, "validation": (x, y)}
    stop = EarlyStopping("loss", patience=2)
    result = ul.train(
        net,
        (x, y),
        (x, y),
        callbacks=[stop],
        runs_dir=tmp_path,
        epochs=60,
        learning_rate=0.3,
        **options,
        **RUN,
    )
    history = [epoch["validation_loss"] for epoch in ul.Store(tmp_path).read(result.id).history]
    assert 3 <= result.epochs == len(history) < 60
    assert history.index(min(history)) == len(history) - 3
    assert float(result.own.metrics["loss"] or 9) == pytest.approx(history[-1], rel=1e-4)


def test_a_stopped_run_that_keeps_the_best_resumes_to_the_same_bits(tmp_path: Path) -> None:
    x = torch.rand(60, 4, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"timesteps": 2, "epochs": 4, "batch_size": 20, "learning_rate": 0.5, **RUN}
    options |= {"loss": losses.mse, "keep_best": "loss", "validation": (x[:20], x[:20, :1])}
    found = []
    for folder, stops in (("whole", ()), ("parts", (5, 4))):
        for stop in (*stops, 10**6):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(4, 8), ul.UltraLIF(), nn.Linear(8, 1))
            calls = iter([0] * (stop - 1) + [9] if stop < 10**6 else [0] * 99)
            given = {"stopping": calls.__next__, "runs_dir": tmp_path / folder, **options}
            if stop < 10**6:
                with pytest.raises(Interrupted):
                    ul.train(net, (x, x[:, :1]), (x, x[:, :1]), **given)
            else:
                found.append((ul.train(net, (x, x[:, :1]), (x, x[:, :1]), **given), net.state_dict()))
    assert found[0][0].epochs == found[1][0].epochs
    for name, value in found[0][1].items():
        assert torch.equal(value, found[1][1][name]), name


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"loss": "hinge"}, "loss must be one of"),
        ({"keep_best": "loss"}, "not measured on a validation set"),
        ({"keep_best": "f1", "validation": 0.2}, "'min f1' or 'max f1'"),
        ({"keep_best": "max f1", "validation": 0.2}, "not measured on a validation set"),
        ({"callbacks": [EarlyStopping("accuracy")]}, "not measured on a validation set"),
        ({"loss": lambda scores, targets: (scores - 1).square()}, "single number"),
        ({"loss": "mse"}, "targets in the shape of the scores"),
        ({"keep_best": "loss", "validation": 0.2, "hard_share": 0.5}, "keep_best needs"),
    ],
    ids=["loss", "no set", "sense", "metric", "early", "not a number", "shape", "two modes"],
)
def test_tasks_that_cannot_be_trained_are_refused(options: dict, says: str, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 8), ul.UltraLIF(), nn.Linear(8, 2))
    x, y = torch.rand(20, 4), torch.arange(20) % 2
    with pytest.raises(InputError, match=says):
        ul.train(net, (x, y), (x, y), runs_dir=tmp_path, timesteps=2, epochs=1, **RUN, **options)


def test_tasks_and_changed_losses_are_other_runs() -> None:
    x, y = torch.rand(20, 4), torch.arange(20) % 2
    net = nn.Sequential(nn.Linear(4, 8), ul.UltraLIF(), nn.Linear(8, 2))

    def config(**options: Any) -> str:
        return user_config(net, (x, y), (x, y), timesteps=2, **options).id

    def scaled(factor: float) -> Any:
        return lambda scores, targets: factor * losses.cross_entropy(scores, targets)

    tasks: list[dict[str, Any]] = [{}, {"loss": "tet"}, {"loss": "rate-mse"}, {"readout": "last"}]
    tasks += [{"loss": scaled(1.0)}, {"loss": scaled(2.0)}, {"callbacks": [EarlyStopping("loss")]}]
    tasks[-1]["validation"] = 0.5
    assert len({config(**task) for task in tasks}) == len(tasks)
    assert config(loss=scaled(1.0)) == config(loss=scaled(1.0))
    assert config(metrics={"one": smape}) == config(), "metrics change no training"


def test_every_quantity_is_logged_while_a_network_is_trained(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    x, y = torch.rand(40, 4), torch.arange(40) % 2
    net = nn.Sequential(nn.Linear(4, 8), ul.UltraLIF(), nn.Linear(8, 2))
    logger = TensorBoard(tmp_path / "board")
    options: dict[str, Any] = {"timesteps": 2, "epochs": 3, "validation": 0.25, "callbacks": [logger], **RUN}
    result = ul.train(net, (x, y), (x, y), runs_dir=tmp_path, **options)
    (folder,) = (tmp_path / "board").iterdir()
    assert folder.name == result.id
    read = EventAccumulator(str(folder)).Reload()
    assert {"loss", "accuracy", "validation", "validation_loss", "eps"} <= set(read.Tags()["scalars"])
    assert [event.step for event in read.Scalars("loss")] == [1, 2, 3]


def test_weights_and_biases_gets_every_epoch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in takes its place, since it wants an account."""
    logged: list[Any] = []

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            logged.append((step, sorted(values)[:2]))

        def finish(self) -> None:
            logged.append("finished")

    class Stop:
        def on_epoch_end(self, state: Any) -> bool:
            return True

    module = ModuleType("wandb")
    module.init = lambda **options: logged.append(options["project"]) or Run()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    x, y = torch.rand(40, 4), torch.arange(40) % 2
    net = nn.Sequential(nn.Linear(4, 8), ul.UltraLIF(), nn.Linear(8, 2))
    for callbacks in ([WandB(project="stopped"), Stop()], [WandB(project="p")]):
        options: dict[str, Any] = {"timesteps": 2, "epochs": 2, "callbacks": callbacks, **RUN}
        ul.train(net, (x, y), (x, y), runs_dir=tmp_path, **options)
    first, *rest = (1, ["accuracy", "eps"]), (2, ["accuracy", "eps"]), "finished"
    assert logged == ["stopped", first, "finished", "p", first, *rest]


def test_the_series_solves_the_equation() -> None:
    module = forecasting()
    coarse, fine = module.series(200, 170), module.series(200, 680)
    assert coarse.shape == (200,) and bool(coarse.isfinite().all())
    torch.testing.assert_close(coarse[:100], fine[:100], rtol=0, atol=1e-4)
    assert float(coarse[0]) == pytest.approx(module.PAST) and 0.2 < float(coarse.min()) < 0.6
    assert 1.2 < float(coarse.max()) < 1.5


def test_the_error_is_that_of_neurobench() -> None:
    smape = pytest.importorskip("neurobench.metrics.workload.smape")
    predicted, wanted = torch.rand(50, 1) + 0.5, torch.rand(50, 1) + 0.5
    theirs = smape.SMAPE()(None, predicted, (predicted, wanted))
    assert forecasting().smape(predicted, wanted) == pytest.approx(theirs, rel=1e-5)


def test_a_short_training_forecasts_better_than_the_mean() -> None:
    module = forecasting()
    points = module.series(900)
    mean = module.smape(points[:750].mean().expand(150), points[750:])
    assert module.repeat(points, "UltraLIF", 64, 300, 0, "soft") < mean


def test_auto_picks_apples_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from ultralif.training.device import pick_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto").type == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
