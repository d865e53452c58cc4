"""A run keeps its name and its meaning, whatever is added to the library and whichever default changes."""

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import ultralif as ul
from ultralif import RunConfig
from ultralif.cli import main
from ultralif.errors import InputError
from ultralif.names import MODES, NEURON_NAMES
from ultralif.nn.parameters import LOG
from ultralif.training import baseline
from ultralif.training.baseline import FIELDS, OPTIONS, RESERVED
from ultralif.training.build import build_network
from ultralif.training.config import PRESETS
from ultralif.training.identity import document_id, first_document
from ultralif.training.zoo import cards

FIRST = {
    "c76ef11258c2": {},
    "0b1ff0476cc8": {"neuron": "LIF", "surrogate_slope": 1.0, "learn_slope": True, "dataset": "mnist"},
    "65b561d0dd6b": {"neuron": "UltraDLIF", "centered": True, "mode": "hard", "hidden": [32, 16], "seed": 7},
}
"""Names that 0.1.0 gave, with what was set apart from its defaults."""
SECOND = {
    "5dfac90830bf": {},
    "4dbce07407ca": {"neuron": "DSpike", "timesteps": 1, "dataset": "cifar10", "precision": "tf32"},
    "356a8f508788": {"neuron": "UltraDLIF", "centered": True, "mode": "hard", "eps": 0.1, "learn_eps": False},
    "d53b482e4ed5": {"neuron": "UltraLIF", "eps": 0.2, "anneal": (2.0, 0.1), "hidden": (32, 16)},
}
"""The same of schema 2, for configs with the defaults of 0.1.0."""


def first(values: dict[str, Any]) -> dict[str, Any]:
    return first_document(values, {})


@pytest.mark.parametrize("name", FIRST)
def test_names_of_schema_1_stay(name: str) -> None:
    document = first(FIRST[name])
    assert len(document) == 46 and document_id(document) == name
    options = {key: value for key, value in FIRST[name].items() if key not in FIELDS}
    config = RunConfig.from_dict(document)
    assert config == RunConfig(defaults="0.1.0", **FIRST[name]) and config.neuron_options == options


@pytest.mark.parametrize("name", SECOND)
def test_names_of_schema_2_stay(name: str) -> None:
    config = RunConfig(defaults="0.1.0", **SECOND[name])
    assert config.id == name
    assert config.to_dict().keys() - {"schema", "neuron_options"} <= SECOND[name].keys()


def test_the_networks_that_came_with_0_1_0_keep_their_names() -> None:
    first = [card for card in cards().values() if card["config"]["schema"] == 1]
    assert len(first) == 24
    for card in first:
        assert document_id(card["config"]) == card["run"]


@pytest.fixture
def other_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the temperature of UltraLIF start elsewhere by default."""

    class UltraLIF(ul.UltraLIF):
        def __init__(self, *, eps: float = 0.3, **options: Any) -> None:
            super().__init__(eps=eps, **options)

    monkeypatch.setitem(ul.NEURONS, "UltraLIF", UltraLIF)


def test_another_default_renames_new_runs_and_leaves_old_ones_alone(request: pytest.FixtureRequest) -> None:
    kept = RunConfig(defaults="0.1.0")
    stored, name = kept.to_dict(), kept.id
    request.getfixturevalue("other_eps")
    now = RunConfig()
    assert now.id != name and now.to_dict()["neuron_options"]["eps"] == 0.3
    assert build_network(now).neurons[0].eps.item() == pytest.approx(0.3)
    old = RunConfig.from_dict(stored)
    assert old.id == name and build_network(old).neurons[0].eps.item() == 1.0
    assert RunConfig.from_dict(first({})) == old
    assert RunConfig.from_dict(now.to_dict()) == now and RunConfig(eps=0.3) == now


def test_a_new_field_renames_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = RunConfig(eps=0.5).id
    monkeypatch.setattr(RunConfig, "momentum", 0.9, raising=False)
    monkeypatch.setitem(baseline.FIELDS, "momentum", 0.9)
    monkeypatch.setitem(baseline.OPTIONS, "UltraLIF", {**OPTIONS["UltraLIF"], "shape": "round"})
    monkeypatch.setattr("ultralif.training.config.typed", lambda owner, name, value: value)
    assert RunConfig(eps=0.5).id == name


def test_a_new_default_of_training_changes_no_stored_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the default of gain had been 0.25 in 0.1.0, and is 0.5 now: what is not stored is 0.25."""
    monkeypatch.setitem(baseline.FIELDS, "gain", 0.25)
    stored = RunConfig.from_dict({"schema": 2, "epochs": 3})
    assert stored.gain == 0.25 and stored.id == document_id({"schema": 2, "epochs": 3})
    assert RunConfig(epochs=3).gain == 0.5 and RunConfig(epochs=3).to_dict()["gain"] == 0.5


def test_the_table_has_every_field_and_option() -> None:
    """Who adds one adds it to the table, with the value that gives the behaviour of 0.1.0."""
    assert {each.name for each in fields(RunConfig)} == {*FIELDS, "neuron_options", "defaults"}
    own = {name: kind for name, kind in ul.NEURONS.items() if kind.__module__.startswith("ultralif.nn.")}
    assert set(NEURON_NAMES) == set(own) == set(OPTIONS)
    for name, neuron in own.items():
        live = inspect.signature(neuron).parameters.keys() - RESERVED.keys()
        assert live <= OPTIONS[name].keys(), f"add them to OPTIONS of {name}"


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_every_neuron_of_0_1_0_can_be_built(name: str) -> None:
    network = build_network(RunConfig(neuron=name, defaults="0.1.0"))
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
            "'esp' is not a field of a run's config, nor an option of UltraLIF; did you mean 'eps'?",
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
