"""Put single faults into a copy of the code, one after another; each must make a test fail: ``make faults``.

``python tests/faults [WORD ...]`` tries only those whose name or file has one of the words. Ends with 1 if a
fault is not noticed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import FAULTS, Fault

ROOT = Path(__file__).parents[2]
PARTS = (
    "src",
    "tests",
    "docs",
    "examples",
    "research",
    "zoo",
    "README.md",
    "CITATION.cff",
    "pyproject.toml",
    "tools",
    "benchmarks",
)


def notices(fault: Fault, copy: Path) -> bool:
    """Tell whether a test fails with a fault; the copy is as before afterwards."""
    path = copy / "src" / "ultralif" / fault.file
    before = path.read_text()
    if before.count(fault.was) != 1:
        raise SystemExit(
            f"{fault.name}: {fault.file} has {fault.was!r} {before.count(fault.was)} times, not once"
        )
    path.write_text(before.replace(fault.was, fault.becomes))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", *fault.tests],
            cwd=copy,
            env={
                **os.environ,
                "PYTHONPATH": str(copy / "src"),
                "XDG_CACHE_HOME": str(copy.parent),  # of compiled kernels
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
        )
    finally:
        path.write_text(before)
    if done.returncode not in (0, 1, 2):  # passed; a test failed; a module could not be imported
        raise SystemExit(f"{fault.name}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode != 0


def main(words: list[str]) -> int:
    """Try the faults and print a line for each."""
    chosen = [f for f in FAULTS if not words or any(word in f"{f.name} {f.file}" for word in words)]
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "ultralif"
        copy.mkdir()
        for part in PARTS:
            put = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            put(ROOT / part, copy / part)
        for fault in chosen:
            began = time.monotonic()
            noticed = notices(fault, copy)
            seconds = time.monotonic() - began
            said = "noticed" if noticed else "MISSED"
            print(f"{said:8} {fault.file:28} {fault.name} ({seconds:.0f} s)", flush=True)
            missed += [] if noticed else [fault]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed")
    return 1 if missed else 0


sys.exit(main(sys.argv[1:]))
