"""The study of depth: what UltraLIF is at T=1, the neurons made for comparison, the order of its runs."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ultralif as ul
from ultralif.training.zoo import get_model

ROOT = Path(__file__).parents[2]


@pytest.fixture
def deep(monkeypatch):
    from research.studies import deep

    return deep


@pytest.mark.parametrize("eps", [0.1, 0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("leak", [0.5, 0.9])
def test_ultralif_of_one_step_is_a_sigmoid_with_a_floor(eps, leak):
    current = torch.linspace(-3, 3, 601, dtype=torch.float64)[None, None]
    past, limit = math.log(leak) / eps, 0.5 / eps
    at_rest = 1 / (1 + math.exp(limit - past))
    midpoint = math.log(math.exp(past) + math.exp(limit))
    expected = at_rest + (1 - at_rest) * torch.sigmoid(current / eps - midpoint)
    neuron = ul.UltraLIF(eps=eps, leak=leak, threshold=0.5, learn_eps=False)
    torch.testing.assert_close(neuron(current), expected)
    # It is binary at a lower current than that of its midpoint: all the lower, the warmer it is.
    neuron.mode = "hard"
    crossing = eps * math.log(math.exp(limit) - math.exp(past))
    assert torch.equal(neuron(current), (current > crossing).double())
    assert crossing < 0.5 < eps * midpoint


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_the_matched_sigmoid_is_ultralif_without_its_floor(deep, mode):
    current = torch.randn(1, 4, 200, dtype=torch.float64, requires_grad=True)
    ultra, matched = ul.UltraLIF(eps=0.4), deep.Matched(eps=0.4)
    at_rest = ul.UltraLIF(eps=0.4)(torch.full((1, 1, 1), -60.0, dtype=torch.float64)).item()
    ultra.mode = matched.mode = mode
    a, b = ultra(current), matched(current)
    floor = at_rest if mode == "soft" else 0.0
    torch.testing.assert_close(a, floor + (1 - floor) * b)
    (grad_a,) = torch.autograd.grad(a.sum(), current)
    (grad_b,) = torch.autograd.grad(b.sum(), current)
    torch.testing.assert_close(grad_a, (1 - at_rest) * grad_b)


def test_a_mix_goes_from_soft_to_binary(deep):
    mix = deep.Mixed(steps=10, eps=0.3)
    current = torch.randn(2, 50, 40)
    binary = [((mix(current).detach() % 1) == 0).float().mean().item() for _ in range(12)]
    assert binary[0] < 0.3 and binary == sorted(binary) and binary[10:] == [1.0, 1.0]
    mix.eval()
    assert set(mix(current).unique().tolist()) == {0.0, 1.0}


def test_runs_come_in_order_and_none_twice(deep, tmp_path):
    recipe = {"optimizer": "sgd"}
    study = deep.Study(tmp_path / "rows.jsonl", recipe)
    done = []
    while len(done) < 100:
        done.append(next(study.lacking()))
        cell = done[-1]
        study.keep(cell, {"accuracy": 50 - abs(cell.value - 0.3) - abs(cell.lr - 0.3)})
    assert len(set(done)) == 100 and all(cell.held for cell in done[:51])  # five methods, nine runs each
    assert min(cell.lr for cell in done if cell.method == "sigmoid") == 0.01
    finals = [cell for cell in done if not cell.held]
    assert [cell.seed for cell in finals[:10]] == [0] * 5 + [1] * 5
    assert {(cell.lr, cell.value) for cell in finals if cell.method == "SoftLIF"} == {(0.3, 0.3)}
    again = deep.Study(tmp_path / "rows.jsonl", recipe)
    assert next(again.lacking()) not in done
    assert "| cifar10 | 1 | 6 | sgd | UltraLIF | 0.3 | 0.3 |" in deep.page.study(again.rows)


@pytest.fixture
def images(tmp_path):
    """A folder of CIFAR-10's form, with noise."""
    rows = np.random.default_rng(0).integers(0, 256, (40, 3073), np.uint8)
    rows[:, 0] %= 10
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / f"{name}.bin").write_bytes(rows.tobytes())
    return tmp_path


@pytest.mark.slow
def test_cells_run_at_once(deep, images, monkeypatch):
    cells = [{"method": name, "stages": [[2], [4, 4], [8]]} for name in ("UltraLIF", "sigmoid", "LIF, atan")]
    words = f"--data cifar10={images} --out {images}/rows.jsonl --jobs 2 --epochs 2 --batch 20 --subset 60"
    monkeypatch.setattr(sys, "argv", ["deep.py", *words.split(), "--cells", *map(json.dumps, cells)])
    deep.main()
    rows = [json.loads(line) for line in (images / "rows.jsonl").read_text().splitlines()]
    assert {row["cell"]["method"] for row in rows} == {"UltraLIF", "sigmoid", "LIF, atan"}
    assert all(row["mode"] == "hard" for row in rows)


def test_the_speedruns_net_is_loaded_from_a_zoo(deep, images, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import deep_zoo

    name, trained = "cifar10/vgg11r-t4", []
    run = deep_zoo.speedrun.run
    monkeypatch.setitem(deep_zoo.NETWORKS, name, {"width": 1 / 16, "batch": 20, "widths": "4,16,32,32"})
    monkeypatch.setattr(deep_zoo.speedrun, "run", lambda *given: trained.append(run(*given)) or trained[0])
    words = f"{images}/zoo {name} --data {images} --subset 60 --epochs 2"
    monkeypatch.setattr(sys, "argv", ["deep_zoo.py", *words.split()])
    deep_zoo.main()
    net = trained[0][1]
    pixels = torch.rand(8, 3, 32, 32)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (deep_zoo.speedrun.MEAN, deep_zoo.speedrun.STD))
    made = deep_zoo.as_vgg(net, deep_zoo.plan(name, 0, 2)[0]).eval()
    ul.set_mode(made, "soft")
    ul.set_mode(net, "soft")
    torch.testing.assert_close(made(pixels), net((pixels - mean) / std), rtol=1e-4, atol=1e-4)
    sys.modules.pop("deep_zoo")
    monkeypatch.setenv("ULTRALIF_CACHE", str(images / "cache"))
    get_model(name, images / "zoo")
    assert [neuron.mode for neuron in ul.load(name).modules() if isinstance(neuron, ul.nn.Neuron)] == [
        "hard"
    ] * 10


def test_the_page_has_the_tables_of_the_results():
    from research.pages import deep

    page = deep.PAGE.read_text()
    assert deep.filled(page) == page, "run python -m research pages deep"
