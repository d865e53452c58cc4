"""The reading of the author's code: each neuron stated anew in plain PyTorch, and both readings' tables."""

import math
from collections import Counter

import pytest
import torch

from ultralif import RunConfig
from ultralif.names import NEURON_NAMES
from ultralif.paper.grids import CLIPPED, cells, key_of
from ultralif.paper.readings import reproduced
from ultralif.paper.results import Results
from ultralif.paper.studies import STUDIES
from ultralif.training.build import build_network
from ultralif.training.config import PRESETS
from ultralif.training.result import ByEpoch, ModeResult, Result

PARAMETERS = {
    "PLIF": {"leak": 0.9},
    "FullPLIF": {"leak": 0.9, "threshold": 0.5},
    "DSpike": {"k": 4.0},
    "DSpikePlus": {"leak": 0.9, "k": 4.0},
    "SoftLIF": {"eps": 0.0},
    "UltraLIF": {"eps": 0.0},
    "UltraPLIF": {"eps": 0.0, "leak": math.log(0.9)},
    "UltraDLIF": {"eps": 0.0},
    "UltraDPLIF": {"eps": 0.0, "leak": 0.9},
}
"""The first value of each parameter as the author's code stores it."""


def restated(name: str, currents: torch.Tensor, p: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the spikes ``[T, B, N]`` of a neuron as the author's code computes them."""
    v = b = torch.zeros_like(currents[0])
    out = []
    for current in currents:
        if name in ("UltraLIF", "UltraPLIF"):
            eps = p["eps"].exp().clamp(0.1, 20)
            log_leak = p.get("leak", torch.tensor(math.log(0.9), dtype=v.dtype))
            v = eps * torch.logsumexp(torch.stack([v + log_leak, current]) / eps, 0)
            s = torch.sigmoid(v / eps)
        else:
            leak = torch.sigmoid(p["leak"]) if "leak" in p else 0.9
            v = leak * v + current
            if name in ("UltraDLIF", "UltraDPLIF"):
                eps = p["eps"].exp().clamp(0.1, 20)
                around = torch.stack([v.roll(1, -1), v, v.roll(-1, -1)])
                s = torch.sigmoid(eps * torch.logsumexp(around / eps, 0) / eps)
            elif name == "SoftLIF":
                s = torch.sigmoid(v / p["eps"].exp().clamp(0.1, 20))
            elif "k" in p:
                k = torch.nn.functional.softplus(p["k"]).clamp(0.5, 50)
                curve = torch.tanh(k * (v / (2 * 0.5) - 0.5)) + torch.tanh(k / 2)
                s = (curve / (2 * torch.tanh(k / 2) + 1e-8)).clamp(0, 1)
            else:
                threshold = torch.sigmoid(p["threshold"]) if "threshold" in p else 0.5
                s = torch.sigmoid(10 * (v - threshold - (0.1 * b if name == "AdaLIF" else 0)))
        v = v * (1 - s)
        b = 0.9 * b + 0.1 * s
        out.append(s)
    return torch.stack(out)


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_every_neuron_is_that_of_the_authors_code(name: str) -> None:
    currents = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(1)).double()
    weight = torch.linspace(-1, 1, currents.numel()).double().view_as(currents)
    network = build_network(RunConfig(**PRESETS["released"], neuron=name, dataset="mnist")).double()
    neuron = network.neurons[0]
    mine = currents.clone().requires_grad_()
    spikes = neuron(mine)
    (spikes * weight).sum().backward()
    p = {k: torch.tensor(v).double().requires_grad_() for k, v in PARAMETERS.get(name, {}).items()}
    theirs = currents.clone().requires_grad_()
    expected = restated(name, theirs, p)
    (expected * weight).sum().backward()
    torch.testing.assert_close(spikes, expected, rtol=1e-6, atol=1e-6)  # parameters begin in float32
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-5, atol=1e-5)
    raw = {"eps": "log_eps", "k": "softplus_sharpness", "threshold": "logit_threshold"}
    raw["leak"] = "log_leak" if name == "UltraPLIF" else "logit_leak"
    assert {raw[k] for k in p} == {n for n, _ in neuron.named_parameters()}
    for k, value in p.items():
        torch.testing.assert_close(neuron.get_parameter(raw[k]).grad, value.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "raw"), [("UltraDLIF", "log_eps"), ("DSpike", "softplus_sharpness")])
def test_a_constant_at_its_bound_has_no_gradient(name: str, raw: str) -> None:
    neuron = build_network(RunConfig(**PRESETS["released"], neuron=name, dataset="mnist")).neurons[0]
    parameter = neuron.get_parameter(raw)
    with torch.no_grad():
        parameter.fill_(-5.0)
    neuron(torch.randn(2, 3, 6)).sum().backward()
    assert parameter.grad == 0


def test_undriven_ultradlif_fires_at_three_quarters() -> None:
    neuron = build_network(RunConfig(**PRESETS["released"], neuron="UltraDLIF", dataset="mnist")).neurons[0]
    torch.testing.assert_close(neuron(torch.zeros(1, 1, 5)), torch.full((1, 1, 5), 0.75))


def test_a_stored_run_of_a_reading_is_the_same_run() -> None:
    for name in ("released", "ablation"):
        for neuron in NEURON_NAMES:
            config = RunConfig(**PRESETS[name], neuron=neuron, dataset="mnist")
            again = RunConfig.from_dict(config.to_dict())
            assert again == config and again.neuron_arguments() == config.neuron_arguments()


def made(config: RunConfig, best: float) -> Result:
    return Result(
        id=config.id,
        status="done",
        dataset=config.dataset,
        neuron=config.neuron,
        timesteps=config.timesteps,
        seed=config.seed,
        sparsity=0.0,
        mode="soft",
        by_mode={"soft": ModeResult(best - 1)},
        by_epoch=ByEpoch(test=(best - 3, best, best - 1)),
        config=config.to_dict(),
    )


def test_a_published_number_is_reproduced_within_half_a_point_or_two_deviations() -> None:
    (key, config) = next(cells("released-mnist"))  # LIF at T=1, published 95.34
    assert key == key_of(config.to_dict()) and key.encoding == CLIPPED
    off = Results([made(config, 95.90), made(config.with_(seed=43), 95.91)])
    near = Results([made(config, 95.80), made(config.with_(seed=43), 95.81)])
    wide = Results([made(config, 95.50), made(config.with_(seed=43), 96.50)])
    assert [reproduced(results, ["mnist"]) for results in (off, near, wide)] == [
        (0, 1, 30),
        (1, 1, 30),
        (1, 1, 30),
    ]
    assert near.best_epoch("LIF", "mnist", 1) == {42: 95.80, 43: 95.81}
    assert near.accuracy("LIF", "mnist", 1, encoding=CLIPPED) == {42: 94.80, 43: 94.81}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_a_grid_of_runs_that_can_be_built(name: str) -> None:
    runs = list(STUDIES[name]())
    assert len({config.id for _, config in runs}) > 0.9 * len(runs)  # where a change changes nothing
    for _, config in runs:
        if config.dataset == "mnist" and config.timesteps == 1 and config.learning_rate == 1e-3:
            neuron = build_network(config).neurons[0]
            assert config.mode in (None, neuron.mode)


def test_the_tuning_grid_is_as_large_for_every_neuron() -> None:
    counts = Counter(config.neuron for _, config in STUDIES["tuning"]())
    lif = counts.pop("LIF")
    assert set(counts.values()) == {lif // 3}, "LIF has three surrogates"
    assert all(config.validation and config.seed == 1000 for _, config in STUDIES["tuning"]())
