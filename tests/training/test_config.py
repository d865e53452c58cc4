"""A run is its fields: checked, named by their hash, and the same after a way through a file."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.small import small
from ultralif.errors import InputError
from ultralif.training import RunConfig
from ultralif.training.config import NEURON_NAMES, SCHEMA
from ultralif.training.networks import build_network


def test_the_defaults_are_the_papers_recipe() -> None:
    config = RunConfig()
    assert (config.hidden, config.learning_rate, config.batch_size) == ((64,), 1e-3, 128)
    assert (config.epochs, config.schedule, config.seed) == (100, "cosine", 42)
    assert (config.readout, config.sparsity, config.precision) == ("linear", 0.0, "float32")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "neuron": st.sampled_from(NEURON_NAMES),
            "timesteps": st.integers(1, 100),
            "seed": st.integers(0, 2**63 - 1),
            "learning_rate": st.floats(1e-9, 999),
            "sparsity": st.floats(0, 1e5),
            "hidden": st.lists(st.integers(1, 1000), min_size=1, max_size=4),
            "anneal": st.none() | st.tuples(st.floats(1e-3, 10), st.floats(1e-3, 10)),
            "threshold": st.floats(allow_nan=False, allow_infinity=False),
            "learn_threshold": st.booleans(),
            "augment": st.none() | st.booleans(),
            "precision": st.sampled_from(("float32", "tf32", "bfloat16", "float64")),
        },
    )
)
def test_through_json_and_back(values: dict) -> None:
    config = RunConfig(**values)
    again = RunConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config and again.id == config.id and again.shared == config.shared


def test_the_name_depends_on_every_field_and_not_on_spelling() -> None:
    assert RunConfig(hidden=[64], learning_rate=1e-3).id == RunConfig().id
    assert RunConfig(neuron="ultralif", sparsity=0, v_reset=0).id == RunConfig(sparsity=-0.0, v_reset=0.0).id
    others = {
        "dataset": "mnist", "neuron": "LIF", "schedule": "constant", "precision": "tf32", "hidden": (3,),
        "readout": "spiking", "encoding": "constant", "split": "spikingjelly", "anneal": (2.0, 1.0),
        "mode": "hard", "augment": True, "validation": 0.5, "gain": 0.25, "optimizer": "sgd", "loss": "tet",
        "model": "vgg5", "weight_decay": 0.1, "label_smoothing": 0.1, "hard_share": 0.5,
        "target_rate": 0.1,
    }  # fmt: skip
    names = {RunConfig().id}
    FIELDS = {each.name: each.default for each in fields(RunConfig) if each.name != "neuron_options"}
    for field, default in FIELDS.items():
        value = others.get(field)
        if value is None:
            value = not default if isinstance(default, bool) else (default or 1) * 2
        names.add(RunConfig(**{field: value}).id)
    assert len(names) == 1 + len(FIELDS)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"timesteps": 0}, "timesteps must be from 1"),
        ({"timesteps": 1.5}, "timesteps must be an integer, got 1.5"),
        ({"timesteps": True}, "timesteps must be an integer, got True"),
        ({"epochs": -1}, "epochs must be from 1"),
        ({"seed": -1}, "seed must be from 0"),
        ({"seed": 2**63}, "seed must be from 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number, got nan"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"sparsity": -0.1}, "sparsity must be 0 or more"),
        ({"validation": 1}, "validation must be a share"),
        ({"hidden": ()}, "hidden must be the size of each hidden layer"),
        ({"hidden": (0,)}, "hidden must be the size of each hidden layer"),
        ({"hidden": 64}, "hidden must be a list"),
        ({"hidden": "64"}, "hidden must be a list"),
        ({"gain": 0}, "gain must be above 0"),
        ({"eps_min": 30}, "eps_min must be above 0 and below eps_max"),
        ({"hard_epochs": 101}, "hard_epochs must be from 0 to the number of epochs"),
        ({"anneal": (1, -1)}, "anneal must be two positive temperatures"),
        ({"anneal": (1,)}, "anneal must be two positive temperatures"),
        ({"precision": "float16"}, "precision must be one of float32, tf32"),
        ({"neuron": "UltraLFI"}, "did you mean UltraLIF?"),
        ({"neuron": "zzz"}, "choose one of LIF"),
        ({"dataset": "fashion"}, "did you mean fashion-mnist"),
        ({"learn_eps": 1}, "learn_eps must be"),
        ({"eps": 10**400}, "eps must be"),
        ({"neuron": "UltraDLIF", "neuron_options": {"coupled_axis": None}}, "coupled_axis must be"),
    ],
)
def test_a_field_that_cannot_be(values: dict, words: str) -> None:
    with pytest.raises(InputError) as error:
        RunConfig(**values)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "value"), [("synapse", "hard"), ("detach_reset", 0.0)])
def test_an_option_of_another_kind_is_bad_input(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"{name} must be"):
        build_network(RunConfig(neuron="UltraLIF", neuron_options={name: value}))


def test_names_are_found_however_they_are_spelled() -> None:
    assert RunConfig(neuron="dspike+").neuron == "DSpikePlus"
    assert RunConfig(dataset="N_MNIST").dataset == "n-mnist"


def test_a_config_from_another_version() -> None:
    with pytest.raises(InputError, match=r"schema 99, .* train the run again"):
        RunConfig.from_dict({**small().to_dict(), "schema": 99})
    with pytest.raises(InputError, match=r"'time_steps' is neither a field .* did you mean 'timesteps'\?"):
        RunConfig.from_dict({"time_steps": 3})
    with pytest.raises(InputError, match=r"schema 2, .* train the run again"):
        RunConfig.from_dict({"schema": 2, "epochs": 3})
    with pytest.raises(InputError, match=r"differs in epochs, pace; train the run again"):
        RunConfig.from_dict({**{n: v for n, v in small().to_dict().items() if n != "epochs"}, "pace": 1})
    assert small().to_dict()["schema"] == SCHEMA


def test_a_part_of_a_config_is_enough() -> None:
    assert RunConfig.from_dict({"neuron": "LIF"}) == RunConfig(neuron="LIF")
