"""The site in a browser: search over HTTP, a note in its place when a page is opened as a file."""

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import ultralif as ul

ROOT = Path(__file__).parents[2]


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(map(find_spec, ("mkdocs", "material", "mkdocstrings", "latex2mathml"))):
        pytest.skip("the site needs the docs extra")
    out = tmp_path_factory.mktemp("site")
    environment = {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1", "PATH": ""}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=250)
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_search_finds_a_page_when_the_site_is_served(browser: Browser, address: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    page.locator(".md-search__input").fill("CMSIS")
    first = page.locator(".md-search-result__link").first
    first.wait_for(state="attached", timeout=20_000)
    assert "deployment" in (first.get_attribute("href") or "")
    page.close()


def test_a_page_opened_as_a_file_says_where_the_search_is(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    assert page.locator(".search-note").is_visible()
    assert page.locator(".md-search").count() == 0
    page.close()


def test_pages_fit_a_phone_and_show_the_version(browser: Browser, address: str, site: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    for path in sorted(site.rglob("*.html")):
        if path.name not in ("404.html", "playground.html") and "tables" not in path.parts:
            page.goto(f"{address}/{path.relative_to(site)}", wait_until="domcontentloaded")
            assert ul.__version__ in page.locator("header").inner_text(), path
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.close()
