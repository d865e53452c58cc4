"""Load the compiled kernels from the wheel, or build them on first use in a folder others cannot write to."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

__all__ = ["FLAGS", "LEVELS", "SOURCE", "compile_kernels", "library", "packaged_name", "parallel"]

SOURCE = Path(__file__).with_name("kernels.c")
PACKAGED = SOURCE.with_name("compiled")
FLAGS = ("-std=gnu11", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "f16c", "bmi2"},
    "x86-64-v3": {"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe"},
    "x86-64-v2": {"sse4_1", "sse4_2", "ssse3", "popcnt", "cx16"},
}
"""Processors for which a wheel has kernels, best first, and the flags of each in /proc/cpuinfo."""


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Find or build the kernels and load them; if there are none, warn once with the reason."""
    try:
        return ctypes.CDLL(str(_packaged() or _built()))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        warnings.warn(
            f"the C kernels could not be built ({reason}); the slower definition in PyTorch runs instead. "
            "Install a C compiler, or set the environment variable CC to one",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


@lru_cache(maxsize=1)
def parallel() -> int:
    """Return the address of GOMP_parallel in PyTorch's OpenMP library, or 0 (one thread) if there is none."""
    with suppress(OSError, AttributeError):
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
        for path in sorted(
            path for path in mapped if Path(path).name.startswith(("libgomp", "libiomp", "libomp"))
        ):
            return ctypes.cast(ctypes.CDLL(path).GOMP_parallel, ctypes.c_void_p).value or 0
    return 0


def compile_kernels(compiler: list[str], march: str, target: Path) -> None:
    """Compile the kernels for a processor."""
    command = [*compiler, *FLAGS, *tuned_for(march, platform.machine()), str(SOURCE), "-o", str(target)]
    subprocess.run(command, capture_output=True, text=True, check=True)


def tuned_for(march: str, machine: str) -> list[str]:
    """Return the compiler flags for a processor. On ARM, Apple's compiler only accepts -mcpu=native."""
    if machine.lower() in ("arm64", "aarch64"):
        return [f"-mcpu={march}"]
    return [f"-march={march}", *["-mprefer-vector-width=512"] * (machine.lower() in ("x86_64", "amd64"))]


def packaged_name(level: str) -> str:
    """Return the kernels' file name for a processor level; it changes with their source."""
    return f"{level}-{_digest(_sources())[:16]}.so"


def _sources() -> bytes:
    return b"\0".join(path.read_bytes() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file_digest(path: Path) -> str:
    from ultralif.files import digest  # the hook that builds the wheel runs this file without the package

    return digest(path)


def _packaged() -> Path | None:
    """Return the best kernels in the wheel that this processor can run, if there are any."""
    if not PACKAGED.is_dir() or sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    flags = set(_processor().split())
    for level, needed in LEVELS.items():
        path = PACKAGED / packaged_name(level)
        if needed <= flags and path.is_file():
            return path
    return None


def _built() -> Path:
    """Return the kernels for this source, compiler and processor, from the cache if they are undamaged."""
    named = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if named is None:
        raise FileNotFoundError("no C compiler was found")
    compiler = shlex.split(named)
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=True).stdout
    key = _digest(b"\0".join((_sources(), " ".join(FLAGS).encode(), version, _processor().encode())))[:24]
    folder = _private_folder()
    found = _whole(folder, key)
    if found is not None:
        return found
    with _alone_in(folder):
        found = _whole(folder, key)  # another process may have built them in the meantime
        return found if found is not None else _build(compiler, folder, key)


def _build(compiler: list[str], folder: Path, key: str) -> Path:
    """Compile into the folder. Nothing else builds there, so other scratch folders are from killed builds."""
    for left in folder.glob("building-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as scratch:
        built = Path(scratch) / "kernels.so"
        compile_kernels(compiler, "native", built)
        target = folder / f"kernels-{key}-{_file_digest(built)}.so"
        built.chmod(0o700)
        with built.open("r+b") as file:  # Windows does not flush files that are open for reading only
            os.fsync(file.fileno())
        built.replace(target)
        return target


def _whole(folder: Path, key: str) -> Path | None:
    """Return the kernels with this key whose digest matches their name; remove any that were damaged."""
    for path in sorted(folder.glob(f"kernels-{key}-*.so")):
        status = path.lstat()
        regular = stat.S_ISREG(status.st_mode) and not _open_to_others(status)
        if regular and path.name == f"kernels-{key}-{_file_digest(path)}.so":
            return path
        path.unlink()
    return None


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let only one process build at a time; the lock of a killed process is released automatically."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _private_folder() -> Path:
    """Return the cache folder, after checking that nobody else can put a library there."""
    from platformdirs import user_cache_path

    cache = user_cache_path("ultralif")
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = cache / "kernels"
    folder.mkdir(exist_ok=True, mode=0o700)
    folder = folder.resolve(strict=True)
    for parent in {*cache.absolute().parents, cache.absolute(), *folder.parents}:
        status = parent.stat()
        sticky = (
            status.st_mode & stat.S_ISVTX and status.st_uid == 0
        )  # as in /tmp, others cannot change our entry
        if _open_to_others(status) and not sticky:
            raise PermissionError(f"{parent} is writable by others; run chmod go-w on it")
    status = folder.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; remove it")
    if _open_to_others(status):
        folder.chmod(0o700)  # the files inside may come from anybody
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return folder


def _open_to_others(status: os.stat_result) -> bool:
    """Return whether anyone other than this user and root can write here."""
    if not hasattr(os, "getuid"):
        return False
    return status.st_uid not in (0, os.getuid()) or bool(status.st_mode & 0o022)


def _processor() -> str:
    """Return the processor and its capabilities, for which the kernels are built."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
