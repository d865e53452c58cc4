"""``ultralif train`` and ``eval``, from their arguments to their last line."""

import shlex
from pathlib import Path

import pytest

from cli.commands import QUICK, Commands
from ultralif.training import RunConfig, Store
from ultralif.training.result import ann_int8_energy

FIELDS = {
    "id", "dataset", "neuron", "timesteps", "seed", "accuracy", "spike_rate", "energy", "eps", "leak", "path",
}  # fmt: skip


def test_a_run_ends_with_a_table_and_the_next_command(ultralif: Commands) -> None:
    said = ultralif("train", *QUICK)
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "UltraLIF on digits, T=2, seed 42"
    assert lines[1].split() == [
        "spikes", "accuracy", "%", "rate", "T*rate", "paper", "nJ", "MACs", "ACs", "counted", "nJ",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[2:5]] == ["soft", "hard", "tropical"]
    assert "eps " in said.out and "leak " in said.out
    (run,) = Path("runs").glob("[0-9a-f]*")
    assert f" in {run}; next: " in lines[-1]
    following = shlex.split(lines[-1].partition("next: ultralif ")[2])
    assert following[0] == "eval"
    again = ultralif.done(*following)
    assert lines[2] in again, "the same numbers"
    onwards = shlex.split(again.splitlines()[-1].partition("next: ultralif ")[2])
    assert onwards[0] == "export" and "constant bytes" in ultralif.done(*onwards)


def test_progress_is_plain_lines_where_nobody_watches(ultralif: Commands) -> None:
    said = ultralif("train", *QUICK)
    assert said.err.startswith("epoch 1/1: loss ") and said.err.count("\n") == 1
    assert said.err.isascii() and "\x1b" not in said.out + said.err


def test_quiet(ultralif: Commands) -> None:
    said = ultralif("train", *QUICK, "--quiet")
    assert said.err == "" and "accuracy" in said.out


def test_json_is_one_document_and_nothing_else(ultralif: Commands) -> None:
    result = ultralif.json("train", *QUICK, "--validation", "0.1")
    assert set(result) >= FIELDS
    assert set(result["accuracy"]) == {"soft", "hard", "tropical"} == set(result["validation"])
    assert Path(result["path"]).is_dir() and Path(result["path"]).name == result["id"]
    assert ultralif.json("train", *QUICK, "--validation", "0.1") == result, "it is not trained twice"
    assert ultralif.json("runs", "list") == [result]
    again = ultralif.json("eval", result["id"][:6])
    assert again["accuracy"] == result["accuracy"]


def test_a_finished_run_is_only_shown(ultralif: Commands) -> None:
    first = ultralif("train", *QUICK)
    again = ultralif("train", *QUICK)
    assert again.out == first.out
    assert again.err.count("\n") == 1 and "already finished" in again.err and "--again" in again.err


def test_what_a_command_would_do(ultralif: Commands) -> None:
    text = ultralif.done("train", *QUICK, "--eps", "0.5", "--dry-run")
    assert "eps              0.5" in text and "learning_rate    0.001" in text
    assert (
        "parameters" in text and "megabytes" in text and text.splitlines()[-1].startswith("1 run in 1 stack")
    )
    found = ultralif.json("train", *QUICK, "--eps", "0.5", "--dry-run")
    assert RunConfig.from_dict(found["runs"][0]).neuron_options["eps"] == 0.5
    assert found["stacks"][0]["parameters"] == 64 * 6 + 6 + 6 * 10 + 10 + 1
    assert found["seconds"] >= 0
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--epoch", "3"), ("--epoch", "did you mean --epochs?")),
        (("--learning_rate_", "3"), ("did you mean --learning-rate?",)),
        (("--neuron", "UltraLFI"), ("'UltraLFI'", "did you mean UltraLIF?")),
        (("--dataset", "minst"), ("'minst'", "did you mean mnist?")),
        (("--eps", "abc"), ("--eps expects a number, got 'abc'",)),
        (("--timesteps", "1.5"), ("--timesteps expects a whole number, got '1.5'",)),
        (("--anneal", "1"), ("--anneal expects 2 numbers",)),
        (("--hidden",), ("--hidden needs a value",)),
        (("--hidden", "a"), ("--hidden expects whole numbers, got 'a'",)),
        (("--epochs", "0"), ("epochs must be from 1",)),
        (("--precision", "float16"), ("--precision must be one of float32",)),
        (("--learning-rate", "nan"), ("learning_rate must be a finite number",)),
        (("--esp", "0.5"), ("--esp is not known; did you mean --eps?",)),
        (("--eps",), ("--eps needs a value",)),
        (("--learn-eps", "maybe"), ("--learn-eps must be one of", "'maybe'")),
        (("stray",), ("stray is not known",)),
        (("--config", "nowhere.toml"), ("nowhere.toml cannot be read",)),
        (("--neuron", "LIF", "--eps", "0.9"), ("eps is not an argument of LIF",)),
        (("--neuron", "LIF", "--mode", "tropical"), ("mode 'tropical' is not supported by LIF",)),
        (("--neuron", "LIF", "--anneal", "1", "0.1"), ("anneal needs a temperature",)),
        (("--eps", "-1"), ("eps", "-1")),
        (("--device", "abacus"), ("device 'abacus' cannot be used", "use cpu or auto")),
        (("--checkpoint-seconds", "-1"), ("checkpoint_seconds must be 0 or more",)),
        (("--hidden", "2000000", "2000000"), ("GB", "choose a smaller hidden")),
        (("--per-neuron", "--hidden", "3", "4"), ("per_neuron needs spiking layers of equal size",)),
        (("--encoding", "rate-normalized"), ("unknown for digits", "cifar10), or encoding 'rate'")),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], parts: tuple[str, ...], ultralif: Commands) -> None:
    line = ultralif.refused("train", *words)
    assert all(part in line for part in parts), line
    assert not Path("runs").exists()


def test_a_folder_that_cannot_be_written(ultralif: Commands) -> None:
    Path("file").touch()
    line = ultralif.refused("train", *QUICK, "--quiet", "--runs-dir", "file/runs", code=1)
    assert "file" in line and "--runs-dir" in line


def test_switches_that_may_be_left_open(ultralif: Commands) -> None:
    words = (
        "--reset",
        "none",
        "--learn-eps",
        "--no-learn-leak",
        "--learn-threshold",
        "false",
        "--augment",
        "None",
        "--centered",
    )
    found = ultralif.json("train", "--neuron", "UltraDPLIF", *words, "--dry-run")["runs"][0]
    assert [found[f"learn_{name}"] for name in ("eps", "leak", "threshold")] == [True, False, False]
    assert found["reset"] == "none" and found["augment"] is None and found["centered"] is True


class TestConfigFile:
    """``--config``."""

    def test_the_file_of_a_run_gives_the_same_run(self, ultralif: Commands) -> None:
        first = ultralif.json("train", *QUICK, "--neuron", "UltraDLIF", "--sparsity", "0.01")
        again = ultralif.json("train", "--config", f"{first['path']}/config.json", "--runs-dir", "again")
        assert again["id"] == first["id"] and again["accuracy"] == first["accuracy"]
        models = [Path(run["path"], "model.safetensors").read_bytes() for run in (first, again)]
        assert models[0] == models[1]

    def test_flags_override_it(self, ultralif: Commands) -> None:
        Path("run.toml").write_text('neuron = "LIF"\nhidden = [5, 4]\nepochs = 7\n')
        found = ultralif.json("train", "--config=run.toml", "--epochs", "2", "--dry-run")["runs"][0]
        assert (found["neuron"], found["hidden"], found["epochs"]) == ("LIF", [5, 4], 2)

    @pytest.mark.parametrize(
        ("name", "text", "part"),
        [
            ("a.toml", "neuron = LIF", "a.toml is not valid"),
            ("a.json", "{", "a.json is not valid"),
            ("a.json", "[]", "must contain config fields, got list"),
            ("a.json", "[" * 100_000, "a.json is not valid"),
            ("a.toml", "nueron = 'LIF'", "did you mean 'neuron'?"),
            ("a.toml", "epochs = 'many'", "epochs must be an integer"),
            ("a.json", '{"schema": 7}', "this config has schema 7"),
            ("a.toml", "\ud800", "is not valid UTF-8 text"),
        ],
    )
    def test_a_bad_file(self, name: str, text: str, part: str, ultralif: Commands) -> None:
        Path(name).write_bytes(text.encode(errors="surrogatepass"))
        assert part in ultralif.refused("train", "--config", name)


def test_a_run_that_diverges_is_shown_and_fails(ultralif: Commands) -> None:
    said = ultralif(
        "train", *QUICK, "--neuron", "AdaLIF", "--adapt-strength", "1e38", "--timesteps", "9", "--quiet"
    )
    assert said.code == 1
    assert "the loss diverged; these are the results after epoch 0" in said.out
    lines = said.err.splitlines()
    assert "AdaLIF" in lines[0] and "diverged in epoch 1" in lines[0]
    assert lines[-1].startswith("ultralif: AdaLIF") and "--learning-rate" in lines[-1]
    (row,) = ultralif.json("runs", "list", "--status", "diverged")
    assert row["epochs"] == 0


def test_eval_says_where_the_modes_part(ultralif: Commands) -> None:
    run = ultralif.json("train", *QUICK, "--hidden", "6", "5")["id"]
    found = ultralif.json("eval", run, "--modes")
    assert found["gap"]["soft"]["agreement"] == 100 and found["gap"]["soft"]["first"] is None
    for mode in ("hard", "tropical"):
        assert len(found["gap"][mode]["differing"]) == 2
        assert 0 <= found["gap"][mode]["agreement"] <= 100
    header, *rows = ultralif.done("eval", run, "--modes").splitlines()
    assert "same decision as soft %" in header and "layer 2 differs %" in header
    assert rows[0].startswith("hard") and rows[1].startswith("tropical")


def test_eval_compares_the_energy_with_a_dense_network(ultralif: Commands) -> None:
    run = ultralif.json("train", *QUICK, "--hidden", "5")
    found = ultralif.json("eval", run["id"])["energy"]["int8"]
    assert set(found["snn_picojoules"]) == {"hard", "tropical"}
    assert found["ann_picojoules"] == ann_int8_energy(64 * 5 + 5 * 10, 5), "8x8 digits, 5 neurons, 10 classes"
    (line,) = (line for line in ultralif.done("eval", run["id"]).splitlines() if line.startswith("int8"))
    assert f"equal at {found['break_even']:.3f} spikes" in line


def test_tensorboard(ultralif: Commands) -> None:
    pytest.importorskip("tensorboard")
    run = ultralif.json("train", *QUICK, "--tensorboard", "events")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(f"events/{run['id']}").Reload()
    tags = set(found.Tags()["scalars"])
    assert {"train/loss", "train/eps", "train/hard_rate", "test/accuracy_soft"} <= tags
    (loss,) = found.Scalars("train/loss")
    assert loss.value == pytest.approx(Store().read(run["id"]).history[0]["loss"])


@pytest.mark.parametrize("command", ["train", "eval", "sweep", "runs", "completion"])
def test_help_has_examples_or_actions(command: str, ultralif: Commands) -> None:
    text = ultralif.done(command, "--help")
    assert f"usage: ultralif {command}" in text
    assert f"  ultralif {command} " in text or "\n  list " in text
