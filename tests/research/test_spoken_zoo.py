"""The spoken-digit network of the zoo: how it is made, and that it is as good as its card says."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ultralif as ul
from research import RESULTS
from research.studies.contrast_data import CHANNELS, official_test
from research.studies.contrast_nets import Delays
from research.studies.contrast_nets import build as build_layered
from ultralif.training.zoo import cards

ROOT = Path(__file__).parents[2]
SHD = ROOT / ".." / "shared" / "data" / "shd"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import spoken_zoo

    return spoken_zoo


def test_folding_batch_norm_changes_no_score(tool: Any) -> None:
    torch.manual_seed(0)
    net: Any = build_layered(tool.CELL, (14, 16, 16, 5)).eval()
    for norm in net.norms:
        for value, low, high in zip(norm.parameters(), (0.5, -0.5), (1.5, 0.5), strict=True):
            torch.nn.init.uniform_(value, low, high)
        norm.running_mean.uniform_(-0.5, 0.5)
        norm.running_var.uniform_(0.5, 2.0)
    for neuron in net.neurons:
        neuron.log_eps.data.uniform_(-2.0, 0.5)
    ul.set_mode(net, "hard")
    made = tool.build(tool.config_of("own:some", (16, 16)), tool.folded(net))
    x = torch.randint(0, 6, (30, 40, 14)).float()
    assert 0.02 < made.observe(x).rates[1].mean() < 0.98
    torch.testing.assert_close(made(x), net(x), rtol=1e-4, atol=1e-4)


def test_it_is_the_first_fresh_seed_of_the_study(tool: Any) -> None:
    rows = [json.loads(line)["cell"] for line in (RESULTS / "contrasts.jsonl").read_text().splitlines()]
    cell = json.loads(json.dumps(asdict(tool.CELL)))
    assert cell in rows
    assert json.loads(json.dumps(asdict(replace(tool.CELL, seed=0, held=True)))) in rows


def test_the_counts_are_of_the_network_in_the_zoo(tool: Any) -> None:
    card, found = cards()[tool.NAME], json.loads((RESULTS / "spoken.json").read_text())
    assert found["float_percent"] == card["accuracy"]["hard"] >= 88
    assert found["integer_percent"] > card["accuracy"]["hard"] - 1
    assert found["boards"]["m0plus"]["instructions"] > found["boards"]["m4"]["instructions"] > 1e6


@pytest.mark.skipif(not SHD.is_dir(), reason="needs SHD")
def test_it_is_as_good_on_the_official_test_set_as_its_card_says(tool: Any) -> None:
    x, labels = official_test(SHD)
    summed = x.reshape(*x.shape[:2], CHANNELS, -1).sum(3, dtype=np.uint8)
    frames = torch.from_numpy(summed).transpose(0, 1)
    net = ul.load(tool.NAME)
    with torch.no_grad():
        decided = torch.cat([net(part.float()).argmax(1) for part in frames.split(500, 1)])
    accuracy = 100 * (decided == torch.from_numpy(labels)).double().mean().item()
    assert accuracy == pytest.approx(cards()[tool.NAME]["accuracy"]["hard"], abs=0.1)


def test_learned_delays_are_whole_steps_outside_training() -> None:
    layer = Delays(6, 4, max_delay=8).eval()
    whole = ul.DelayedLinear(6, 4, max_delay=8, bias=False)
    whole.load_state_dict({"weight": layer.weight.data, "delay": layer.delay.data.round()})
    x = torch.randn(20, 3, 6)
    torch.testing.assert_close(layer(x), whole(x))
    layer.train().width.fill_(3.0)
    assert (layer.taps != 0).sum(-1).min() > 1
