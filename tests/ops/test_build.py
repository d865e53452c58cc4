"""The C kernels are built where they can be, kept where nobody else can write, and missed without harm."""

import hashlib
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
import torch

from ultralif.ops.cpu import build

pytestmark = pytest.mark.slow

USE = """
import sys, warnings
import torch
import ultralif as ul
from ultralif.ops.cpu import build
torch.manual_seed(0)
current = torch.randn(5, 3, 40, dtype=torch.float64, requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        out = ul.UltraDPLIF(eps=0.5).double()(current)
    out.square().sum().backward()
torch.save((out.detach(), current.grad), sys.argv[1])
print(build.library() is not None, *[w.message for w in caught], sep="\\n")
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


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A library as the compiler makes it."""
    target = tmp_path_factory.mktemp("compiled") / "kernels.so"
    build.compile_kernels(["cc"], "native", target)
    return target


@pytest.fixture
def folder(tmp_path, monkeypatch, compiled):
    """A cache whose compiler hands out the library above at once."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit 0\nfor last; do :; done\ncp {compiled} "$last"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(compiler))
    return tmp_path / "cache" / "ultralif" / "kernels"


def test_without_a_compiler_the_same_numbers_and_one_warning(use, folder, tmp_path):
    with_compiler = use("c.pt")
    without = use("definition.pt", CC="/nowhere/cc")
    assert finished(with_compiler) == ["True"]
    served, *warnings = finished(without)
    assert served == "False" and len(warnings) == 1
    assert "/nowhere/cc" in warnings[0] and "Install a C compiler" in warnings[0]
    found, expected = (torch.load(tmp_path / name) for name in ("definition.pt", "c.pt"))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_compiler_that_fails_is_quoted(use, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'no space left' >&2\nexit 1\n")
    broken.chmod(0o755)
    served, *warnings = finished(use(CC=str(broken)))
    assert served == "False" and len(warnings) == 1 and "no space left" in warnings[0]


def test_two_processes_may_build_at_once(use, folder, tmp_path):
    """They end with one library, whole, and nothing beside it."""
    both = [use("0.pt"), use("1.pt")]
    assert [finished(process) for process in both] == [["True"], ["True"]]
    assert len(list(folder.iterdir())) == 1
    first, second = (torch.load(tmp_path / f"{i}.pt") for i in range(2))
    assert torch.equal(first[0], second[0])


def test_the_library_is_kept_where_only_its_owner_writes(folder):
    library = build._built()
    assert library.parent == folder and stat.S_IMODE(folder.stat().st_mode) == 0o700
    made = library.stat().st_mtime_ns
    assert build._built() == library and library.stat().st_mtime_ns == made  # loaded, not built again


@pytest.mark.parametrize("size", [0, 60_000, -1])
def test_a_damaged_library_is_built_again(folder, compiled, size):
    """Cut files make the loader crash, and a flipped bit computes wrong numbers."""
    library = build._built()
    whole = compiled.read_bytes()
    library.write_bytes(whole[:size] if size >= 0 else whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:])
    assert build._built().read_bytes() == whole
    assert len(list(folder.iterdir())) == 1


def test_a_library_that_others_could_have_written_is_built_again(folder, compiled):
    """Its name holds its digest, as anybody can arrange: owner and mode decide."""
    library = build._built()
    planted = library.with_name(library.name[:33] + hashlib.sha256(b"evil").hexdigest() + ".so")
    library.unlink()
    planted.write_bytes(b"evil")
    planted.chmod(0o666)
    assert build._built() == library and not planted.exists()
    library.unlink()
    library.symlink_to(compiled)
    assert not build._built().is_symlink()


def test_a_folder_that_was_open_to_others_is_emptied(folder):
    library = build._built()
    planted = library.with_name(library.name[:33] + hashlib.sha256(b"evil").hexdigest() + ".so")
    planted.write_bytes(b"evil")
    (folder / "sub").mkdir()
    folder.chmod(0o777)
    assert build._built() == library
    assert list(folder.iterdir()) == [library] and stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_parent_open_to_others_is_refused(folder):
    build._built()
    folder.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod go-w"):
        build._built()
    folder.parent.chmod(0o1777)  # as /tmp: others can add, but not replace what is ours
    build._built()


def test_scratch_of_a_killed_build_is_removed(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", "from ultralif.ops.cpu import build; build._built()"],
        env={**os.environ, "CC": "sh -c 'test \"$0\" = --version || sleep 100'"},
        start_new_session=True,
    )
    while not (folder.exists() and list(folder.glob("building-*"))):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(folder.iterdir()) == [next(folder.glob("building-*"))]
    assert list(folder.iterdir()) != [build._built()] == list(folder.iterdir())


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_source_gives_no_warning(compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    command = [
        compiler,
        *(flag for flag in build.FLAGS if flag != "-shared"),
        "-Wall",
        "-Wextra",
        "-Werror",
        "-c",
        str(build.SOURCE),
        "-o",
        str(tmp_path / "o"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    not shutil.which("gcc") or platform.machine() != "x86_64",
    reason="gcc tells which loops it did not make vectors of",
)
def test_every_loop_over_lanes_is_made_vectors_of(tmp_path, monkeypatch):
    """A loop that grew too long for it made the saturating reset six times slower, and no number changed."""
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, f"-fopt-info-vec-missed={tmp_path / 'report'}"))
    build.compile_kernels(["gcc"], "x86-64-v4", tmp_path / "kernels.so")
    said = (tmp_path / "report").read_text()
    missed = set(re.findall(r"(\w+\.h:\d+):\d+: missed: couldn't vectorize loop", said))
    loops = {
        f"{path.name}:{number}"  # gcc names the first line inside
        for path in build.SOURCE.parent.glob("*.h")
        for number, line in enumerate(path.read_text().splitlines(), 2)
        if "SIMD for" in line
    }
    assert len(loops) > 10 and not loops & missed


@pytest.mark.parametrize(
    ("machine", "flags"),
    [
        ("x86_64", ["-march=native", "-mprefer-vector-width=512"]),
        ("AMD64", ["-march=native", "-mprefer-vector-width=512"]),
        ("arm64", ["-mcpu=native"]),
        ("aarch64", ["-mcpu=native"]),
        ("riscv64", ["-march=native"]),
    ],
)
def test_flags_are_those_of_the_processor(machine, flags):
    assert build.tuned_for("native", machine) == flags
