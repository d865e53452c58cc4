"""What SECURITY.md promises: no network, no code from files, files for their owner, known dependencies."""

import contextlib
import json
import re
import stat
import tomllib
from pathlib import Path

import pytest

from conftest import Python
from ultralif.errors import InputError, JobError

ROOT = Path(__file__).parents[1]

ALONE = """
import os, sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        raise SystemExit(f"{event} {args}: nothing may reach for the network")

sys.addaudithook(refuse)
os.umask(0o022)
from ultralif.cli import main

assert main(["train", "--hidden", "64", "--epochs", "1", "--runs-dir", "runs", "--quiet"]) == 0
(run,) = [name for name in os.listdir("runs") if len(name) == 12 and "." not in name]
for words in (
    ["eval", run, "--runs-dir", "runs"],
    ["runs", "list", "--runs-dir", "runs"],
    ["report", "--runs-dir", "runs", "--out", "report.html"],
    ["export", f"runs/{run}", "--to", "c", "--mode", "tropical", "--out", "c"],
    ["train", "--dataset", "randman", "--epochs", "1", "--runs-dir", "runs", "--quiet"],
):
    assert main(words) == 0, words
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a process without network has trained, evaluated, listed and exported."""
    folder = tmp_path_factory.mktemp("alone")
    script = f"import os; os.chdir({str(folder)!r}); os.environ['ULTRALIF_CACHE'] = 'cache'\n{ALONE}"
    Python().run("-c", script)
    return folder


@pytest.mark.slow
def test_nothing_but_data_get_needs_the_network(trained: Path) -> None:
    assert (trained / "c" / "model.c").is_file()


def test_runs_and_caches_are_for_their_owner_alone(trained: Path) -> None:
    runs = [trained / "runs", *(path for path in (trained / "runs").iterdir() if path.is_dir())]
    caches = [path.parent for path in (trained / "cache").rglob("manifest.json")]
    assert len(runs) >= 3
    for folder in (*runs, *caches):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_no_file_makes_us_run_its_code(tmp_path: Path) -> None:
    from torture.hostile import hostile_files, hostile_readers

    canary = tmp_path / "canary"
    given = hostile_files(canary)
    assert len(given) >= 40
    for kind, read in hostile_readers(tmp_path).items():
        for name, data in given.items():
            if kind in ("SHD", "NIR") and name not in ("HDF5, external link", "pickle, protocol 2"):
                continue  # a process each; `make torture` reads them all
            with contextlib.suppress(InputError, JobError):
                read(data)
            assert not canary.exists(), f"{kind} ran {name}"


def locked() -> dict[str, str]:
    """The release's packages with their hashes."""
    text = (ROOT / "requirements" / "release.txt").read_text()
    return dict(re.findall(r"(?m)^(\S+==\S+) \\\n    --hash=sha256:([0-9a-f]{64})$", text))


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_has_a_hash_and_the_pinned_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {plain(re.split(r"[<>=;\[ ]", line)[0]) for line in project["dependencies"]}
    found = {plain(entry.partition("==")[0]): entry.partition("==")[2] for entry in locked()}
    assert wanted <= set(found)
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    for name, version in pinned.items():
        if plain(name) in found:
            assert found[plain(name)].partition("+")[0] == version, name


def test_the_bill_of_materials_lists_what_is_locked() -> None:
    bill = json.loads((ROOT / "docs" / "sbom.cdx.json").read_text())
    listed = {f"{c['name']}=={c['version']}": c["hashes"][0]["content"] for c in bill["components"]}
    assert listed == locked()
    licences = (ROOT / "docs" / "licences.md").read_text()
    assert all(f"| {entry.partition('==')[0]} |" in licences for entry in listed)


@pytest.mark.parametrize("file", ["requirements/release.txt", "docs/sbom.cdx.json", "docs/licences.md"])
def test_no_host_is_written_down(file: str) -> None:
    assert "://" not in (ROOT / file).read_text()


READING = (
    r"\.read_(text|bytes)\(|(?<![\w.])open\(|gzip\.open|\.open\(\"rb|load_file|safe_open|(torch|np)\.load\("
    r"|np\.fromfile|h5py\.File"
)
OWN = {
    "ops/cpu/build.py": "its C source, and what the system says of the processor",
    "bench/plan.py": "what the system says of the processor",
    "report/html.py": "parts of the page, in the package",
    "export/c/__init__.py": "a script of the package, which it copies",
    "export/c/text.py": "templates of the package",
    "export/c/count.py": "a program that the user has just compiled",
    "data/files.py": "arrays whose size was checked against the file",
    "data/readers/builtin.py": "the digits of scikit-learn",
    "data/readers/shd.py": "arrays that its own process sends",
    "data/readers/shd_process.py": "HDF5, in a process of its own",
    "export/nir_file.py": "HDF5, in a process of its own, and the arrays that it sends",
    "export/nir.py": "the file that it has just written",
}
"""Modules that open files beside `ultralif.files`, and what these are."""


def test_what_others_wrote_is_read_in_one_place() -> None:
    package = ROOT / "src" / "ultralif"
    modules = [path for path in package.rglob("*.py") if re.search(READING, path.read_text())]
    assert {path.relative_to(package).as_posix() for path in modules} == set(OWN)


def test_every_promise_names_tests_that_are_there() -> None:
    rows = re.findall(r"(?m)^\| (?!promise)(.+) \| (`tests.+) \|$", (ROOT / "SECURITY.md").read_text())
    assert len(rows) > 10
    for promise, tests in rows:
        for file, name in re.findall(r"`(\S+)::(\w+)`", tests):
            assert f"def {name}(" in (ROOT / file).read_text(), f"{promise}: {file} has no {name}"
