"""The report for everybody: by keyboard, by ear, on a phone, in the dark."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect


def test_the_way_of_the_tab_key(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Overview")).to_be_focused()
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#runs").get_by_label("Dataset")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#runs").get_by_role("combobox", name="T", exact=True)).to_be_focused()
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"


def test_everything_has_a_name_and_headings_go_in_order(page: Page) -> None:
    nameless = page.evaluate("""() => {
        const labels = (node) => [...(node.labels ?? [])].map((label) => label.textContent.trim()).join("");
        const name = (node) => node.getAttribute("aria-label") || node.textContent.trim() || labels(node);
        const kinds = "a, button, input, select, summary, canvas, svg[role], [role=region], [role=group]";
        const nameless = [...document.querySelectorAll(kinds)].filter((node) => !name(node));
        return nameless.map((node) => node.outerHTML.slice(0, 120));
    }""")
    assert nameless == []
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map((node) => Number(node.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1, role
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("thead th:not([scope])").count() == 0


def test_a_screen_reader_finds_the_playground(page: Page) -> None:
    said = page.locator("#playground").aria_snapshot()
    for part in (
        'heading "Playground" [level=2]',
        'slider "Temperature eps',
        'slider "Leak',
        'slider "Threshold',
        'slider "Input',
        'group "UltraLIF over time. Use the arrow keys to move between steps."',
    ):
        assert part in said


CONTRAST = """() => {
    const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const weights = [0.2126, 0.7152, 0.0722];
    const light = (color) => weights.reduce((sum, weight, i) => sum + weight * linear(color[i] / 255), 0);
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const color = parse(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] > 0.99) return color;
        }
    };
    const ink = (node) => getComputedStyle(node)[node instanceof SVGElement ? "fill" : "color"];
    const seen = (node) => node.textContent.trim() && node.getClientRects().length && !node.closest(".slice");
    const texts = "h1, h2, h3, p, a, td, th, dt, label span, summary, button, li, output, svg text";
    return [...document.querySelectorAll(texts)].filter(seen).filter((node) => {
        const [a, b] = [light(parse(ink(node))), light(behind(node))].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05) < 4.5;
    }).map((node) => node.textContent.slice(0, 40));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(
    open_page: Callable[..., Page], report_file: Path, scheme: str
) -> None:
    page = open_page(report_file, color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []
    red, *_ = map(int, page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)"))
    assert (red > 200) == (scheme == "light")


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_everything_without_sideways_scrolling(
    open_page: Callable[..., Page], report_file: Path, width: int
) -> None:
    page = open_page(report_file, width, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate("""() => [...document.querySelectorAll("main *")]
        .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !node.closest(".scroll"))
        .map((node) => node.outerHTML.slice(0, 100))""")
    assert wide == []
    touched = page.locator("select, [type=search], [type=range], .chip")
    small = touched.evaluate_all("all => all.filter((one) => one.getBoundingClientRect().height < 24).length")
    assert small == 0
    chart = page.locator("#accuracy .chart svg").first
    chart.scroll_into_view_if_needed()
    point = chart.locator("[fill]:not([fill=none]):not(line)").first.bounding_box()
    page.touchscreen.tap(point["x"] + 2, point["y"] + 2)
    expect(page.locator("#accuracy .tip").first).to_be_visible()


def test_plots_follow_the_width_of_the_window(page: Page) -> None:
    chart = page.locator("#accuracy .chart svg").first
    before = chart.bounding_box()["width"]
    page.set_viewport_size({"width": 500, "height": 900})
    expect(chart).not_to_have_attribute("width", str(round(before)))
    assert page.evaluate("document.documentElement.scrollWidth") <= 500
