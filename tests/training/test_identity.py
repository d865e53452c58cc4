"""A run is named by its whole config, and means the same whichever default changes."""

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif import RunConfig
from ultralif.cli import main
from ultralif.errors import InputError
from ultralif.names import MODES, NEURON_NAMES
from ultralif.ops.constants import LOG
from ultralif.training.config import PRESETS, RESERVED, document_id
from ultralif.training.networks import build_network, describe


def test_a_stored_config_has_every_field_and_option_and_names_the_run() -> None:
    config = RunConfig(neuron="LIF", learn_slope=True, hidden=(32, 16), target_rate=0.1)
    document = json.loads(json.dumps(config.to_dict()))
    assert document.keys() == {"schema", *(each.name for each in fields(RunConfig))}
    assert document["schema"] == 3 and document["hidden"] == [32, 16]
    live = inspect.signature(ul.LIF).parameters.keys() - RESERVED.keys()
    assert document["neuron_options"].keys() == live and document["neuron_options"]["learn_slope"] is True
    assert config.id == document_id(document)
    assert document_id({"schema": 3, "epochs": 3}) == "462305fbb2a8", "a name is a hash of the document alone"


def test_a_stored_config_is_read_without_torch(python: Any) -> None:
    code = (
        "import json, sys; from ultralif.training.config import RunConfig; "
        "config = RunConfig.from_dict(json.loads(sys.argv[1])); print(config.id, 'torch' in sys.modules)"
    )
    config = RunConfig(neuron="UltraPLIF", eps=0.5)
    assert python.run("-c", code, json.dumps(config.to_dict())).stdout.split() == [config.id, "False"]


def test_another_neuron_keeps_the_options_that_were_changed() -> None:
    stored = RunConfig.from_dict(RunConfig(threshold=0.75).to_dict())
    assert stored.with_(neuron="LIF") == RunConfig(neuron="LIF", threshold=0.75)
    assert stored.with_(seed=1) == RunConfig(threshold=0.75, seed=1)
    with pytest.raises(InputError, match="eps is not an argument of LIF"):
        _ = RunConfig.from_dict(RunConfig(eps=0.75).to_dict()).with_(neuron="LIF").id


def test_an_option_that_the_neuron_no_longer_has_is_refused() -> None:
    document = RunConfig().to_dict()
    document["neuron_options"]["wobble"] = 1.0
    with pytest.raises(InputError, match="UltraLIF has no wobble"):
        build_network(RunConfig.from_dict(document))


@pytest.fixture
def other_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the temperature of UltraLIF start elsewhere by default."""

    class UltraLIF(ul.UltraLIF):
        def __init__(self, *, eps: float = 0.3, **options: Any) -> None:
            super().__init__(eps=eps, **options)

    monkeypatch.setitem(ul.NEURONS, "UltraLIF", UltraLIF)


def test_another_default_renames_new_runs_and_leaves_old_ones_alone(request: pytest.FixtureRequest) -> None:
    kept = RunConfig(eps=1.0)
    stored, name = kept.to_dict(), kept.id
    request.getfixturevalue("other_eps")
    now = RunConfig()
    assert now.id != name and now.to_dict()["neuron_options"]["eps"] == 0.3
    assert build_network(now).neurons[0].eps.item() == pytest.approx(0.3)
    old = RunConfig.from_dict(stored)
    assert old.id == name and build_network(old).neurons[0].eps.item() == 1.0
    assert RunConfig.from_dict(now.to_dict()) == now and RunConfig(eps=0.3) == now


def test_a_default_that_json_cannot_express_is_left_to_the_class() -> None:
    class Odd(ul.LIF):
        def __init__(self, *, shape: Any = torch.sigmoid, **options: Any) -> None:
            super().__init__(**options)
            self.shape = shape

    ul.register(Odd)
    config = RunConfig(neuron="Odd")
    assert "shape" not in config.to_dict()["neuron_options"]
    assert build_network(config).neurons[0].shape is torch.sigmoid


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_every_neuron_can_be_built_from_its_document(name: str) -> None:
    network = build_network(RunConfig.from_dict(RunConfig(neuron=name).to_dict()))
    with torch.no_grad():
        assert torch.isfinite(network(torch.rand(3, 2, 64))).all()


def test_the_tables_of_modes_agree() -> None:
    assert set(MODES) == {mode for neuron in ul.NEURONS.values() for mode in neuron.modes}


@pytest.mark.parametrize("name", PRESETS)
def test_recipes_can_be_built(name: str) -> None:
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        scores = build_network(RunConfig(**PRESETS[name], dataset="mnist"))(
            images if name == "deep" else images.expand(3, 2, 1, 28, 28)
        )
    assert scores.shape == (2, 10)


class Damped(ul.Stepped):
    """A neuron of one's own with an argument of its own."""

    state_type: ClassVar[type] = ul.nn.State

    def __init__(self, *, gamma: float = 0.5, **options: Any) -> None:
        super().__init__(**options)
        self.learnable("gamma", gamma, LOG)

    @staticmethod
    def formula(current: Tensor, v: Tensor, *, gamma: float, threshold: float, v_reset: float) -> Any:
        v = gamma * v + current
        spike = torch.sigmoid(v - threshold)
        return spike, v * (1 - spike) + v_reset * spike


def test_an_option_of_ones_own_neuron(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ul.register(Damped)
    config = RunConfig(neuron="damped", gamma=0.25, epochs=1, timesteps=2, hidden=(4,))
    assert config.neuron_options == {"gamma": 0.25} and config.id != config.with_(gamma=0.5).id
    ul.train(config, runs_dir=tmp_path)
    assert ul.load(config.id, tmp_path).neurons[0].constant("gamma") == 0.25
    flags = ["--epochs", "1", "--hidden", "4", "--seeds", "1", "--runs-dir", str(tmp_path)]
    words = ["sweep", "--neurons", "Damped", "--timesteps", "2", "--gamma", "0.25", *flags, "--json"]
    assert main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["id"] == config.id, "it is the run that was trained above"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"esp": 0.5},
            "'esp' is neither a field of the config nor an option of UltraLIF; did you mean 'eps'?",
        ),
        ({"eps": "much"}, "eps must be a finite number, got 'much'"),
        ({"learn_eps": 1}, "learn_eps must be true or false, got 1"),
        ({"neuron_options": [1]}, "neuron_options must be a mapping"),
        ({"neuron_options": {"mode": "hard"}}, "mode is not an option of a run; use the field mode"),
        ({"eps_range": (1, 2)}, "use the fields eps_min and eps_max"),
        ({"eps": torch.ones(3)}, "eps must be a finite number"),
    ],
)
def test_an_option_that_cannot_be(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        RunConfig(**values)
    assert words in str(error.value)


def test_tied_weights_name_another_run() -> None:
    def net(*, tied: bool) -> nn.Module:
        made = nn.Sequential(nn.Linear(3, 3), ul.LIF(), nn.Linear(3, 3))
        if tied:
            made[2].weight = made[0].weight
        return made

    assert describe(net(tied=True)) == describe(net(tied=True)) != describe(net(tied=False))
