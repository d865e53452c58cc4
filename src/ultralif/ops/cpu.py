"""The recurrence in C: compiled on first use, kept in a folder that only its owner can write."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from ultralif.functional import compute_dtype
from ultralif.ops.contract import Constants, Rule

__all__ = ["available", "backward", "forward"]

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")


class _Rule(ctypes.Structure):
    """`Rule` as kernels.c has it."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("time", "batch", "features", "ring", "current_step", "grad_step")
        ),
        ("lengths", ctypes.c_int64 * 4),
        ("numbers", ctypes.c_double * 4),
        *((name, ctypes.c_double) for name in ("v_reset", "adapt_strength", "adapt_decay")),
        *(
            (name, ctypes.c_int32)
            for name in (
                "membrane",
                "leak_form",
                "soft",
                "through_reset",
                "rate",
                "centered",
                "adapt",
                "adapt_late",
                "learn",
                "threads",
            )
        ),
    )


def available() -> bool:
    """Tell whether the kernels could be built; the first call builds them."""
    return _library() is not None


def forward(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes and the last state, as `Implementation` says."""
    x = _steps(current)
    out = torch.empty(x.shape[1:] if rule.rate else x.shape, dtype=x.dtype)
    last = torch.empty((rule.states, *x.shape[1:]), dtype=x.dtype)
    _call(rule, False, x, state, constants, out, last, None, None, None, None, None)
    return out.to(current.dtype), last


def backward(
    grad_out: Tensor | None,
    grad_state: Tensor | None,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    rule: Rule,
    learn: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients for current, state and constants, as `Implementation` says."""
    x = _steps(current)
    g_current = torch.empty(x.shape, dtype=x.dtype)
    g_state = x.new_empty(0) if state is None else torch.empty(state.shape, dtype=x.dtype)
    g_constants = torch.empty((4, constants.longest()) if learn else 0, dtype=x.dtype)
    g_out = None if grad_out is None else grad_out.to(x.dtype).contiguous() if rule.rate else _steps(grad_out)
    _call(rule, learn, x, state, constants, None, None, g_out, grad_state, g_current, g_state, g_constants)
    return g_current.to(current.dtype), g_state, g_constants


def _steps(x: Tensor) -> Tensor:
    """Make every time step contiguous; from one to the next any distance will do."""
    x = x.to(compute_dtype(x.dtype))
    return x if x[0].is_contiguous() else x.contiguous()


def _call(
    rule: Rule,
    learn: bool,
    current: Tensor,
    state: Tensor | None,
    constants: Constants,
    *rest: Tensor | None,
) -> None:
    grad_out = rest[2]
    c_rule = _Rule(
        *current.shape,
        rule.ring,
        current.stride(0),
        grad_out.stride(0) if grad_out is not None else 0,
        tuple(c.numel() if isinstance(c, Tensor) else 1 for c in constants),
        tuple(0.0 if isinstance(c, Tensor) else c for c in constants),
        rule.v_reset,
        rule.adapt_strength,
        rule.adapt_decay,
        ("lse", "max", "add").index(rule.membrane),
        ("none", "factor", "shift").index(rule.leak_form),
        rule.soft,
        rule.through_reset,
        rule.rate,
        rule.centered,
        rule.adapt,
        rule.adapt_late,
        learn,
        torch.get_num_threads(),
    )
    tensors = [
        t.contiguous() if isinstance(t, Tensor) and t is not current and t is not grad_out else t
        for t in (current, state, *constants, *rest)
    ]
    pointers = (ctypes.c_void_p * 13)(
        *(t.data_ptr() if isinstance(t, Tensor) and t.numel() else None for t in tensors)
    )
    library = _library()
    assert library is not None  # noqa: S101 - the caller asked available()
    function = library.integrate_double if current.dtype == torch.float64 else library.integrate_float
    if function(ctypes.byref(c_rule), pointers):
        raise MemoryError(f"no memory to integrate a layer of {c_rule.features} neurons; use a smaller batch")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    """Build and load the kernels, or say once why there are none."""
    try:
        return ctypes.CDLL(str(_built()))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        warnings.warn(
            f"the C kernels could not be built ({reason}); a slower PyTorch implementation serves. Install a "
            "C compiler, or name one in the environment variable CC",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _built() -> Path:
    """Return the compiled library, from the cache if source, compiler and processor are the same."""
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler was found")
    version = subprocess.run(
        [*compiler.split(), "--version"], capture_output=True, text=True, check=True
    ).stdout
    sources = [path.read_text() for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h")))]
    key = "\0".join([*sources, *FLAGS, version, _processor()])
    folder = _private_folder()
    target = folder / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / target.name
            _compile(compiler.split(), built)
            built.replace(target)
    return target


def _compile(compiler: list[str], target: Path) -> None:
    """Compile with OpenMP, or on one thread where the compiler has none."""
    command = [*compiler, *FLAGS, str(SOURCE), "-o", str(target)]
    threaded = subprocess.run([*command, "-fopenmp", "-lm"], capture_output=True, check=False)
    if threaded.returncode:
        subprocess.run([*command, "-lm"], capture_output=True, text=True, check=True)


def _private_folder() -> Path:
    """Return the cache folder, after making sure that nobody else can put a library there."""
    from platformdirs import user_cache_path

    folder = user_cache_path("ultralif") / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise PermissionError(f"{folder} can be written by others; make it yours alone with chmod 700")
    return folder


def _processor() -> str:
    """Name the processor and what it can do, since the kernels are built for it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
