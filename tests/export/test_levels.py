"""Inputs that are real numbers: counted in 8 bits, multiplied by the first layer, the same in C."""

import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from export.c_program import SANITIZE, assert_equal_bit_for_bit, classify, make
from export.networks import SHAPE, made
from ultralif.cli import main
from ultralif.errors import InputError
from ultralif.export import quantize, to_c
from ultralif.export.harden import spike_trains
from ultralif.export.integer import Levels
from ultralif.training.batches import _load

RANGES = [(0.0, 1.0), (-2.0, 1.5)]
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")


def pictures(seed: int, ends: tuple[float, float], steps: int = 5, batch: int = 24) -> Tensor:
    """Draw pictures that change at every time step."""
    drawn = torch.rand(steps, batch, *SHAPE, generator=torch.Generator().manual_seed(seed))
    return ends[0] + drawn * (ends[1] - ends[0])


def test_levels_are_the_nearest_and_end_where_the_range_does():
    x = torch.tensor([-9.0, -2.0, -0.01, 0.0, 0.4, 1.0, 9.0])
    assert Levels.of(0, 1)(x).tolist() == [0, 0, 0, 0, 102, 255, 255]
    assert Levels.of(-2, 1)(x).tolist() == [-127, -127, -1, 0, 25, 64, 127]
    pixels = torch.arange(256) / 255
    assert Levels.of(0, 1)(pixels).tolist() == list(range(256))  # bytes lose nothing


@torch.no_grad()
@pytest.mark.parametrize("ends", RANGES)
@pytest.mark.parametrize("kind", ["vgg", "pooled spikes", "residual"])
@pytest.mark.parametrize("bits", [16, 32])
def test_integers_spike_like_floats(kind, ends, bits):
    net, x = made(kind, 1, ul.UltraLIF), pictures(2, ends)
    integer = quantize(net, shape=SHAPE, timesteps=5, input_range=ends, bits=bits, clip_membrane=bits == 16)
    found = integer.run(x)
    with ul.mode(net, "hard"):
        trains = spike_trains(net, x)
    assert 0.02 < trains[0].mean() < 0.98
    same = [(mine == (theirs > 0)).double().mean() for mine, theirs in zip(found.spikes, trains, strict=True)]
    assert same[0] > 0.985
    assert min(same) > 0.95  # later layers see what earlier ones round


@needs_gcc
@pytest.mark.parametrize("ends", RANGES)
@pytest.mark.parametrize("kind", ["vgg", "residual", "pooled input"])
def test_c_is_equal_bit_for_bit(tmp_path, kind, ends):
    """The self-test replays pictures that change; the example shows one picture for all time steps."""
    net = made("vgg" if kind == "pooled input" else kind, 3, ul.UltraLIF)
    if kind == "pooled input":
        net = nn.Sequential(
            ul.TimeDistributed(nn.AvgPool2d(2, 1)), nn.Flatten(2), nn.Linear(112, 9), ul.LIF()
        )
    x = pictures(4, ends)
    integer = quantize(net, shape=SHAPE, timesteps=5, input_range=ends)
    to_c(integer, tmp_path / "c", x[:, :3])
    flags = f"-O1 -Wconversion -Wshadow -Wcast-qual {SANITIZE}"
    make(tmp_path / "c", "gcc", flags, "test")  # which fails where a membrane differs
    still = x[:1].expand_as(x)
    assert_equal_bit_for_bit(tmp_path / "c", integer, still)
    make(tmp_path / "c", "gcc", f"{flags} -DMODEL_COUNT", "clean", "model")
    counted = sum(int(line[-1]) for line in classify(tmp_path / "c", integer, still))
    assert counted == sum(int(spikes.sum()) for spikes in integer.run(still).spikes)


def test_the_largest_input_leaves_no_bound():
    """Every weight at its largest, every level at its end: nothing passes int32."""
    net = nn.Sequential(nn.Linear(3000, 4), ul.LIF(), nn.Linear(4, 2))
    with torch.no_grad():
        net[0].weight.fill_(1.0)
    for sign in (1, -1):
        integer = quantize(net, timesteps=20, input_range=(-1, 1))
        found = integer.run(torch.full((20, 1, 3000), float(sign)))
        assert int(found.membranes[0].abs().max()) < 2**31
        assert bool(found.spikes[0].all()) == (sign > 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_range": (1, 0)}, "input_range must be"),
        ({"input_range": (0, 0)}, "input_range must be"),
        ({"input_range": (0, float("inf"))}, "input_range must be"),
        ({"input_range": (0, 1), "input_max": 3}, "input_max and max_events are for events"),
    ],
)
def test_what_cannot_be_asked(options, message):
    with pytest.raises(InputError, match=message):
        quantize(ul.Network((4, 3, 2)), **options)
    with pytest.raises(InputError, match="finite numbers"):
        quantize(ul.Network((4, 3, 2)), input_range=(0, 1)).run(torch.full((2, 1, 4), torch.nan))


@torch.no_grad()
@needs_gcc
def test_wide_weights_decide_as_floats(tmp_path):
    """int8 weights are all that is lost: with int16 hardly a spike differs, and C agrees."""
    net, x = made("vgg", 7, ul.UltraLIF), pictures(8, (0, 1), batch=64)
    differing = {}
    for bits in (8, 16):
        integer = quantize(net, shape=SHAPE, timesteps=5, input_range=(0, 1), weight_bits=bits)
        found = integer.run(integer.levels(x) * integer.levels.step).spikes
        with ul.mode(net, "hard"):
            trains = spike_trains(net, (integer.levels(x) * integer.levels.step).float())
        differing[bits] = max(
            float((a != (b > 0)).double().mean()) for a, b in zip(found, trains, strict=True)
        )
    assert differing[16] < 0.001 < differing[8]
    to_c(integer, tmp_path / "c", x[:, :3])
    make(tmp_path / "c", "gcc", f"-O1 -Wconversion {SANITIZE}", "test")


@needs_gcc
def test_the_default_run_becomes_c(tmp_path, capsys):
    """`ultralif train`, shortened, then `ultralif export --to c`."""
    runs = ("--runs-dir", str(tmp_path))
    assert main(["train", "--epochs", "3", "--json", *runs]) == 0
    done = json.loads(capsys.readouterr().out)
    out = tmp_path / "net"
    assert main(["export", done["id"], "--to", "c", "--out", str(out), "--json", *runs]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["test_samples"] == 360
    assert report["input"].startswith("real numbers as 8-bit integers: 0 to 255")
    assert report["float_percent"] == pytest.approx(done["accuracy"]["hard"], abs=0.01)
    assert abs(report["integer_percent"] - report["float_percent"]) < 2
    made = subprocess.run(["make", "-s", "-C", out, "test"], check=True, capture_output=True)
    assert made.stdout == b"self-test passed\n"
    assert main(["eval", done["id"], "--modes", "--json", *runs]) == 0
    gap = json.loads(capsys.readouterr().out)["gap"]["hard"]
    net, test = ul.load(done["id"], tmp_path), ul.data.load("digits").test
    images, _ = next(ul.data.Loader(test, len(test), 1, "constant", shuffle=False).epoch(0))
    decided = {}
    for mode in ("soft", "hard"):
        with ul.mode(net.eval(), mode), torch.no_grad():
            decided[mode] = net(images[0]).argmax(1)  # shown for all of its time steps
    same = (decided["soft"] == decided["hard"]).double().mean()
    assert gap["agreement"] == pytest.approx(100 * same.item(), abs=0.3)


NET = """
from torch import nn
import ultralif as ul

class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Linear(6, 8), ul.LIF(), nn.Linear(8, classes))
"""


def test_a_network_and_data_of_ones_own(tmp_path, capsys, monkeypatch):
    """Both are asked for again; their code is run only where their path is typed."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(64, 6)).astype(np.float32)
    np.savez(tmp_path / "my.npz", x_train=x, y_train=x[:, 0] > 0, x_test=x, y_test=x[:, 0] > 0)
    (tmp_path / "net.py").write_text(NET)
    runs = ("--runs-dir", str(tmp_path / "runs"))
    own = ("--model", f"{tmp_path}/net.py:Net", "--dataset", str(tmp_path / "my.npz"))
    assert (
        main(["train", *own, "--epochs", "30", "--timesteps", "3", "--encoding", "constant", "--json", *runs])
        == 0
    )
    done = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("ultralif.training.networks._OWN", {})  # as in a new process
    monkeypatch.setattr("ultralif.data.user_data._KNOWN", {})
    monkeypatch.delitem(ul.data.DATASETS, done["dataset"])
    _load.cache_clear()
    export = ("export", done["id"], "--to", "c", "--json", "--out", str(tmp_path / "c"), *runs)
    for given, missing in (((), "--dataset"), (own[:2], "--dataset"), (own[2:], "--model")):
        assert main([*export, *given]) == 2
        assert f"with {missing}" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
    assert main([*export, *own]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["test_samples"] == 64
    assert report["input"].startswith("real numbers as 8-bit integers: -127 to 127")
    assert main(["eval", done["id"], "--json", *own, *runs]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"]["hard"] == pytest.approx(
        report["float_percent"], abs=0.01
    )
