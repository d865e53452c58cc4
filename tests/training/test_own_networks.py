"""Networks as people write them: spikes are counted in any call, and trained networks come back."""

import os
import signal
import subprocess
import sys
import threading
import types
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import ultralif as ul
from ultralif.errors import InputError
from ultralif.training import Interrupted, Store, losses, networks
from ultralif.training.members import Single

X = torch.rand(64, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0.5).long()
RUN: dict[str, Any] = {"timesteps": 5, "epochs": 2, "batch_size": 32, "progress": False}


class Calls(nn.Module):
    """A recurrent layer, one called by ``run`` in two pieces, one by ``step``, and one as a module."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 6)
        self.recurrent = ul.Recurrent(ul.UltraLIF(), nn.Linear(6, 6))
        self.pieces, self.steps, self.plain = ul.UltraLIF(), ul.LIF(), ul.UltraLIF()
        self.last = nn.Linear(6, 2)

    def spikes(self, x: Tensor) -> list[Tensor]:
        recurrent = self.recurrent(self.first(x))
        head, state = self.pieces.run(3 * recurrent[:2])
        pieces = torch.cat([head, self.pieces.run(3 * recurrent[2:], state)[0]])
        state, steps = None, []
        for current in 3 * pieces:
            spike, state = self.steps.step(current, state)
            steps.append(spike)
        plain = self.plain(torch.stack(steps) + 0.4)
        return [recurrent, pieces, torch.stack(steps), plain]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.spikes(x)[-1])


def test_spikes_are_counted_however_a_neuron_is_called(tmp_path: Path) -> None:
    net = Calls()
    result = ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN)
    with torch.no_grad(), ul.mode(net, "hard"):
        found = [float(spikes.mean()) for spikes in net.spikes(X.expand(5, -1, -1))]
    assert result.by_mode["hard"].spike_rates == pytest.approx(found, abs=1e-6) and max(found) > 0
    assert "step" not in vars(net.steps), "nothing is left on the neurons"


def test_a_recurrent_network_without_other_neurons_is_trained(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 6), ul.Recurrent(ul.UltraLIF(), nn.Linear(6, 6)), nn.Linear(6, 2))
    assert len(ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN).by_mode["hard"].spike_rates) == 1


class Idle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.neuron, self.linear = ul.LIF(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def test_a_network_that_calls_no_neuron_is_refused_before_the_first_epoch(tmp_path: Path) -> None:
    seen: list[Any] = []
    with pytest.raises(InputError, match="calls none of them"):
        ul.train(Idle(), (X, Y), (X, Y), runs_dir=tmp_path, report=seen.append, **RUN)
    assert not seen


LOAD = """
import sys, torch, ultralif as ul
from torch import nn
net = nn.Sequential(nn.Linear(4, 6), ul.UltraLIF(), nn.Linear(6, 2))
same = ul.load(sys.argv[1], net=net)
print(same[0].weight.double().sum().item(), same[1].mode)
print(type(ul.load(sys.argv[2])).__name__)
"""


def test_trained_networks_are_loaded_in_a_new_process_without_their_data(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 6), ul.UltraLIF(), nn.Linear(6, 2))
    result = ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, mode="hard", **RUN)
    dataset = ul.data.user_data.register_data((X, Y), (X, Y))
    config = ul.RunConfig(dataset=dataset, timesteps=2, epochs=1, hidden=(3,))
    perceptron = ul.train(config, runs_dir=tmp_path, progress=False)
    words = [sys.executable, "-c", LOAD, result.path, perceptron.path]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(net[0].weight.double().sum().item()), "hard", "Network"]
    with pytest.raises(InputError, match=r"0\.bias has shape"):
        ul.load(result.path, net=nn.Sequential(nn.Linear(4, 7), ul.UltraLIF(), nn.Linear(7, 2)))


def test_a_state_dict_brings_mode_and_fixed_constants_back(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 6), ul.UltraLIF(threshold=0.9))
    ul.set_mode(net, "hard")
    torch.save({"state_dict": net.state_dict()}, tmp_path / "net.pt")
    again = nn.Sequential(nn.Linear(4, 6), ul.UltraLIF())
    again.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True)["state_dict"])
    assert again[1].mode == "hard" and again[1].threshold == 0.9
    assert torch.equal(again(X[None]), net(X[None]))
    plain = nn.Sequential(nn.Linear(4, 6), ul.UltraLIF())
    plain.load_state_dict(dict(net.state_dict()))
    assert plain[1].mode == "soft", "a plain dict has parameters alone"


SOURCE = """
import torch, ultralif as ul
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.b = torch.nn.Linear(4, 6), ul.LIF(), torch.nn.Linear(6, 2)
    def forward(self, x):
        return self.b(self.n(self.a(x))){change}
"""


def made(change: str, folder: Path) -> nn.Module:
    file = folder / f"net{abs(hash(change))}.py"
    file.write_text(SOURCE.format(change=change))
    module = types.ModuleType("net")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))  # noqa: S102
    return module.Net()


def test_changed_code_is_another_run_and_a_comment_is_not(tmp_path: Path) -> None:
    first, comment, changed = (made(each, tmp_path) for each in ("", "  # the scores", " * 0.0"))
    one = ul.train(first, (X, Y), (X, Y), runs_dir=tmp_path, **RUN)
    with pytest.warns(UserWarning, match="nothing was trained"):
        assert ul.train(comment, (X, Y), (X, Y), runs_dir=tmp_path, **RUN).id == one.id
    assert ul.train(changed, (X, Y), (X, Y), runs_dir=tmp_path, **RUN).id != one.id


def test_control_c_saves_and_the_same_call_resumes(tmp_path: Path) -> None:
    net = Calls()
    options = RUN | {"epochs": 400}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
    timer = threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match="everything is saved, and the same call resumes"):
        ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **options)
    notes: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.8, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        ul.train(Calls(), (X, Y), (X, Y), runs_dir=tmp_path, report=notes.append, **options)
    assert "epoch" in notes[0].note and notes[0].epoch > 0
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert not Store(tmp_path).rows()


def test_progress_is_shown_unless_it_is_switched_off(tmp_path: Path, capsys: Any) -> None:
    shown = {name: value for name, value in RUN.items() if name != "progress"}
    ul.train(Calls(), (X, Y), (X, Y), runs_dir=tmp_path / "a", **shown)
    assert "epoch 2/2: loss" in capsys.readouterr().err
    ul.train(Calls(), (X, Y), (X, Y), runs_dir=tmp_path / "b", **RUN)
    assert capsys.readouterr().err == ""


class Reused(nn.Module):
    """One neuron for two layers of different sizes, called step by step or at once, plainly or folded."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.neuron = how, ul.UltraLIF()
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(6, 12), nn.Linear(12, 2)

    def layers(self, x: Tensor) -> list[Tensor]:
        if self.how == "at once":
            spikes = self.neuron(3 * self.first(x))
            return [spikes, self.neuron(3 * self.second(spikes))]
        states, steps = [None, None], []
        for current in x:
            one, states[0] = self.neuron.step(3 * self.first(current), states[0])
            two, states[1] = self.neuron.step(3 * self.second(one), states[1])
            steps.append((one, two))
        return [torch.stack(layer) for layer in zip(*steps, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x)[-1])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("how", ["at once", "by step"])
def test_a_neuron_used_in_two_places_counts_each_by_its_size(how: str, padded: bool, tmp_path: Path) -> None:
    lengths = 1 + torch.arange(64) % 5 if padded else torch.full((64,), 5)
    x = X[:, None].repeat(1, 5, 1)
    data = (x, Y, lengths) if padded else (x, Y)
    net = Reused(how)
    result = ul.train(net, data, data, events=True, runs_dir=tmp_path, **RUN)
    counted = losses.step_mask(lengths, 5)[..., None]
    with torch.no_grad(), ul.mode(net, "hard"):
        one, two = net.layers(x.transpose(0, 1))
    spikes = ((one * counted).sum((0, 2)) + (two * counted).sum((0, 2))) / (18 * lengths)
    assert result.by_mode["hard"].spike_rates == pytest.approx([float(spikes.mean())], abs=1e-6)
    assert float(spikes.mean()) > 0.05


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.neuron, self.last = nn.Linear(2, 6), ul.UltraLIF(), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        steps, batch, _ = x.shape
        self.spikes = self.neuron(4 * self.first(x.reshape(steps, 2 * batch, 2)))
        return self.last(self.spikes.reshape(steps, batch, 12))


def test_the_rate_of_patches_in_the_batch_is_their_mean(tmp_path: Path) -> None:
    net = Patches()
    result = ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN)
    with torch.no_grad(), ul.mode(net, "hard"):
        net(X.expand(5, -1, -1))
    assert result.by_mode["hard"].spike_rates == pytest.approx([float(net.spikes.mean())], abs=1e-6)


def test_a_neuron_that_takes_the_batch_as_time_is_refused(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 6), ul.LIF(batch_first=True), nn.Linear(6, 2))
    with pytest.raises(InputError, match="treats the batch of 32 as time"):
        ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN)


def test_tied_weights_and_shared_neurons_are_stored(tmp_path: Path) -> None:
    def make() -> nn.Sequential:
        neuron, linear = ul.UltraLIF(), nn.Linear(4, 4)
        return nn.Sequential(linear, neuron, linear, neuron, nn.Linear(4, 2))

    net = make()
    result = ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, checkpoint_seconds=0.0, **RUN)
    loaded = ul.load(result.path, net=make())
    assert loaded[0] is loaded[2] and torch.equal(loaded[0].weight, net[0].weight)
    assert loaded[1].eps == net[1].eps


class Again(nn.Module):
    """A network whose backward pass runs it again."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how = how
        self.net = nn.Sequential(
            nn.Linear(4, 8), ul.UltraLIF(), nn.Linear(8, 8), ul.UltraLIF(), nn.Linear(8, 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "checkpoint":
            return checkpoint(self.net, x, use_reentrant=False)
        return ul.recompute(self.net, x, steps=2) if self.how == "recompute" else self.net(x)


def test_a_backward_pass_that_runs_the_network_again_does_so_with_binary_spikes(tmp_path: Path) -> None:
    results = {}
    for how in ("plain", "checkpoint", "recompute"):
        net = Again(how)
        ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, hard_share=0.5, learning_rate=0.01, **RUN)
        results[how] = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    torch.testing.assert_close(results["checkpoint"], results["plain"])
    torch.testing.assert_close(results["recompute"], results["plain"])


def test_the_same_network_resumes_its_run_and_finds_it_finished(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 6), ul.UltraLIF(), nn.Linear(6, 2))  # its learned eps is in its repr
    steps = iter([0, 0, 9])
    with pytest.raises(Interrupted):
        ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, stopping=steps.__next__, **RUN)
    notes: list[Any] = []
    first = ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, report=notes.append, **RUN)
    assert notes[0].note is not None and notes[0].epoch == 1
    with pytest.warns(UserWarning, match="nothing was trained"):
        assert ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN).id == first.id
    net[1].threshold = 0.6
    assert ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN).id != first.id


def test_another_metric_is_measured_without_training(tmp_path: Path) -> None:
    def make() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 6), ul.LIF(), nn.Linear(6, 2))

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for factor in (1.0, 2.0):
            metrics = {"scale": lambda scores, targets, factor=factor: factor * len(targets)}
            found.append(ul.train(make(), (X, Y), (X, Y), metrics=metrics, runs_dir=tmp_path, **RUN))
    assert found[0].id == found[1].id
    assert [one.metrics["hard"]["scale"] for one in found] == [64.0, 128.0]


@pytest.mark.parametrize("task", [{"readout": "last"}, {"loss": "tet"}])
def test_networks_of_the_library_return_every_step_where_a_task_takes_them(task: Any, tmp_path: Path) -> None:
    images = torch.rand(32, 1, 8, 8), torch.arange(32) % 2
    perceptron = ul.Network((4, 8, 2))
    deep = ul.models.create("vgg5", classes=2, channels=1, timesteps=5, width=0.1)
    for net, data in ((perceptron, (X, Y)), (deep, images)):
        result = ul.train(net, data, data, runs_dir=tmp_path, **task, **RUN)
        x = data[0] if net is deep else X.expand(5, -1, -1)
        with torch.no_grad():
            if net is deep:
                net.eval().by_step = True
                steps = net(x)
            else:
                steps = net.linears[1](net.neurons[0](net.linears[0](x)))
        scores = steps[-1] if "readout" in task else steps.mean(0)
        right = 100 * float((scores.argmax(1) == data[1]).double().mean())
        assert result.by_mode["soft"].accuracy == pytest.approx(right)


def test_a_readout_without_steps_is_refused(tmp_path: Path) -> None:
    class Mean(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).mean(0)

    net = Mean(nn.Linear(4, 6), ul.LIF(), nn.Linear(6, 2))
    with pytest.raises(InputError, match="readout needs the outputs of every step"):
        ul.train(net, (X, Y), (X, Y), readout="last", runs_dir=tmp_path, **RUN)


@pytest.mark.parametrize(
    "wrap", [nn.utils.parametrizations.weight_norm, partial(prune.l1_unstructured, name="weight", amount=0.5)]
)
def test_layers_with_computed_weights_are_trained_and_counted(wrap: Any, tmp_path: Path) -> None:
    net = nn.Sequential(wrap(nn.Linear(4, 8)), ul.LIF(), nn.Linear(8, 2))
    result = ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN)
    operations = result.by_mode["hard"].operations
    assert operations is not None and operations.macs == pytest.approx(4 * 8 * 5)


def test_the_config_of_a_finished_run_with_metrics_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    net = nn.Sequential(nn.Linear(4, 8), ul.LIF(), nn.Linear(8, 2))
    metrics = {"count": lambda scores, targets: len(targets)}
    result = ul.train(net, (X, Y), (X, Y), metrics=metrics, runs_dir=tmp_path, **RUN)
    monkeypatch.setattr(networks, "_OWN", {})  # as in another process
    again = ul.train(Store(tmp_path).read(result.id).config, runs_dir=tmp_path)
    assert again.metrics == result.metrics


def test_a_forward_that_the_user_replaced_stays_replaced(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 8), ul.LIF(), nn.Linear(8, 2))
    usual = net[1].forward
    net[1].forward = lambda current: usual(0 * current)
    result = ul.train(net, (X, Y), (X, Y), runs_dir=tmp_path, **RUN)
    assert result.by_mode["hard"].spike_rate == 0 and float(net[1](torch.ones(5, 2, 8)).sum()) == 0


def test_a_batch_of_one_may_fold_its_steps() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.neuron = ul.LIF()

        def forward(self, x: Tensor) -> Tensor:
            return self.neuron.step(x.flatten(0, 1))[0].view(x.shape)

    for batch in (1, 3):
        scores, (rates,) = Single(Folded()).outputs(torch.ones(5, batch, 2))
        assert scores.shape == (5, batch, 2) and rates.shape == (batch, 1, 1)
