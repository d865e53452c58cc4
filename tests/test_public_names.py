"""Every public name and command that the design promises, called as it is written there."""

import ast
import inspect
import json
from pathlib import Path

import pytest
import torch

import ultralif as ul
from ultralif.cli import COMMANDS, main

NEURONS = [
    "UltraLIF",
    "UltraPLIF",
    "UltraDLIF",
    "UltraDPLIF",
    "LIF",
    "PLIF",
    "AdaLIF",
    "FullPLIF",
    "DSpike",
    "DSpikePlus",
    "SoftLIF",
]
X = torch.rand(3, 2, 6)


def test_the_top_level_is_small_and_typed_as_it_is() -> None:
    names = {name for name in dir(ul) if not name.startswith("_")}
    modules = {name for name in names if inspect.ismodule(getattr(ul, name))}
    assert len(names - modules) <= 36
    assert set(NEURONS) <= names and "load" not in ul.training.__all__
    source = ast.parse(Path(ul.__file__).read_text())
    (checked,) = (node for node in source.body if isinstance(node, ast.If))
    assert names == {alias.asname for node in ast.walk(checked) for alias in getattr(node, "names", ())}


def test_a_neuron_is_called_in_three_ways() -> None:
    neuron = ul.UltraLIF(
        threshold=0.5,
        leak=0.9,
        eps=0.2,
        v_reset=0.0,
        learn_eps=True,
        learn_leak=False,
        learn_threshold=False,
        eps_range=(0.1, 20.0),
        batch_first=False,
        mode="soft",
        reset="zero",
        detach_reset=None,
    )
    spikes = neuron(X)
    again, state = neuron.run(X, None)
    first, state = neuron.step(X[0], None)
    second, _ = neuron.step(X[1], state)
    assert torch.equal(spikes, again)
    torch.testing.assert_close(torch.stack([first, second]), spikes[:2])


@pytest.mark.parametrize("name", NEURONS)
def test_every_neuron_takes_the_shared_options(name: str) -> None:
    neuron = getattr(ul, name)(threshold=0.4, v_reset=0.1, mode="hard", reset="subtract", batch_first=True)
    assert set(neuron(X).unique().tolist()) <= {0.0, 1.0}
    assert ("leak" in inspect.signature(type(neuron)).parameters) or name == "UltraDLIF"


def test_options_of_single_neurons_have_the_promised_defaults() -> None:
    given = {
        ("AdaLIF", "adapt_strength"): 0.1,
        ("AdaLIF", "adapt_decay"): 0.9,
        ("DSpike", "sharpness"): 4.0,
        ("LIF", "surrogate_slope"): 2.0,
    }
    for (name, option), value in given.items():
        assert getattr(ul, name)().constants()[option] == pytest.approx(value)
    for surrogate in ("sigmoid", "atan", "triangle", "superspike"):
        assert ul.LIF(surrogate=surrogate, learn_slope=True)(X).shape == X.shape


@pytest.mark.parametrize("mode", ["soft", "hard", "tropical"])
def test_modes_are_set_for_good_or_for_a_while(mode: str) -> None:
    net = ul.Network([6, 4, 3])
    with ul.mode(net, mode):
        inside = [each.mode for each in net.modules() if isinstance(each, ul.Neuron)]
    assert inside == [mode]
    ul.set_mode(net, mode)
    assert net(X).shape == (2, 3)


def test_functions_return_spikes_and_the_last_membrane() -> None:
    spikes, v = ul.functional.ultralif(X, eps=0.2, leak=0.9, threshold=0.5, v_reset=0.0, mode="soft")
    assert spikes.shape == X.shape and v.shape == X.shape[1:]
    for name in ("ultradlif", "lif", "adalif", "dspike", "softlif"):
        needed = {
            key: {"threshold": 0.5, "eps": 0.2, "leak": 0.9}.get(key, 4.0)
            for key, parameter in inspect.signature(getattr(ul.functional, name)).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        }
        assert getattr(ul.functional, name)(X, **needed)[0].shape == X.shape
        assert needed.keys() <= inspect.signature(getattr(ul.ops, name)).parameters.keys()


def test_the_algebra() -> None:
    a = torch.tensor([0.0, 2.0])
    assert 2.0 < ul.maxplus.lse(a, eps=1.0) < 2.7
    assert ul.maxplus.soft_spike(a, 1.0, 0.1)[1] > 0.99
    assert ul.maxplus.hard_spike(a, 1.0).tolist() == [0.0, 1.0]
    product = ul.maxplus.matmul(torch.zeros(2, 2), torch.tensor([[1.0], [3.0]]))
    assert product.tolist() == [[3.0], [3.0]]


def test_training_and_loading(tmp_path) -> None:
    config = ul.RunConfig(dataset="digits", timesteps=1, epochs=1, hidden=(4,))
    result = ul.train(config, runs_dir=tmp_path)
    assert isinstance(result, ul.Result)
    shown = repr(result)
    assert shown.startswith(f"Result({result.id}, done: UltraLIF on digits, T=1, seed 42; soft ")
    assert f"hard {result.by_mode['hard'].accuracy:.2f} %" in shown and len(shown) < 200
    assert isinstance(ul.load(result.path), torch.nn.Module)


def test_a_network_of_the_users_own_is_trained(tmp_path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), ul.UltraLIF(), torch.nn.Linear(4, 3))
    data = (torch.rand(16, 6), torch.arange(16) % 3)
    result = ul.train(net, data, data, timesteps=4, epochs=1, batch_size=8, runs_dir=tmp_path)
    assert 0 <= result.by_mode["soft"].accuracy <= 100


def test_models_and_layers() -> None:
    frames = torch.rand(2, 1, 3, 32, 32)
    assert ul.models.vgg(classes=10, width=0.125)(frames).shape[-1] == 10
    assert ul.models.resnet(classes=10, width=0.125)(frames).shape[-1] == 10
    assert ul.Recurrent(ul.UltraLIF(), torch.nn.Linear(6, 6))(X).shape == X.shape


def test_every_command_of_the_design_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    promised = [
        "train",
        "eval",
        "sweep",
        "report",
        "runs",
        "models",
        "data",
        "export",
        "analyze",
        "bench",
    ]
    assert set(promised) <= set(COMMANDS)
    for command in promised:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0 and f"ultralif {command}" in capsys.readouterr().out


def test_json_of_train_and_runs_has_the_promised_fields(tmp_path, capsys) -> None:
    where = ["--runs-dir", str(tmp_path), "--json"]
    assert main(["train", "--epochs", "1", "--timesteps", "1", "--hidden", "4", *where]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert main(["runs", "list", *where]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    fields = [
        "id",
        "dataset",
        "neuron",
        "timesteps",
        "seed",
        "accuracy",
        "spike_rate",
        "energy",
        "eps",
        "leak",
        "path",
    ]
    for document in (trained, listed):
        assert set(fields) <= document.keys()
        assert {"soft", "hard", "tropical"} == document["accuracy"].keys()
    for preset in (["binary"], ["digits"], ["deep"]):
        assert main(["train", "--config", *preset, "--dry-run", "--runs-dir", str(tmp_path)]) == 0
    assert main(["train", "--epochs", "none"]) == 2
