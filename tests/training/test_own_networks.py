"""Networks as people write them: spikes are counted in any call, and trained networks come back."""

import os
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.errors import InputError
from ultralif.training import Store

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
