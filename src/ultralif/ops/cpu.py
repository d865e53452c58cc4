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
        *((name, ctypes.c_int64) for name in ("time", "batch", "features", "ring")),
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
                "threads",
                "unused",
            )
        ),
        *((name, ctypes.c_double) for name in ("v_reset", "adapt_strength", "adapt_decay")),
    )


def available() -> bool:
    """Tell whether the kernels could be built; the first call builds them."""
    return _library() is not None


def forward(current: Tensor, state: Tensor | None, constants: Constants, rule: Rule) -> tuple[Tensor, Tensor]:
    """Return the spikes and the last state, as `Implementation` says."""
    dtype = compute_dtype(current.dtype)
    x = current.to(dtype).contiguous()
    out = torch.empty_like(x[0] if rule.rate else x)
    last = x.new_empty((rule.states, *x.shape[1:]))
    start = None if state is None else state.contiguous()
    _call("integrate", _c_rule(x, rule), (x, start, *_wide(constants, x), out, last))
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
    dtype = compute_dtype(current.dtype)
    x = current.to(dtype).contiguous()
    g_out = None if grad_out is None else grad_out.to(dtype).contiguous()
    g_last = None if grad_state is None else grad_state.contiguous()
    start = None if state is None else state.contiguous()
    c_rule = _c_rule(x, rule)
    g_current = torch.empty_like(x)
    g_state = None if start is None else torch.empty_like(start)
    sums = x.new_zeros((4, c_rule.threads, x.shape[2]))
    tensors = (g_out, g_last, x, start, *_wide(constants, x), g_current, g_state, sums)
    _call("integrate_backward", c_rule, tensors)
    g_start = x.new_empty(0) if g_state is None else g_state
    return g_current.to(current.dtype), g_start, sums if learn else x.new_empty(0)


def _c_rule(x: Tensor, rule: Rule) -> _Rule:
    time, batch, features = x.shape
    return _Rule(
        time,
        batch,
        features,
        rule.ring,
        ("lse", "max", "add").index(rule.membrane),
        ("none", "factor", "shift").index(rule.leak_form),
        rule.soft,
        rule.through_reset,
        rule.rate,
        rule.centered,
        rule.adapt,
        rule.adapt_late,
        min(torch.get_num_threads(), batch * (features // rule.ring if rule.ring else 1)),
        0,
        rule.v_reset,
        rule.adapt_strength,
        rule.adapt_decay,
    )


def _wide(constants: Constants, x: Tensor) -> list[Tensor]:
    return [
        c.repeat_interleave(x.shape[2] // c.numel())
        if isinstance(c, Tensor)
        else x.new_full((x.shape[2],), c)
        for c in constants
    ]


def _call(name: str, rule: _Rule, tensors: tuple[Tensor | None, ...]) -> None:
    library = _library()
    assert library is not None  # noqa: S101 - the caller asked available()
    kind = "double" if any(t is not None and t.dtype == torch.float64 for t in tensors) else "float"
    pointers = (ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors)
    if getattr(library, f"{name}_{kind}")(ctypes.byref(rule), *pointers):
        raise MemoryError(f"no memory to integrate a layer of {rule.features} neurons; use a smaller batch")


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
    key = "\0".join([SOURCE.read_text(), *FLAGS, version, _processor()])
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
