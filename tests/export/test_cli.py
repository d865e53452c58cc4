"""The command ``ultralif export``, from its help to its errors."""

import json
import shutil
import subprocess

import nir
import numpy as np
import onnx
import pytest
import torch

import ultralif as ul
from ultralif.cli import main
from ultralif.cli.sources import save_network
from ultralif.export import from_nir, to_nir


@pytest.fixture
def run(tmp_path):
    """Return a function that writes a network and gives its file."""

    def write(neuron: str = "LIF", weight: float | None = None):
        torch.manual_seed(0)
        net = ul.Network((12, 10, 4), neuron=neuron)
        if weight is not None:
            with torch.no_grad():
                net.linears[0].weight[0, 0] = weight
        path = tmp_path / f"{neuron}.safetensors"
        save_network(net, {"neuron": neuron}, path)
        return path

    return write


@pytest.fixture
def inputs(tmp_path):
    counts = (np.random.default_rng(0).random((20, 6, 3, 4)) < 0.3).astype(np.uint8)
    np.save(tmp_path / "inputs.npy", counts)
    return tmp_path / "inputs.npy"


def export(*arguments) -> int:
    return main(["export", *map(str, arguments)])


def test_help(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["export", "--help"])
    assert exit_.value.code in (0, None)
    assert "--memory-budget" in capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_to_c(run, inputs, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ("--mode", "tropical", "--bits", 16, "--clip-membrane", "--inputs", inputs, "--timesteps", 6)
    assert export(run("UltraLIF"), "--to", "c", "--out", out, *arguments) == 0
    lines = capsys.readouterr().out
    assert "8 recorded samples" in lines
    assert f"make -C {out} test" in lines
    subprocess.run(["make", "-s", "-C", out, "test"], check=True)


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_a_run_to_c_with_drawn_spikes_and_its_own_time_steps(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = ul.train(ul.RunConfig(neuron="LIF", epochs=1, timesteps=7, hidden=(10,)))
    for number, name in enumerate((trained.id[:8], trained.path)):
        out = tmp_path / f"out-{number}"
        assert export(name, "--to", "c", "--out", out, "--max-events", 2, "--json") == 0
        report = json.loads(capsys.readouterr().out)
        assert report["timesteps"] == 7
        assert report["max_events"] == 2
        assert "quantized for at most 2" in report["accuracy"]  # the test set has more
        assert report["constant_bytes"] > 64 * 10 + 10 * 10
        subprocess.run(["make", "-s", "-C", out, "test"], check=True)


def test_to_nir_and_on_to_c(run, tmp_path, capsys):
    assert export(run("PLIF"), "--to", "nir", "--out", tmp_path / "a") == 0
    assert "it is exact" in capsys.readouterr().out
    assert from_nir(tmp_path / "a" / "model.nir").sizes == (12, 10, 4)
    assert export(tmp_path / "a" / "model.nir", "--to", "c", "--out", tmp_path / "b") == 0
    assert (tmp_path / "b" / "model.c").is_file()


def test_to_nir_by_approximation(run, inputs, tmp_path, capsys):
    folder = run("UltraDLIF")
    assert export(folder, "--to", "nir", "--out", tmp_path / "a") == 2
    assert "allow an approximation" in capsys.readouterr().err
    assert export(folder, "--to", "nir", "--out", tmp_path / "a", "--approximate") == 2
    assert "not available; pass" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    arguments = ("--approximate", "--inputs", inputs, "--json")
    assert export(folder, "--to", "nir", "--out", tmp_path / "a", *arguments) == 0
    drift = json.loads(capsys.readouterr().out)["drift_spikes"]
    assert nir.read(tmp_path / "a" / "model.nir").metadata["ultralif:drift_spikes"] == drift


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, where a scan runs eagerly
def test_to_onnx_and_torch(run, tmp_path, capsys):
    folder = run("UltraLIF")
    assert export(folder, "--to", "onnx", "--out", tmp_path / "a", "--mode", "soft") == 0
    assert "states in and out" in capsys.readouterr().out
    onnx.checker.check_model(onnx.load(tmp_path / "a" / "model.onnx"))
    assert export(folder, "--to", "torch", "--out", tmp_path / "b", "--timesteps", 3) == 0
    assert torch.export.load(tmp_path / "b" / "model.pt2").module()(torch.zeros(3, 5, 12)).shape == (5, 4)


def test_bad_input_is_one_line_and_writes_nothing(run, tmp_path, capsys):
    folder, out = run(), tmp_path / "out"
    (tmp_path / "text.npy").write_text("no numbers")
    (tmp_path / "text.nir").write_text("no network")
    np.save(tmp_path / "floats.npy", np.zeros((2, 3, 12)))
    np.save(tmp_path / "narrow.npy", np.zeros((2, 3, 11), np.uint8))
    complaints = {
        (tmp_path / "nowhere", "--to", "c"): "nor a run",
        (tmp_path, "--to", "c"): "is not the folder of a run",
        (tmp_path / "text.npy", "--to", "c"): "is neither a .nir file nor",
        (tmp_path / "text.nir", "--to", "c"): "as a NIR file",
        (folder, "--to", "c", "--memory-budget", 100): "memory_budget is 100",
        (folder, "--to", "c", "--bits", 16, "--input-max", 255): "int16 cannot hold",
        (folder, "--to", "c", "--mode", "soft"): "mode must be hard or tropical",
        (folder, "--to", "c", "--timesteps", 0): "--timesteps must be 1 or more",
        (folder, "--to", "c", "--inputs", tmp_path / "text.npy"): "not a .npy file",
        (folder, "--to", "c", "--inputs", tmp_path / "none.npy"): "does not exist",
        (folder, "--to", "c", "--inputs", tmp_path / "floats.npy"): "must contain integers",
        (folder, "--to", "c", "--inputs", tmp_path / "narrow.npy"): "must contain integers",
        (folder, "--to", "nir", "--bits", 16): "--bits is for --to c",
        (folder, "--to", "onnx", "--approximate"): "--approximate is for --to nir",
        (folder, "--to", "paper"): "paper",
        (folder,): "--to",
    }
    for arguments, complaint in complaints.items():
        assert export(*arguments, "--out", out) == 2
        captured = capsys.readouterr()
        assert complaint in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""
        assert not out.exists()


def test_weights_out_of_range(run, tmp_path, capsys):
    assert export(run(weight=float("inf")), "--to", "c", "--out", tmp_path / "out") == 2
    assert "NaN or infinite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_left_alone(run, tmp_path, capsys):
    assert export(run(), "--to", "nir", "--out", tmp_path) == 2
    assert "already exists" in capsys.readouterr().err


def test_damaged_weights(run, tmp_path, capsys):
    path = run()
    path.write_bytes(path.read_bytes()[:-10])
    assert export(path, "--to", "c", "--out", tmp_path / "out") == 2
    assert "is neither a .nir file nor" in capsys.readouterr().err


def test_what_is_written_is_as_readable_as_any_file(tmp_path):
    from ultralif.export import quantize, to_c

    net = ul.Network((12, 10, 4), neuron="LIF")
    to_nir(net, tmp_path / "nir" / "model.nir")
    to_c(quantize(net, timesteps=3), tmp_path / "c", torch.zeros(3, 1, 12))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for made, plain in (("nir/model.nir", "file"), ("c/model.c", "file"), ("c", "folder"), ("nir", "folder")):
        assert (tmp_path / made).stat().st_mode == (tmp_path / plain).stat().st_mode


def test_c_says_how_often_integers_decide_as_floats(run, inputs, tmp_path, capsys):
    assert export(run(), "--to", "c", "--out", tmp_path / "out", "--inputs", inputs, "--json") == 0
    alike, _, of, _ = json.loads(capsys.readouterr().out)["decides_as_floats"].split()
    assert 18 <= int(alike) <= int(of) == 20


@pytest.mark.parametrize("to", ["c", "nir", "onnx", "torch"])
def test_weights_that_are_not_finite(run, tmp_path, capsys, to):
    assert export(run(weight=float("nan")), "--to", to, "--out", tmp_path / "out") == 2
    assert "NaN or infinite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_a_run_is_measured_on_its_whole_test_set(tmp_path, capsys):
    config = ul.RunConfig(neuron="UltraDLIF", epochs=3, timesteps=4, hidden=(16,), learning_rate=0.01)
    done = ul.train(config, runs_dir=tmp_path)
    arguments = (done.id, "--runs-dir", tmp_path, "--json")
    assert export(*arguments, "--to", "c", "--out", tmp_path / "c") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["test_samples"] == 360
    assert report["self_test"] == "8 test samples"
    assert report["float_percent"] == pytest.approx(done.by_mode["hard"].accuracy, abs=0.01)
    assert abs(report["integer_percent"] - report["float_percent"]) < 2
    made = subprocess.run(["make", "-s", "-C", tmp_path / "c", "test"], check=True, capture_output=True)
    assert made.stdout == b"self-test passed\n"
    assert export(*arguments, "--to", "nir", "--approximate", "--out", tmp_path / "nir") == 0
    assert json.loads(capsys.readouterr().out)["drift_samples"] == 360
