"""The neurons of other readings compute what the library of 0.2.0 did by keywords, in float64.

The golden file was made once with 0.2.0: spikes and gradients of a small layer, with the learned temperature
or sharpness inside its range and far below it (``shift``).
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from research.__main__ import main
from research.readings import neurons
from research.readings.neurons import READING_NEURONS
from research.readings.presets import READINGS, reading_config
from ultralif.training import build_network

ROWS = json.loads((Path(__file__).parent / "golden" / "readings.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['case']} {row['shift']:g}")
def test_a_reading_is_that_of_the_golden_file(row: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(5)
    x = (1.2 * torch.randn(5, 2, 4, generator=generator, dtype=torch.float64) + 0.3).requires_grad_()
    neuron = getattr(neurons, row["neuron"])(**row["options"]).double()
    with torch.no_grad():
        for name, parameter in neuron.named_parameters():
            assert parameter.item() == pytest.approx(row["raw"][name], rel=1e-6)
            parameter.fill_(row["raw"][name])  # its last digit differs between processors
            if "eps" in name or "sharpness" in name:
                parameter.add_(row["shift"])
    spikes = neuron(x)
    (spikes * torch.linspace(-1, 1, 40, dtype=torch.float64).view(5, 2, 4)).sum().backward()
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(spikes.flatten(), torch.tensor(row["spikes"], dtype=torch.float64), **close)
    torch.testing.assert_close(x.grad.flatten(), torch.tensor(row["gradient"], dtype=torch.float64), **close)
    found = {name: parameter.grad.item() for name, parameter in neuron.named_parameters()}
    assert found == pytest.approx(row["parameters"], rel=1e-11, abs=1e-12)


def test_every_neuron_has_a_golden_row() -> None:
    assert {row["neuron"] for row in ROWS} == {neuron.__name__ for neuron in READING_NEURONS}


@pytest.mark.parametrize("reading", ["released", "ablation"])
@pytest.mark.parametrize("neuron", READINGS["released"][1])
def test_a_reading_is_built_and_soft(reading: str, neuron: str) -> None:
    network = build_network(reading_config(reading, neuron, dataset="mnist"))
    assert all(layer.mode == "soft" for layer in network.neurons)


def test_a_reading_trains_from_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["studies", "reading", "UltraDLIF", "--dataset", "digits", "--epochs", "1"]
    assert main([*words, "--runs-dir", str(tmp_path)]) == 2
    assert "rate-clipped" in capsys.readouterr().err  # digits have no mean and deviation
    assert main([*words, "--runs-dir", str(tmp_path), "--encoding", "rate"]) == 0
    assert "ReleasedUltraDLIF on digits" in capsys.readouterr().out
