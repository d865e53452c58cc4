"""Build the sdist and the wheel, with compiled kernels on Linux x86-64.

python tools/dist.py [--out dist]

builds in a separate environment with the hatchling version from requirements/build.txt, and prints the
digests. Files in the archives are dated to the last commit, so two builds of a commit with the same compiler
are identical.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(out: Path) -> list[Path]:
    """Empty a folder, build both archives into it, and return them."""
    shutil.rmtree(out, ignore_errors=True)
    date = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": date, "ULTRALIF_KERNELS": str(int(compiles()))}
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        requirements = str(ROOT / "requirements" / "build.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--requirement", requirements], check=True)
        command = [python, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel"]
        subprocess.run(
            [*command, "--directory", str(out.resolve())],
            cwd=ROOT,
            env=environment,
            check=True,
            stdout=sys.stderr,
        )
    return sorted(out.iterdir())


def compiles() -> bool:
    """Return whether this machine builds the wheel with kernels."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Build, and print digests and names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for both archives")
    for path in build(parser.parse_args().out):
        print(digest(path), path)


if __name__ == "__main__":
    main()
