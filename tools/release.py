"""Run the checks before a release, and report which ones pass.

python tools/release.py [--python PATH ...] [--torch VERSION ...]

builds twice and compares the results, checks the metadata and the manifest, regenerates the licences and the
bill of materials and reports changes, and asks pip-audit or the registry about known vulnerabilities. It then
installs the wheel into bare environments without a compiler: each Python with the pinned torch, and the first
Python also with the other torch versions and with numpy 1.26.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pip._internal.models.index import PyPI

sys.path.insert(0, str(Path(__file__).parent))

from dist import ROOT, build, compiles, digest

NUMPY = "numpy>=2"
OLD_NUMPY = "numpy==1.26.4"
CONSTRAINTS = ROOT / "constraints.txt"
VULNERABLE = "pycrypto"  # abandoned and vulnerable: a source that lists nothing for it is useless
WRITTEN = ("requirements/release.txt", "docs/licences.md", "docs/sbom.cdx.json")


class NotRun(Exception):
    """A check that could not be run here: neither passed nor failed."""


def run(*command: str | Path, **options: object) -> str:
    """Run a program and return its output, or raise with its error message."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip()[-500:])
    return done.stdout.strip()


def clean() -> str:
    """Check that there are no uncommitted changes."""
    changed = run("git", "status", "--porcelain", cwd=ROOT)
    if changed:
        raise RuntimeError(f"uncommitted changes:\n{changed}")
    return run("git", "log", "-1", "--format=%h %s", cwd=ROOT)


def equal_builds(folder: Path) -> str:
    """Build twice, and compare every byte."""
    first, second = (build(folder / name) for name in ("first", "second"))
    for one, other in zip(first, second, strict=True):
        if digest(one) != digest(other):
            raise RuntimeError(f"two builds of {one.name} differ")
    return ", ".join(f"{path.name} {digest(path)[:12]}" for path in first)


def publishable(folder: Path) -> str:
    """Check that the metadata and the long description render, and that the sdist has every tracked file."""
    with tempfile.TemporaryDirectory() as inside:
        venv.create(inside, with_pip=True)
        python = Path(inside) / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "twine", "check-manifest")
        run(python, "-m", "twine", "check", "--strict", *(folder / "first").iterdir())
        run(python, "-m", "check_manifest", ROOT, cwd=ROOT)
    return "twine check --strict and check-manifest pass"


def pin() -> str:
    """Return the pinned version of torch."""
    found = re.search(r"(?m)^torch==([\d.]+)", CONSTRAINTS.read_text())
    if found is None:
        raise RuntimeError(f"{CONSTRAINTS} pins no torch")
    return found[1]


def installs(python: Path, wheel: Path, torch: str, numpy: str) -> str:
    """Install the wheel with given versions of torch and numpy, and check it without a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        inside = Path(folder) / "bin" / "python"
        install = [inside, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        run(*install, f"torch=={torch}", numpy)  # first, to avoid pulling in the GPU build
        run(*install, wheel, f"torch=={torch}", numpy)
        environment = {"HOME": folder, "PATH": str(inside.parent), "OMP_NUM_THREADS": "1"}
        wanted = ["--kernels"] if compiles() else []
        return run(inside, ROOT / "tools" / "installed.py", *wanted, cwd=folder, env=environment)


def supply_chain() -> str:
    """Write the licences and the bill of materials, and compare them with the committed ones."""
    run(sys.executable, ROOT / "tools" / "supply_chain.py", cwd=ROOT)
    changed = run("git", "diff", "--stat", "--", *WRITTEN, cwd=ROOT)
    if changed:
        raise RuntimeError(f"commit what changed:\n{changed}")
    return "licences and bill of materials match the last commit"


def needed() -> list[tuple[str, str]]:
    """Return the name and version of each package that a release needs, as databases list them."""
    text = (ROOT / "requirements" / "release.txt").read_text()
    return re.findall(r"(?m)^([\w.-]+)==([^\s+]+)", text)  # no database lists torch's "+cpu"


def audit() -> str:
    """Ask pip-audit about known vulnerabilities of the dependencies, or the registry if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python, listed = Path(folder) / "bin" / "python", Path(folder) / "needed.txt"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in needed()))
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        try:
            run(python, "-m", "pip", "install", "--quiet", "pip-audit")
            asked = ["--requirement", listed, "--no-deps", "--disable-pip", "--strict"]
            run(python, "-m", "pip_audit", *asked, env=environment)
        except RuntimeError as error:
            if re.search(r"Found \d+ known vulnerabilit", str(error)):
                raise
            return registry()
    return "no known vulnerability"


def registry() -> str:
    """Ask the registry about each package; it lists vulnerabilities only for the newest versions."""
    try:
        if not page(VULNERABLE)["vulnerabilities"]:
            raise NotRun(f"the registry lists no vulnerabilities, not even those of {VULNERABLE}")
        pages = {(name, version): page(name) for name, version in needed()}
    except OSError as error:
        raise NotRun(f"no vulnerability database is reachable from here ({error})") from error
    newest = [key for key, told in pages.items() if told["info"]["version"] == key[1]]
    found = [f"{' '.join(key)} {known['id']}" for key in newest for known in pages[key]["vulnerabilities"]]
    if found:
        raise RuntimeError(f"known vulnerabilities: {', '.join(found)}")
    said = f"no known vulnerability in {len(newest)} of {len(pages)} packages"
    if older := [" ".join(key) for key in pages if key not in newest]:
        raise NotRun(f"{said}; the registry only covers newer versions than {', '.join(older)}")
    return said


def page(name: str) -> dict[str, Any]:
    """Return the registry's page for a package, at pip's address."""
    with urlopen(f"{PyPI.pypi_url}/{name}/json", timeout=60) as answer:  # noqa: S310 (https)
        return json.load(answer)


def main() -> None:
    """Run every check, even if others fail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python", type=Path, nargs="+", default=[Path(sys.executable)], help="interpreters to install for"
    )
    parser.add_argument("--torch", nargs="*", default=[], help="versions to test besides the pinned one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        checks: list[tuple[str, Callable[[], str]]] = [
            ("committed", clean),
            ("two equal builds", lambda: equal_builds(base)),
            ("metadata and manifest", lambda: publishable(base)),
            ("supply chain", supply_chain),
            ("audit", audit),
        ]
        cases = [(python, pin(), NUMPY) for python in given.python]
        cases += [(given.python[0], pin(), OLD_NUMPY)]
        cases += [(given.python[0], torch, NUMPY) for torch in given.torch]
        for case in cases:
            name = "{}, torch {}, {}".format(*case)
            checks.append((name, lambda c=case: installs(c[0], next((base / "first").glob("*.whl")), *c[1:])))
        ends = [outcome(name, check) for name, check in checks]
    bad = [f"{ends.count(end)} {end}" for end in ("FAILED", "NOT RUN") if end in ends]
    raise SystemExit(f"of {len(checks)} checks: {', '.join(bad)}" if bad else 0)


def outcome(name: str, check: Callable[[], str]) -> str:
    """Run a check, print its outcome, and return whether it is ok, FAILED or NOT RUN."""
    began = time.monotonic()
    try:
        end, said = "ok", check()
    except NotRun as error:
        end, said = "NOT RUN", str(error)
    except (RuntimeError, OSError, StopIteration, subprocess.CalledProcessError) as error:
        end, said = "FAILED", str(error)
    print(f"{end:8}{name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return end


if __name__ == "__main__":
    main()
