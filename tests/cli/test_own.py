"""Data, networks and neurons of one's own, given by paths on the command line."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import ultralif as ul
from ultralif.cli import main
from ultralif.errors import InputError
from ultralif.training import networks

CODE = """
from pathlib import Path

import torch
import ultralif as ul
from torch import nn

Path(__file__).with_suffix(".ran").touch()


class Net(nn.Module):
    def __init__(self, classes, shape, neuron):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(shape[0], 8), ul.NEURONS[neuron](), nn.Linear(8, classes))

    def forward(self, x):
        return self.layers(x)


class Own(ul.LIF):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    x = np.random.default_rng(0).random((60, 4), dtype=np.float32)
    y = (x[:, 0] > 0.5).astype(np.int64)
    np.savez("my.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    return tmp_path


FLAGS = ["--dataset", "my.npz", "--model", "mine.py:Net", "--neuron", "mine.py:Own"]


def test_a_run_whose_neuron_is_not_known_here_is_named_and_stops_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--epochs", "1", "--timesteps", "2", "--hidden", "4", "--json"]
    ids = []
    for neuron in ("mine.py:Own", "PLIF"):
        assert main([*words, "--neuron", neuron]) == 0
        ids.append(json.loads(capsys.readouterr().out)["id"])
    del ul.NEURONS["Own"]  # as in a new process
    assert main(["runs", "list"]) == 0
    out, err = capsys.readouterr()
    assert all(run in out for run in ids) and "Own is not known here" in err
    assert main(["report", "--out", "report.html"]) == 0
    assert f"'Own' of run {ids[0]} is not known here" in capsys.readouterr().err
    for command in (["eval", ids[0]], ["export", ids[0], "--to", "c", "--out", "c"]):
        assert main(command) == 2
        assert f"'Own' of run {ids[0]} is not known here; register it" in capsys.readouterr().err
    assert main(["eval", ids[0], "--neuron", "mine.py:Own"]) == 0


def test_a_run_of_ones_own_is_trained_stored_and_evaluated(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", *FLAGS, "--epochs", "2", "--timesteps", "3", "--encoding", "constant", "--json"]
    assert main([*words, "--batch-size", "20"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["neuron"] == "Own" and result["dataset"].startswith("own:")
    (folder / "mine.ran").unlink()
    monkeypatch.setattr(networks, "_OWN", {})  # as in a new process
    assert main(["eval", result["id"], "--dataset", "my.npz"]) == 2
    assert "--model" in capsys.readouterr().err
    assert not (folder / "mine.ran").exists(), "a stored run causes no code to be loaded"
    assert main(["eval", result["id"], *FLAGS, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["accuracy"] == result["accuracy"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dataset", "none.npz"], "does not exist"),
        (["--dataset", "mine.py:none"], "no class or function 'none'"),
        (["--neuron", "mine.py:Net"], "derived from ultralif.Neuron"),
        (["--model", "other.py:Net"], "file other.py does not exist"),
    ],
)
def test_a_path_that_leads_nowhere(
    words: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    assert says in capsys.readouterr().err


GREEDY = """
import ultralif as ul


class Greedy(ul.LIF):
    def __init__(self, *, gamma=0.5, **options):
        super().__init__(leak=gamma, **options)
"""


def test_a_sweep_its_table_and_its_report_take_data_and_neurons_of_ones_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("greedy.py").write_text(GREEDY)
    words = ["sweep", "--dataset", "my.npz", "--timesteps", "2", "--epochs", "1", "--hidden", "4", "--quiet"]
    assert main([*words, "--neurons", "LIF,greedy.py:Greedy", "--seeds", "2"]) == 0
    assert main([*words, "--neurons", "greedy.py:Greedy", "--gamma", "0.7"]) == 0
    capsys.readouterr()
    assert main(["runs", "table", "--by", "neuron,gamma"]) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert rows == [["Greedy", "0.5", "2"], ["Greedy", "0.7", "1"], ["LIF", "default", "2"]]
    del ul.NEURONS["Greedy"]  # as in a new process
    assert main(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 2, "a neuron that is not known is left out"
    assert main(["report", "--json", "--neuron", "greedy.py:Greedy", "--dataset", "my.npz"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == 5 and not told["notes"]
    assert main([*words, "--ray"]) == 2


def test_a_neuron_of_ones_own_cannot_take_the_name_of_a_built_in_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("lif.py").write_text("import ultralif as ul\n\n\nclass LIF(ul.LIF):\n    pass\n")
    assert main(["train", "--neuron", "lif.py:LIF", "--epochs", "1"]) == 2
    assert "lif.LIF has the same name as a built-in neuron" in capsys.readouterr().err
    assert ul.nn.NEURONS["LIF"] is ul.LIF
    other = type("LIF", (ul.LIF,), {})
    net = ul.Network((4, 3, 2), other)
    x, y = torch.rand(8, 4), torch.arange(8) % 2
    with pytest.raises(InputError, match="rename your class"):
        ul.train(net, (x, y), (x, y), epochs=1)


@pytest.mark.parametrize("scale", [255.0, -1.0])
def test_data_beyond_the_range_of_the_encoding_are_refused(
    scale: float, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).random((60, 4), dtype=np.float32) * scale
    y = np.arange(60) % 2
    np.savez("far.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    words = ["train", "--dataset", "far.npz", "--epochs", "1", "--timesteps", "2", "--quiet"]
    assert main([*words, "--encoding", "rate"]) == 2
    assert "choose encoding 'constant'" in capsys.readouterr().err
    assert main([*words, "--encoding", "constant"]) == 0


@pytest.mark.filterwarnings("default")
def test_labels_that_never_occur_in_training_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = np.random.default_rng(0).random((60, 4), dtype=np.float32), np.arange(60) % 2
    np.savez("labels.npz", x_train=x, y_train=y, x_test=x, y_test=y + 7)
    assert main(["train", "--dataset", "labels.npz", "--epochs", "1", "--timesteps", "2", "--quiet"]) == 0
    assert "warning: test has labels that never occur in train" in capsys.readouterr().err


def test_a_sweep_trains_a_network_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "--dataset", "my.npz", "--epochs", "1", "--seeds", "2", "--json", "--timesteps", "2,3"]
    assert main([*words, "--model", "mine.py:Net", "--neurons", "LIF,mine.py:Own"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 8 and {row["neuron"] for row in rows} == {"LIF", "Own"}
    assert len({row["config"]["model"] for row in rows}) == 2 and {row["seed"] for row in rows} == {42, 43}
    assert {row["config"]["encoding"] for row in rows} == {"constant"}
    Path("fixed.py").write_text(CODE.replace(", neuron)", ")").replace("ul.NEURONS[neuron]()", "ul.PLIF()"))
    assert main([*words, "--model", "fixed.py:Net"]) == 0
    assert [row["neuron"] for row in json.loads(capsys.readouterr().out)] == ["PLIF"] * 4


def test_networks_and_data_are_shown_by_the_names_of_their_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *FLAGS, "--epochs", "1", "--timesteps", "2", "--batch-size", "20"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "my.npz" in shown and FLAGS[FLAGS.index("--model") + 1] in shown and "own:" not in shown
    assert main(["runs", "list"]) == 0
    listed = capsys.readouterr().out
    assert "my.npz" in listed and "own:" not in listed
    assert main(["runs", "table", "--by", "dataset,model"]) == 0
    table = capsys.readouterr().out
    assert "my.npz" in table and "mine.py:Net" in table and "own:" not in table


def test_changed_code_is_named_and_a_finished_run_is_trained_again_on_demand(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", *FLAGS, "--epochs", "1", "--timesteps", "2", "--batch-size", "20", "--json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([*words, "--again"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["id"] == first["id"] and again["finished"] > first["finished"]
    code = folder / "mine.py"
    code.write_text(code.read_text().replace("return self.layers(x)", "return self.layers(x) * 0.0"))
    assert main(words) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["id"] != first["id"]
    assert first["id"] in captured.err and "changed" in captured.err


def test_changed_code_of_an_own_neuron_is_reported_with_its_old_numbers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--epochs", "1", "--timesteps", "2", "--hidden", "4", "--json"]
    words += ["--neuron", "mine.py:Own"]
    assert main(words) == 0
    run = json.loads(capsys.readouterr().out)["id"]
    commands = words, ["eval", run, "--neuron", "mine.py:Own", "--json"]
    for command in commands:
        assert main(command) == 0
    changed = """    @classmethod
    def integrate(cls, current, *a, **k):
        return super().integrate(0 * current, *a, **k)"""
    Path("mine.py").write_text(CODE.replace("    pass", changed))
    for command in commands:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert main(command) == 0
        assert f"the code of Own has changed since run {run} was trained" in capsys.readouterr().err
