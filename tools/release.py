"""Walk through the checks before a release, and say at the end which ones hold.

python tools/release.py [--python PATH ...]

builds twice and compares, installs the wheel into bare environments without a compiler (one for each Python
and numpy), writes licences and bill of materials anew and shows whether they changed, and asks pip-audit
about known vulnerabilities.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from dist import ROOT, build, compiles, digest

NUMPY = ("numpy>=2", "numpy==1.26.4")
WRITTEN = ("requirements/release.txt", "docs/licences.md", "docs/sbom.cdx.json")


def run(*command: str | Path, **options: object) -> str:
    """Run a program and return what it printed, or raise with its complaint."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip()[-500:])
    return done.stdout.strip()


def clean() -> str:
    """Check that what is released is what was committed."""
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


def installs(python: Path, wheel: Path, numpy: str) -> str:
    """Install the wheel beside the pinned torch, and check it where no compiler is."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", folder)
        inside = Path(folder) / "bin" / "python"
        pins = ["--constraint", str(ROOT / "constraints.txt")] if numpy == NUMPY[0] else []
        run(inside, "-m", "pip", "install", "--quiet", *pins, "torch==2.13.0", numpy)
        run(inside, "-m", "pip", "install", "--quiet", wheel, numpy, "torch==2.13.0")
        environment = {"HOME": folder, "PATH": str(inside.parent), "OMP_NUM_THREADS": "1"}
        wanted = ["--kernels"] if compiles() else []
        return run(inside, ROOT / "tools" / "installed.py", *wanted, cwd=folder, env=environment)


def supply_chain() -> str:
    """Write the licences and the bill of materials, and compare them with those that were committed."""
    run(sys.executable, ROOT / "tools" / "supply_chain.py", cwd=ROOT)
    changed = run("git", "diff", "--stat", "--", *WRITTEN, cwd=ROOT)
    if changed:
        raise RuntimeError(f"commit what changed:\n{changed}")
    return "licences and bill of materials are those of the last commit"


def audit() -> str:
    """Ask pip-audit about known vulnerabilities of what a release needs."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "pip-audit")
        needed = ROOT / "requirements" / "release.txt"
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        run(python, "-m", "pip_audit", "--requirement", needed, "--no-deps", "--disable-pip", env=environment)
    return "no known vulnerability"


def main() -> None:
    """Run every check, whatever the others said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python", type=Path, nargs="+", default=[Path(sys.executable)], help="interpreters to install for"
    )
    pythons = parser.parse_args().python
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        checks: list[tuple[str, Callable[[], str]]] = [
            ("committed", clean),
            ("two equal builds", lambda: equal_builds(base)),
            ("supply chain", supply_chain),
            ("audit", audit),
        ]
        for python in pythons:
            for numpy in NUMPY:
                checks.append(
                    (
                        f"{python} with {numpy}",
                        lambda p=python, n=numpy: installs(p, next((base / "first").glob("*.whl")), n),
                    )
                )
        for name, check in checks:
            try:
                print(f"ok      {name}: {check()}", flush=True)
            except (RuntimeError, OSError, StopIteration, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"FAILED  {name}: {error}", flush=True)
    raise SystemExit(f"{failed} of {len(checks)} checks failed" if failed else 0)


if __name__ == "__main__":
    main()
