"""Networks of other libraries and NIR files to C, compared with the spikes of their sources."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ultralif.cli import main

pytest.importorskip("snntorch")
pytest.importorskip("spikingjelly")
pytest.importorskip("norse")

NETWORKS = """
import snntorch as snn, norse.torch as norse, torch
from spikingjelly.activation_based import functional, layer, neuron
from torch import nn
import ultralif as ul

def scaled(net, gain=3):
    torch.manual_seed(0)
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.reset_parameters()
            module.weight.data.mul_(gain)
    return net

class Tutorial(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(40, 30), snn.Leaky(beta=0.9)
        self.fc2, self.lif2 = nn.Linear(30, 5), snn.Leaky(beta=0.9)
        scaled(self)

    def forward(self, x):
        x = x.view(x.size(0), -1)
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spikes, membranes = [], []
        for _ in range(12):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
            membranes.append(mem2)
        return torch.stack(spikes), torch.stack(membranes)

class Residual(Tutorial):
    def __init__(self):
        super().__init__()
        self.fc3, self.lif3 = nn.Linear(30, 30), snn.Leaky(beta=0.8)
        scaled(self)

    def forward(self, x):
        mem1, mem2, mem3 = self.lif1.init_leaky(), self.lif2.init_leaky(), self.lif3.init_leaky()
        count = torch.zeros(x.shape[1], 5)
        for t in range(x.shape[0]):
            current = self.fc1(x[t, :])
            spk1, mem1 = self.lif1(current, mem1)
            spk3, mem3 = self.lif3(self.fc3(spk1) + current, mem3)
            spk2, mem2 = self.lif2(self.fc2(spk3), mem2)
            count += spk2
        return count

def Sequence():
    return scaled(nn.Sequential(
        nn.Linear(40, 30), snn.Leaky(beta=0.9, reset_mechanism="zero", init_hidden=True),
        nn.Linear(30, 5), snn.Leaky(beta=torch.rand(5), init_hidden=True, output=True)))

class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = scaled(nn.Sequential(
            layer.Conv2d(2, 4, 3, padding=1, bias=False), layer.BatchNorm2d(4), neuron.ParametricLIFNode(2.0),
            layer.MaxPool2d(2), layer.Flatten(), layer.Linear(64, 5), neuron.IFNode()))
        functional.set_step_mode(self, "m")

    def forward(self, x):
        return self.layers(x.unsqueeze(0).repeat(6, 1, 1, 1, 1)).mean(0)

def Boxes():
    p = norse.LIFBoxParameters(v_th=torch.tensor(0.2), v_leak=torch.tensor(0.05))
    return scaled(norse.SequentialState(
        nn.Linear(40, 30), norse.LIFBoxCell(p), nn.Linear(30, 5), norse.LIFBoxCell(p)), 10)

def Ours():
    return scaled(nn.Sequential(nn.Linear(40, 30), ul.LIF(), nn.Linear(30, 5)))

def Double():
    return nn.Sequential(nn.Linear(40, 30), snn.Leaky(beta=0.9, reset_delay=False, init_hidden=True))
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETWORKS)
    return tmp_path / "nets.py"


def export(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    code = main(["export", *map(str, arguments), "--to", "c", "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def agreement(report: dict) -> tuple[float, int]:
    share, spikes = re.fullmatch(
        r"(.*) % of \d+ neuron steps \((\d+) spikes\)", report["spikes_as_source"]
    ).groups()
    return float(share), int(spikes)


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("Tutorial", "snntorch"),
        ("Residual", "snntorch"),
        ("Sequence", "snntorch"),
        ("Pictures", "spikingjelly"),
        ("Boxes", "norse"),
    ],
)
def test_code_of_another_library_to_c(name, library, code, tmp_path, capsys):
    more = []
    if name == "Pictures":
        drawn = np.random.default_rng(0).random((16, 1, 2, 8, 8)) < 0.3
        np.save(tmp_path / "x.npy", drawn.astype(np.uint8))
        more = ["--inputs", tmp_path / "x.npy"]
    report = export(capsys, f"{code}:{name}", "--out", tmp_path / "c", "--weight-bits", 16, *more)
    share, spikes = agreement(report)
    assert report["source"] == library and share > 99.5 and spikes > 100
    assert int(report["decides_as_source"].split()[0]) >= 6
    subprocess.run(["make", "-s", "-C", tmp_path / "c", "test"], check=True)


def test_code_of_our_own_to_c(code, tmp_path, capsys):
    report = export(capsys, f"{code}:Ours", "--out", tmp_path / "c")
    assert "source" not in report and report["decides_as_floats"].endswith("samples")


@pytest.mark.filterwarnings("ignore")
def test_what_has_no_form_in_c(code, tmp_path, capsys):
    assert main(["export", f"{code}:Double", "--to", "c", "--out", str(tmp_path / "c")]) == 2
    assert "train with reset_delay=True" in capsys.readouterr().err and not (tmp_path / "c").exists()
    assert main(["export", f"{code}:Ours", "--to", "c", "--out", str(tmp_path / "c"), "--reset", "zero"]) == 2
    assert "--reset is for NIR files" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reset", ["subtract", "zero"])
def test_a_file_of_snntorch_to_c(reset, tmp_path, capsys):
    import nir
    import snntorch
    import torch
    from snntorch.export_nir import export_to_nir

    torch.manual_seed(0)
    cells = [
        snntorch.Leaky(torch.full((n,), 0.8), torch.ones(n), reset_mechanism=reset, init_hidden=True)
        for n in (30, 5)
    ]
    net = torch.nn.Sequential(torch.nn.Linear(40, 30), cells[0], torch.nn.Linear(30, 5), cells[1])
    for linear in (net[0], net[2]):
        linear.weight.data.mul_(3)
    nir.write(tmp_path / "x.nir", export_to_nir(net, torch.zeros(1, 40), ignore_dims=[0]))
    file = ("--out", tmp_path / "c", "--weight-bits", 16, "--reset", reset)
    report = export(capsys, tmp_path / "x.nir", *file)
    share, spikes = agreement(report)
    assert share > 99.5 and spikes > 100


@pytest.mark.parametrize("name", ["cnn_sinabs", "scnn_mnist"])
def test_a_file_of_integrate_and_fire_neurons_to_c(name, tmp_path, capsys):
    path = Path(__file__).parents[3] / "shared" / "data" / "nir" / f"{name}.nir"
    if not path.is_file():
        pytest.skip("the files of the NIR paper are not there")
    report = export(capsys, path, "--out", tmp_path / "c", "--timesteps", 20, "--weight-bits", 16)
    assert agreement(report)[0] > 99
