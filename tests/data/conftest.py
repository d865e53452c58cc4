"""What the tests of datasets share: a cache of their own, real data where there are some."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from data.web_server import Server, serving
from ultralif.data.files import Found, find
from ultralif.data.table import DATASETS

settings.register_profile("unhurried", deadline=None)  # a shared machine may stall at any moment
settings.load_profile("unhurried")

REPOSITORY = Path(__file__).parents[2]
GIVEN = os.environ.get("ULTRALIF_DATA")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let no test read or write the user's folders."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ULTRALIF_CACHE", str(folder))
    monkeypatch.delenv("ULTRALIF_DATA", raising=False)
    return folder


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data for tests."""
    folder = Path(os.environ.get("ULTRALIF_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set ULTRALIF_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def real(shared: Path) -> Callable[[str], Found]:
    """Find a real dataset, or skip."""

    def get(name: str) -> Found:
        for folder in (shared, GIVEN):
            if folder and (found := find(DATASETS[name], folder)):
                return found
        pytest.skip(f"{name} is not on this machine")

    return get


@pytest.fixture(scope="session")
def recordings(shared: Path) -> list[Path]:
    """The raw N-MNIST recordings at hand."""
    paths = sorted((shared / "nmnist-raw").glob("*/*/*.bin"))
    if not paths:
        pytest.skip("no raw N-MNIST recordings")
    return paths


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        if running is None:
            pytest.skip("openssl is not here to make a certificate")
        yield running


@pytest.fixture
def server(_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """An https server on this machine that starts with no files and no requests."""
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    _server.files.clear()
    _server.requests.clear()
    return _server
