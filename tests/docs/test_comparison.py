"""The rows of docs/comparison.md that a dagger marks, run against the libraries they are about."""

import importlib
import importlib.metadata
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul

PAGE = (Path(__file__).parents[2] / "docs" / "comparison.md").read_text()
ROWS = (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|"))
TABLE = [[cell.strip() for cell in row] for row in ROWS]
LIBRARIES = TABLE[0][1:]

pytestmark = pytest.mark.slow


def peer(module: str):
    """Import a peer in the version that the page names; skip without it."""
    name = module.partition(".")[0]
    (library,) = (library for library in LIBRARIES if library.lower() == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = importlib.import_module(module)
        except ImportError:
            pytest.skip(f"{name} is not installed; see tests/peers.txt")
    assert f"{library} {importlib.metadata.version(name)}" in PAGE
    return found


class Looped(nn.Module):
    """A cell over a sequence, as these libraries' users write it."""

    def __init__(self, cell: nn.Module, at_rest: Callable[[Tensor], Tensor | None]) -> None:
        super().__init__()
        self.cell, self.at_rest = cell, at_rest

    def forward(self, current: Tensor) -> Tensor:
        state, spikes = self.at_rest(current[0]), []
        for t in range(current.shape[0]):
            spike, state = self.cell(current[t], state)
            spikes.append(spike)
        return torch.stack(spikes)


class Fresh(nn.Module):
    """A module that keeps its state, from rest at every call."""

    def __init__(self, neuron: nn.Module) -> None:
        super().__init__()
        self.neuron = neuron

    def forward(self, current: Tensor) -> Tensor:
        self.neuron.reset()
        return self.neuron(current)


def spikingjelly(spiking: bool = True) -> nn.Module:
    neurons = peer("spikingjelly.activation_based.neuron")
    surrogate = peer("spikingjelly.activation_based.surrogate").Sigmoid(spiking=spiking)
    return Fresh(neurons.LIFNode(surrogate_function=surrogate, step_mode="m"))


NEURONS: dict[str, Callable[[], nn.Module]] = {
    "UltraLIF": ul.UltraLIF,
    "SpikingJelly": spikingjelly,
    "snnTorch": lambda: Looped(peer("snntorch").Leaky(beta=0.9), torch.zeros_like),
    "norse": lambda: Looped(peer("norse.torch").LIFBoxCell(), lambda current: None),
}


def cell(row: str, library: str) -> str:
    (found,) = (cells for cells in TABLE if cells[0].startswith(row))
    assert found[0].endswith("†")
    return found[1 + LIBRARIES.index(library)]


def works(action: Callable[[], object]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            action()
        except (RuntimeError, torch._dynamo.exc.Unsupported):
            return False
    return True


@pytest.mark.parametrize("library", LIBRARIES)
def test_compile_export_vmap(library: str) -> None:
    neuron, current = NEURONS[library](), torch.randn(4, 3, 5)
    torch._dynamo.reset()
    compiled = works(lambda: torch.compile(neuron, fullgraph=True, backend="eager")(current))
    assert cell("`torch.compile", library) == ("yes" if compiled else "no")
    neuron = NEURONS[library]()
    assert cell("`torch.export", library) == (
        "yes" if works(lambda: torch.export.export(neuron, (current,))) else "no"
    )
    neuron = NEURONS[library]()
    mapped = works(lambda: torch.func.vmap(neuron)(torch.randn(2, 4, 3, 5)))
    assert cell("`torch.func.vmap", library) == ("yes" if mapped else "no")


@pytest.mark.parametrize("library", LIBRARIES)
def test_gradients(library: str) -> None:
    """A surrogate is not the gradient of what was computed; a soft spike's is."""
    current = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)

    def exact(neuron: nn.Module) -> bool:
        return works(lambda: torch.autograd.gradcheck(neuron.double(), (current,)))

    said = cell("passes `gradcheck`", library)
    if library == "SpikingJelly":
        assert said == "with `spiking=False`"
        assert exact(spikingjelly(spiking=False)) and not exact(spikingjelly())
    else:
        assert exact(NEURONS[library]()) == (said == "in soft mode")


@pytest.mark.parametrize("library", LIBRARIES)
def test_commands_and_types(library: str) -> None:
    NEURONS[library]()  # skips where the library is not
    package = importlib.metadata.distribution(library.lower())
    commands = [point.name for point in package.entry_points if point.group == "console_scripts"]
    assert cell("command line", library) == (f"`{commands[0]}`" if commands else "no")
    root = Path(importlib.import_module(library.lower()).__file__ or "").parent
    assert cell("`py.typed`", library) == ("yes" if (root / "py.typed").is_file() else "no")
