"""Help that can be read: few flags in groups, the rest on request, a neuron's options for that neuron."""

import re

import pytest

from cli.commands import Commands
from ultralif.cli.arguments import GROUPS, read_arguments
from ultralif.cli.parse import flags_of
from ultralif.cli.sweep import Sweep
from ultralif.cli.train import Train
from ultralif.names import NEURON_NAMES
from ultralif.training import RunConfig
from ultralif.training.config import PRESETS, recipe_of


def flags(text: str) -> list[str]:
    return [name.replace("-", "_") for name in re.findall(r"(?m)^  --(?:no-)?([a-z-]+)", text)]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(("command", "kind"), [("train", Train), ("sweep", Sweep)])
def test_help_fits_on_a_screen_and_a_half(command: str, kind: type, ultralif: Commands) -> None:
    text = ultralif.done(command, "--help")
    assert len(flags(text)) <= 45 and len(text.splitlines()) <= 80
    assert max(map(len, text.splitlines())) <= 110
    everything = ultralif.done(command, "--help-all")
    assert set(flags(everything)) == set(flags_of(kind))
    assert set(flags(text)) < set(flags(everything))
    assert all(f"{title}:" in text.splitlines() for title in GROUPS)


def test_every_flag_in_a_group_is_one_of_a_command() -> None:
    known = {*flags_of(Train), *flags_of(Sweep)}
    assert {name for names in GROUPS.values() for name in names} <= known


def test_every_flag_says_what_it_does() -> None:
    for kind in (Train, Sweep):
        for name, flag in flags_of(kind).items():
            assert flag.meaning, name


@pytest.mark.parametrize("neuron", NEURON_NAMES)
def test_a_neuron_s_options_are_shown_for_that_neuron(neuron: str, ultralif: Commands) -> None:
    options = ultralif.json("neurons", neuron)
    assert options and all(option["meaning"] for option in options)
    shown = flags(ultralif.done("train", "--neuron", neuron, "--help"))
    assert {option["name"] for option in options} <= set(shown)
    assert ("eps" in shown) == any(option["name"] == "eps" for option in options)


def test_the_neurons_are_listed(ultralif: Commands) -> None:
    assert {row["name"] for row in ultralif.json("neurons")} >= set(NEURON_NAMES)
    assert "UltraLIF" in ultralif.refused("neurons", "UltraLif2")


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["--help"], "torch"),
        (["train", "--help"], "torch"),
        (["train", "--help-all"], "torch"),
        (["runs", "list"], "torch"),
        (["data", "list"], "numpy"),
    ],
)
def test_what_needs_no_torch_does_not_import_it(words: list[str], module: str, python) -> None:
    script = (
        "import sys, contextlib\nfrom ultralif.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({words!r})\n"
        f"print([name for name in ({module!r}, 'ultralif.paper', 'research') if name in sys.modules])"
    )
    assert python.run("-c", script).stdout.splitlines()[-1] == "[]"


def test_a_model_brings_its_recipe() -> None:
    recipe = recipe_of("vgg5")
    assert recipe is not None
    args = read_arguments(Train, ["--dataset", "digits", "--model", "vgg7", "--epochs", "2"], "train")
    assert args.run == RunConfig(**{**PRESETS[recipe], "model": "vgg7", "epochs": 2})
    assert args.recipe == recipe
    swept = read_arguments(Sweep, ["--model", "vgg7"], "sweep")
    assert (
        swept.timesteps == (PRESETS[recipe]["timesteps"],)
        and swept.run.hard_share == PRESETS[recipe]["hard_share"]
    )


def test_small_images_have_a_recipe_of_their_own() -> None:
    for dataset, recipe in {"digits": "digits", "mnist": "deep"}.items():
        args = read_arguments(Train, ["--dataset", dataset, "--model", "vgg5"], "train")
        assert args.recipe == recipe and args.run.epochs == PRESETS[recipe]["epochs"]
        assert RunConfig.for_model("vgg5", dataset=dataset) == args.run


def test_a_config_overrides_the_recipe_of_a_model(tmp_path) -> None:
    (tmp_path / "own.toml").write_text("epochs = 3")
    argv = ["--model", "vgg5", "--config", str(tmp_path / "own.toml")]
    args = read_arguments(Train, argv, "train")
    assert args.run == RunConfig(model="vgg5", epochs=3) and args.recipe is None


def test_perceptrons_have_no_recipe() -> None:
    assert recipe_of("mlp") is None
    assert read_arguments(Train, ["--hidden", "8"], "train").run == RunConfig(hidden=(8,))


def test_python_can_ask_for_the_recipe_of_a_model() -> None:
    config = RunConfig.for_model("vgg5", epochs=2)
    args = read_arguments(Train, ["--model", "vgg5", "--epochs", "2"], "train")
    assert config == args.run
