"""The playground computes what `ultralif.functional` computes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page, expect
from torch import Tensor

from ultralif.functional import lif_step, ultradlif_step, ultralif_step

RING = 9
PULSES = {3: 0.45, 4: 0.45, 5: 0.45, 12: 0.9, 13: 0.9, 22: 1.8, 30: 0.6}


def reference(neuron: str, shape: list[float], strength: float, options: dict[str, Any]) -> dict[str, list]:
    """Run a neuron by its definition, with the derivatives of every step for the strength of the input."""
    constants = {name: options[name] for name in ("eps", "threshold", "mode")}

    def run(strength: Tensor) -> tuple[Tensor, Tensor]:
        v = torch.zeros(1, RING, dtype=torch.float64)
        spikes, states = [], []
        for height in shape:
            current = torch.zeros_like(v)
            current[:, RING // 2] = height
            current = current * strength
            if neuron == "UltraDLIF":
                spike, v = ultradlif_step(current, v, centered=options["centered"], **constants)
            elif neuron == "UltraLIF":
                spike, v = ultralif_step(current, v, leak=options["leak"], **constants)
            else:
                spike, v = lif_step(current, v, leak=options["leak"], threshold=options["threshold"])
            spikes.append(spike[0, RING // 2])
            states.append(v[0, RING // 2])
        return torch.stack(spikes), torch.stack(states)

    at = torch.tensor(strength, dtype=torch.float64, requires_grad=True)
    spikes, states = run(at)
    slopes = [
        torch.autograd.grad(spike, at, retain_graph=True, allow_unused=True)[0] for spike in spikes.unbind()
    ]
    return {
        "spike": spikes.tolist(),
        "v": states.tolist(),
        "dspike": [0.0 if slope is None else float(slope) for slope in slopes],
    }


def draws() -> list[tuple[list[float], float, dict[str, float]]]:
    generator = np.random.default_rng(0)
    return [
        (
            (generator.random(25) * 2 - 0.5).tolist(),
            float(generator.uniform(0, 1.5)),
            {
                "eps": float(10 ** generator.uniform(-2, 0.3)),
                "leak": float(generator.uniform(0.5, 0.999)),
                "threshold": float(generator.uniform(0.1, 1.5)),
            },
        )
        for _ in range(20)
    ]


@pytest.mark.parametrize("mode", ["soft", "hard", "tropical"])
@pytest.mark.parametrize("neuron", ["UltraLIF", "UltraDLIF", "LIF"])
def test_numbers_are_those_of_the_definition(page: Page, neuron: str, mode: str) -> None:
    for i, (shape, strength, constants) in enumerate(draws()):
        options = {**constants, "mode": mode, "centered": bool(i % 2), "neurons": RING}
        shown = page.evaluate(
            "([n, s, x, o]) => formulas.run(n, s, x, o)", [neuron, shape, strength, options]
        )
        wanted = reference(neuron, shape, strength, options)
        for name, values in wanted.items():
            np.testing.assert_allclose(shown[name], values, rtol=1e-9, atol=1e-12, err_msg=f"{i}: {name}")


def test_sliders_change_what_is_drawn_and_read(page: Page) -> None:
    panel = page.locator("[data-neuron=UltraLIF]")
    lines = panel.locator("svg path")
    for name in ("eps", "leak", "threshold", "input"):
        before = lines.evaluate_all("nodes => nodes.map((node) => node.getAttribute('d')).join()")
        slider = page.locator(f"#slider-{name}")
        shown = slider.get_attribute("aria-valuetext")
        slider.focus()
        for _ in range(12):
            page.keyboard.press("ArrowLeft")
        assert slider.get_attribute("aria-valuetext") != shown
        assert lines.evaluate_all("nodes => nodes.map((node) => node.getAttribute('d')).join()") != before, (
            name
        )


def values_of(page: Page) -> dict[str, float]:
    return {
        name: float(page.locator(f"#slider-{name}").get_attribute("aria-valuetext"))
        for name in ("leak", "threshold", "input")
    }


def test_the_reading_of_a_step_is_the_definition(page: Page) -> None:
    eps = 10 ** float(page.locator("#slider-eps").input_value())
    options = {"eps": eps, "mode": "soft", "centered": True, **values_of(page)}
    shape = [PULSES.get(t, 0.0) for t in range(40)]
    for neuron in ("UltraLIF", "UltraDLIF", "LIF"):
        wanted = reference(neuron, shape, options["input"], options)
        panel = page.locator(f"[data-neuron={neuron}]")
        panel.get_by_role("group").focus()
        for _ in range(14):
            page.keyboard.press("ArrowRight")
        expect(panel.locator(".reading")).to_contain_text("step 14: ")
        read = re.fullmatch(r".*spike (\S+), gradient (\S+)", panel.locator(".reading").inner_text())
        assert float(read[1]) == pytest.approx(wanted["spike"][13], abs=6e-4)
        assert float(read[2].replace("\u2212", "-")) == pytest.approx(wanted["dspike"][13], abs=6e-4)
        page.locator("h1").click()


def test_the_soft_neuron_becomes_the_max_plus_one(open_page: Callable[..., Page], report_file: Path) -> None:
    """Over all steps its membrane comes as near as eps log 2 a step allows; without motion, at once."""
    page = open_page(report_file, reduced_motion="reduce")
    page.get_by_label("Spikes of the Ultra neurons").select_option("hard")
    reading = page.locator("[data-neuron=UltraLIF] .reading")

    def gap() -> float:
        return float(re.search(r"at most (\S+) from max-plus", reading.inner_text())[1])

    warm = gap()
    page.get_by_role("button", name="Lower eps").click()
    expect(page.locator("#slider-eps")).to_have_attribute("aria-valuetext", "0.010")
    assert gap() <= 0.02 < warm


def test_eps_falls_while_one_watches(page: Page) -> None:
    slider = page.locator("#slider-eps")
    page.get_by_role("button", name="Lower eps").click()
    expect(slider).to_have_attribute("aria-valuetext", "0.010", timeout=20_000)
    assert float(slider.input_value()) == pytest.approx(-2)


def test_hovering_reads_all_neurons_at_one_step(page: Page) -> None:
    body = page.locator("[data-neuron=LIF]").get_by_role("group")
    body.scroll_into_view_if_needed()
    box = body.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    read = page.locator(".reading").all_inner_texts()
    steps = {re.match(r"step (\d+):", text)[1] for text in read}
    assert len(read) == 3
    assert len(steps) == 1
    page.mouse.move(5, 5)
    expect(page.locator(".reading").first).to_contain_text("spikes")
