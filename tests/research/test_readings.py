"""The reading of the author's code: each neuron stated anew in plain PyTorch, and both readings' tables."""

import math
from collections import Counter

import pytest
import torch

from research.paper.grids import CLIPPED, cells, key_of
from research.paper.released import reproduced
from research.paper.results import Results
from research.readings.presets import reading_config
from research.studies.grids import STUDIES, TUNED, StudyCell, tuned
from research.studies.tables import factors_table, readings_table, tuned_groups, tuned_table
from ultralif import RunConfig
from ultralif.names import NEURON_NAMES
from ultralif.training.networks import build_network
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
    network = build_network(reading_config("released", name, dataset="mnist")).double()
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
    neuron = build_network(reading_config("released", name, dataset="mnist")).neurons[0]
    parameter = neuron.get_parameter(raw)
    with torch.no_grad():
        parameter.fill_(-5.0)
    neuron(torch.randn(2, 3, 6)).sum().backward()
    assert parameter.grad == 0


def test_undriven_ultradlif_fires_at_three_quarters() -> None:
    neuron = build_network(reading_config("released", "UltraDLIF", dataset="mnist")).neurons[0]
    torch.testing.assert_close(neuron(torch.zeros(1, 1, 5)), torch.full((1, 1, 5), 0.75))


def test_a_stored_run_of_a_reading_is_the_same_run() -> None:
    for name in ("written", "released", "ablation"):
        for neuron in NEURON_NAMES:
            config = reading_config(name, neuron, dataset="mnist")
            again = RunConfig.from_dict(config.to_dict())
            assert again == config and again.complete_options == config.complete_options


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
def test_a_study_is_a_grid_of_different_runs_that_can_be_built(name: str) -> None:
    runs = list(STUDIES[name]())
    assert len({config.id for _, config in runs}) == len(runs) == len(dict(runs))
    for _, config in runs:
        if config.dataset == "mnist" and config.timesteps == 1 and config.learning_rate == 1e-3:
            neuron = build_network(config).neurons[0]
            assert config.mode in (None, neuron.mode)


def test_the_tuning_grid_is_as_large_for_every_neuron() -> None:
    counts = Counter(cell.label.partition(",")[0] for cell, _ in STUDIES["tuning"]())
    assert set(counts) == set(TUNED) and len(set(counts.values())) == 1
    assert all(config.validation and config.seed == 1000 for _, config in STUDIES["tuning"]())


def held_out_result(config: RunConfig, value: float, status: str = "done") -> Result:
    mode = config.mode or ("soft" if "Ultra" in config.neuron or config.neuron == "SoftLIF" else "hard")
    return Result(
        id=config.id,
        status=status,
        dataset=config.dataset,
        neuron=config.neuron,
        timesteps=config.timesteps,
        seed=config.seed,
        sparsity=0.0,
        mode=mode,
        by_mode={mode: ModeResult(accuracy=value, validation=value)},
        config=config.to_dict(),
    )


def test_the_tuned_setting_is_the_best_on_held_out_data_alone() -> None:
    grid = [config for cell, config in STUDIES["tuning"]() if cell[1:] == ("mnist", 1)]
    wanted = {"learning_rate": 3e-3, "width": 0.25}

    def points(config: RunConfig) -> float:
        near = config.learning_rate == wanted["learning_rate"]
        values = set(config.neuron_options.values())
        return 90.0 + near + (0.25 in values or 4.0 in values)

    rows = [held_out_result(config, points(config)) for config in grid]
    chosen = dict(tuned(rows))
    assert {cell.label for cell in chosen} == set(TUNED)
    for config in chosen.values():
        assert (config.validation, config.epochs, config.seed) == (0.0, 100, 42)
        assert config.learning_rate == 3e-3 and points(config) == 92.0
    best = next(i for i, config in enumerate(grid) if points(config) == 92.0)
    rows[best] = held_out_result(grid[best], 99.0, status="diverged")
    assert chosen[label := StudyCell("LIF", "mnist", 1)].id != dict(tuned(rows))[label].id, "it diverged"
    assert not any(cell.label == "LIF" for cell, _ in tuned(rows[:best] + rows[best + 1 :])), "one is missing"

    fresh = [held_out_result(config.with_(seed=43), 95.0) for config in chosen.values()]
    table = tuned_table([*rows[:best], held_out_result(grid[best], 92.0), *rows[best + 1 :], *fresh])
    assert [row[2] for row in table.rows] == list(TUNED)
    assert {row[3:6] for row in table.rows} == {("width 0.25, rate 0.003", "92.00", "95.00")}


def test_the_best_of_a_group_is_chosen_on_held_out_data_and_compared_with_its_control() -> None:
    """UltraLIF is best on held-out data, UltraPLIF on the test set; SoftLIF is level with UltraLIF."""
    held = {"UltraLIF": 93.0, "LIF atan": 92.0}
    test = {"UltraLIF": 95.0, "UltraPLIF": 99.0, "SoftLIF": 95.0, "LIF atan": 91.0}
    grid = [
        (cell.label.partition(",")[0], config)
        for cell, config in STUDIES["tuning"]()
        if cell[1:] == ("mnist", 1)
    ]
    rows = [held_out_result(config, held.get(label, 90.0)) for label, config in grid]
    rows += [
        held_out_result(
            config.with_(seed=seed), test.get(cell.label, 94.0) + 0.1 * (seed % 2) * (cell.label == "SoftLIF")
        )
        for cell, config in tuned(rows)
        for seed in range(42, 46)
    ]
    found = {row.group: row for row in tuned_groups(rows)}
    ultra = found["Ultra"]
    assert (ultra.name, found["LIF, three surrogates"].over) == ("UltraLIF", None)
    assert ultra.over.mean == pytest.approx(4.0) and ultra.over.p < 1e-3, (
        "over atan, the best on held-out data"
    )
    assert ultra.past.mean == pytest.approx(-0.05) and ultra.past.p == 1.0
    assert found["Ultra binary"].past.mean == 0.0 and found["SoftLIF"].past is None


def test_effects_are_differences_of_the_same_seed() -> None:
    """Soft spikes are worth 2 points here, the log-sum-exp none, whatever the seed's own luck is."""
    rows = [
        held_out_result(config.with_(seed=seed), 90.0 + seed / 10 + 2 * (config.mode == "soft"))
        for _, config in STUDIES["factorial"]()
        for seed in (42, 43)
        if config.dataset == "mnist"
    ]
    effects = {row[:3]: row[3] for row in factors_table(rows).rows}
    assert effects["mnist", "10", "soft over binary spikes"].startswith("+2.00 ± 0.1")  # by images alone
    assert effects["mnist", "1", "LSE over additive membrane"] == "+0.00 ± 0.00"


def test_an_open_reading_is_compared_with_the_text() -> None:
    rows = [
        held_out_result(config, 90.0 + (config.encoding == "rate-clipped"))
        for _, config in STUDIES["one-at-a-time"]()
    ]
    changes = {row[1:3]: row[3:] for row in readings_table(rows).rows if row[0] == "mnist"}
    assert changes["1", "rate code, clipped as released"] == ("+1.00",) * 4
    assert changes["10", "curve clipped"] == ("-", "+0.00", "-", "-")
