"""A thousand random configurations: each one runs, or is refused in one line before anything is done.

In an order of rising cost: 600 as fields, 360 through the command line down to the network, 40 trained.
"""

import contextlib
import io
import json
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultralif.cli import main
from ultralif.cli.arguments import option_flags, read_arguments
from ultralif.cli.train import Train
from ultralif.errors import InputError
from ultralif.training import RunConfig
from ultralif.training.config import NEURON_NAMES
from ultralif.training.networks import build_network

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-3, 100), max_size=3),
    st.sampled_from(NEURON_NAMES),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)
FLAGS = {each.name: each.default for each in fields(RunConfig)} | {
    name: flag.default for name, flag in option_flags().items()
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "neuron": st.sampled_from(NEURON_NAMES),
    "timesteps": st.integers(1, 4),
    "seed": st.integers(0, 2**63 - 1),
    "batch_size": st.sampled_from([300, 700, 2000]),
    "learning_rate": st.floats(1e-6, 10.0),
    "schedule": st.sampled_from(["cosine", "constant"]),
    "sparsity": st.floats(0, 100),
    "volume_reg": st.floats(0, 1),
    "precision": st.sampled_from(["float32", "tf32", "bfloat16", "float64"]),
    "validation": st.floats(0, 0.99),
    "hidden": st.lists(st.integers(1, 12), min_size=1, max_size=3),
    "readout": st.sampled_from(["linear", "spiking"]),
    "encoding": st.sampled_from(["rate", "rate-normalized", "constant"]),
    "gain": st.floats(1e-3, 1),
    "mode": st.sampled_from([None, "soft", "hard", "tropical"]),
    "hard_epochs": st.integers(0, 1),
    "eps": st.floats(1e-3, 30),
    "eps_speed": st.floats(1e-3, 1e3),
    "anneal": st.tuples(st.floats(1e-2, 10), st.floats(1e-2, 10)),
    "leak": st.floats(0, 1),
    "threshold": st.floats(-1, 2),
    "v_reset": st.floats(-1, 1),
    "surrogate_slope": st.floats(0.1, 100),
    "sharpness": st.floats(0.1, 100),
    "adapt_strength": st.floats(-1, 1),
    "adapt_decay": st.floats(0, 1),
    "split": st.sampled_from(["tonic", "spikingjelly"]),
    "augment": st.sampled_from([None, True, False]),
} | {name: st.booleans() for name, value in FLAGS.items() if isinstance(value, bool)}
"""For every field values that are mostly good."""


def configurations(few: int) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a few fields; most of the others stay as they are."""
    names = st.lists(st.sampled_from(sorted(VALUES)), max_size=few, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: VALUES[name] for name in chosen}))


def as_flags(values: dict[str, Any]) -> list[str]:
    """Write fields as a user types them."""
    words = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool) and isinstance(FLAGS[name], bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)]
    return words


def is_one_line(error: Exception) -> bool:
    return len(str(error).splitlines()) == 1  # values are written as Python does, with escapes


@settings(max_examples=600)
@given(st.dictionaries(st.sampled_from(sorted(FLAGS)), ANYTHING, max_size=4))
def test_any_values_make_a_config_or_are_refused(values: dict[str, Any]) -> None:
    try:
        config = RunConfig(**values)
    except InputError as error:
        assert is_one_line(error)
        return
    try:
        stored = json.loads(json.dumps(config.to_dict()))
    except InputError as error:  # an option of another neuron
        assert is_one_line(error)
        return
    again = RunConfig.from_dict(stored)
    assert again == config and again.id == config.id


@pytest.mark.slow
@settings(max_examples=360)
@given(configurations(6) | st.dictionaries(st.sampled_from(sorted(VALUES)), ANYTHING, max_size=2))
def test_any_flags_make_a_network_or_are_refused(values: dict[str, Any]) -> None:
    try:
        config = read_arguments(Train, as_flags(values), "train").run
        network = build_network(config)
    except InputError as error:
        assert is_one_line(error), error
        return
    assert network.sizes[1:-1] == config.hidden


@settings(max_examples=40)
@given(configurations(8))
def test_any_configuration_trains_or_is_refused(values: dict[str, Any]) -> None:
    words = ["train", "--epochs", "1", "--hidden", "5", "--timesteps", "2", "--batch-size", "700", "--json"]
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main([*words, *as_flags(values), "--runs-dir", folder])
        written = list(Path(folder).glob("[0-9a-f]*/manifest.json"))
    if code == 2:
        assert out.getvalue() == "" and err.getvalue().count("\n") == 1 and not written
        return
    result = json.loads(out.getvalue())
    assert result["status"] == ("done" if code == 0 else "diverged") and len(written) == 1
    assert code in (0, 1) and all(0 <= value <= 100 for value in result["accuracy"].values())
