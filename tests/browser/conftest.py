"""A real browser, and reports for it to open."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import ultralif as ul
from paper_runs import paper_rows
from report.made_runs import made_runs
from research.claims import check_all
from research.pages.report import paper_sections, published_accuracies
from research.paper.results import Results
from ultralif.report.document import make_document
from ultralif.report.gather import Entry, gather
from ultralif.report.html import make_page

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = os.environ.get("ULTRALIF_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail(
            "there is no Chromium; install it with apt-get install chromium, or set ULTRALIF_CHROMIUM"
        )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a file; at the end of the test, nothing may have been asked for or complained about."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_(path: Path, width: int = 1200, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith("file://")] == []
    assert len(asked) == len(contexts)


@pytest.fixture(scope="session")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of every kind of run: trained, made up, and of the paper's tables; with verdicts."""
    folder = tmp_path_factory.mktemp("report")
    for neuron in ("UltraLIF", "FullPLIF"):
        ul.train(ul.RunConfig(neuron=neuron, epochs=3, timesteps=6), runs_dir=folder / "runs")
    unusual = {"hidden": (10, 10), "readout": "spiking", "per_neuron": True, "orthogonal": True}
    config = ul.RunConfig(neuron="SoftLIF", epochs=1, timesteps=1, **unusual)
    ul.train(config, runs_dir=folder / "runs")
    entries, notes = gather([str(folder / "runs")])
    rows = paper_rows("mnist", 2)
    sections = paper_sections(Results(rows), check_all((1, 3)))
    entries += [Entry(ul.RunConfig.from_dict(row.config), row) for row in rows]
    document = make_document(
        [*entries, *made_runs(60)], notes, sections=sections, references=published_accuracies(["mnist"])
    )
    path = folder / "report.html"
    path.write_text(make_page(document, "All kinds of runs"), encoding="utf-8")
    return path


@pytest.fixture
def page(open_page: Callable[..., Page], report_file: Path) -> Page:
    return open_page(report_file)
