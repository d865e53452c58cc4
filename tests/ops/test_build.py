"""The C kernels are built where they can be, kept where nobody else can write, and missed without harm."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ultralif.ops import cpu

HERE = Path(__file__).parent
USE = """
import sys, warnings
import torch
import ultralif as ul
from ultralif.ops import cpu
torch.manual_seed(0)
current = torch.randn(5, 3, 40, dtype=torch.float64, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        out = ul.UltraDPLIF(eps=0.5).double()(current)
    out.square().sum().backward()
torch.save((out.detach(), current.grad), sys.argv[1])
print(cpu.available(), *[w.message for w in caught], sep="\\n")
"""


@pytest.fixture
def use(tmp_path):
    """Start a Python with a cache of its own; it prints whether C integrates, and warnings."""

    def start(result: str = "result.pt", **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", USE, str(tmp_path / result)],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def finished(process: subprocess.Popen) -> list[str]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out.splitlines()


def libraries(folder: Path) -> list[Path]:
    return [path for path in (folder / "cache").rglob("*") if path.is_file()]


def test_without_a_compiler_the_same_numbers_and_one_warning(use, tmp_path):
    with_compiler = use("c.pt")
    without = use("analytic.pt", CC="/nowhere/cc")
    assert finished(with_compiler) == ["True"]
    served, *warnings = finished(without)
    assert served == "False" and len(warnings) == 1
    assert "/nowhere/cc" in warnings[0] and "Install a C compiler" in warnings[0]
    found, expected = (torch.load(tmp_path / name) for name in ("analytic.pt", "c.pt"))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_compiler_that_fails_is_quoted(use, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'no space left' >&2\nexit 1\n")
    broken.chmod(0o755)
    served, *warnings = finished(use(CC=str(broken)))
    assert served == "False" and len(warnings) == 1 and "no space left" in warnings[0]


def test_two_processes_may_build_at_once(use, tmp_path):
    """They end with one library, whole, and nothing beside it."""
    both = [use("0.pt"), use("1.pt")]
    assert [finished(process) for process in both] == [["True"], ["True"]]
    assert len(libraries(tmp_path)) == 1
    first, second = (torch.load(tmp_path / f"{i}.pt") for i in range(2))
    assert torch.equal(first[0], second[0])


def test_the_library_is_kept_where_only_its_owner_writes(use, tmp_path):
    assert finished(use()) == ["True"]
    (library,) = libraries(tmp_path)
    assert stat.S_IMODE(library.parent.stat().st_mode) == 0o700
    made = library.stat().st_mtime_ns
    assert finished(use()) == ["True"]
    assert library.stat().st_mtime_ns == made  # it was loaded, not built again
    library.parent.chmod(0o777)
    served, *warnings = finished(use())
    assert served == "False" and len(warnings) == 1 and "chmod 700" in warnings[0]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_source_gives_no_warning(compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    flags = [flag for flag in cpu.FLAGS if flag != "-shared"]
    command = [
        compiler,
        *flags,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-c",
        str(cpu.SOURCE),
        "-o",
        str(tmp_path / "o"),
    ]
    done = subprocess.run([*command, "-fopenmp"], capture_output=True, text=True)
    if "omp.h" in done.stderr:  # a compiler without OpenMP builds for one thread
        done = subprocess.run([*command, "-Wno-unknown-pragmas"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
