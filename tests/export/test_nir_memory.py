"""What remembers, in NIR: synaptic currents, feedback, delays and a readout by membrane."""

from pathlib import Path

import nir
import pytest
import torch
from torch import nn

import ultralif as ul
from export.nir_networks import in_norse
from ultralif.export import from_nir, quantize, to_nir

pytestmark = pytest.mark.usefixtures("quiet")


def networks() -> dict[str, nn.Sequential]:
    torch.manual_seed(0)
    made = {
        "CubaLIF": [nn.Linear(12, 10), ul.LIF(synapse=0.7), nn.Linear(10, 4), ul.LIF(synapse=torch.rand(4))],
        "cycle": [nn.Linear(12, 10), ul.Recurrent(ul.LIF(), nn.Linear(10, 10)), nn.Linear(10, 4)],
        "cycle of CubaLIF": [
            *(nn.Linear(12, 10), ul.Recurrent(ul.LIF(synapse=0.6), nn.Linear(10, 10, bias=False))),
            *(nn.Linear(10, 4), ul.LIF()),
        ],
        "Delay": [ul.DelayedLinear(12, 10, max_delay=4), ul.LIF(), nn.Linear(10, 4)],
        "LI": [nn.Linear(12, 10), ul.LIF(), nn.Linear(10, 4), ul.LeakyIntegrator(leak=0.8)],
    }
    nets = {name: nn.Sequential(*layers) for name, layers in made.items()}
    for net in nets.values():
        for layer in net.modules():
            if isinstance(layer, nn.Linear | ul.DelayedLinear):
                layer.weight.data.mul_(3)
    return nets


X = (torch.rand(40, 4, 12, generator=torch.Generator().manual_seed(1)) < 0.3).float()


@torch.no_grad()
@pytest.mark.parametrize("kind", networks())
@pytest.mark.parametrize("exact", [False, True])
def test_memory_is_written_and_read(kind: str, exact: bool, tmp_path: Path) -> None:
    net, path = networks()[kind], tmp_path / "a.nir"
    assert to_nir(net, path).spikes == 0
    nodes = {type(node).__name__ for node in nir.read(path).nodes.values()}
    assert "cycle" in kind or kind in nodes
    assert ("CubaLIF" in nodes) == ("CubaLIF" in kind)
    back, y = from_nir(path, exact=exact), net(X)
    found = back(X)
    assert float(y.abs().mean()) > 0.01
    torch.testing.assert_close(found, y if found.dim() == y.dim() else y.mean(0), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("kind", ["CubaLIF", "cycle", "cycle of CubaLIF"])
def test_norse_sees_the_same(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("norse")
    net, path = networks()[kind], tmp_path / "a.nir"
    to_nir(net, path)
    torch.testing.assert_close(in_norse(path, X), net(X), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["CubaLIF", "cycle of CubaLIF", "Delay"])
def test_files_with_memory_go_on_to_c(kind: str, tmp_path: Path) -> None:
    net, path = networks()[kind], tmp_path / "a.nir"
    to_nir(net, path)
    back = from_nir(path)
    integer = quantize(back, timesteps=40, weight_bits=16)
    expected = [module(X) for module in [nn.Sequential(*list(net)[:2])]]
    assert float((integer.run(X).spikes[0] != expected[0]).float().mean()) < 0.01


def test_feedback_needs_other_synapses(tmp_path: Path) -> None:
    net = nn.Sequential(ul.Recurrent(ul.LIF(), nn.Linear(5, 5)))
    with pytest.raises(ValueError, match="no synapses but feedback"):
        to_nir(net, tmp_path / "a.nir", shape=(5,))
