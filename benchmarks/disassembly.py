"""Count the instructions of a call's Triton kernels, compiled and disassembled without a GPU."""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ultralif.errors import need

__all__ = ["Kernel", "compiled"]


class Kernel(NamedTuple):
    """A compiled kernel."""

    name: str
    lanes: int
    """Number of neurons that a thread integrates side by side."""
    registers: int
    """Of a thread."""
    instructions: Counter[str]
    """Number of occurrences of each instruction."""
    first_loop: Counter[str]
    """The same for the first innermost loop."""
    listing: list[str]
    """The instructions with their operands, in order."""

    @property
    def spills(self) -> int:
        """Number of register spills and reloads."""
        return self.instructions["STL"] + self.instructions["LDL"]


@contextmanager
def compiled(capability: int = 90) -> Iterator[list[Kernel]]:
    """Compile the kernels of operators instead of launching them; results are not computed.

    Args:
        capability: the GPU's compute capability, such as 80 (A100) or 90 (H100, H200).

    Example:
        >>> from ultralif import ops
        >>> with compiled() as kernels:  # doctest: +SKIP
        ...     ops.lif(torch.zeros(10, 1, 64), leak=0.9, threshold=0.5)
        >>> kernels[0].spills  # doctest: +SKIP
        0
    """
    need("triton", "dev")
    from triton.runtime.jit import JITFunction

    made: list[Kernel] = []

    def run(kernel: Any, *args: Any, grid: object, warmup: bool, **options: Any) -> None:
        made.append(_compile(kernel, capability, args, options))

    with ExitStack() as replaced:
        replaced.enter_context(_on_gpu())
        replaced.enter_context(_replaced(JITFunction, "run", run))
        yield made


@contextmanager
def _on_gpu() -> Iterator[None]:
    """Treat every tensor as a GPU tensor."""
    try:
        from ultralif.ops import autograd
        from ultralif.ops.triton import plan

        found = [(autograd, "on_gpu", lambda current: True), (autograd, "has_kernel", lambda *about: True)]
    except ModuleNotFoundError:  # 0.2.0, for benchmarks/unchanged.py
        from ultralif.ops import dispatch
        from ultralif.ops import gpu as plan

        found = [(dispatch, "gpu_for", lambda current: plan), (dispatch, "is_taken", lambda *about: True)]
    plan.forget()
    with ExitStack() as replaced:
        for module, name, value in found:
            replaced.enter_context(_replaced(module, name, value))
        replaced.callback(plan.forget)
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _compile(kernel: Any, capability: int, args: tuple[Any, ...], options: dict[str, Any]) -> Kernel:
    """Compile a kernel for a launch's arguments."""
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    # As in a launch, numbers and addresses that are multiples of 16 are marked as such.
    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, special, _ = bind(*args, **options)
    _, signature, fixed, known = kernel._pack_args(backend, options, bound, special, None)
    source = ASTSource(kernel, signature, fixed, known)
    code = compile_kernel(source, target=target, options=options)
    tile = next(bound[name] for name in ("LANES", "BLOCK", "BATCH", "ROWS") if name in bound)
    lanes = tile // (32 * options.get("num_warps", 4))
    return Kernel(kernel.__name__, lanes, *_disassembled(code.asm["cubin"]))


def _disassembled(code: bytes) -> tuple[int, Counter[str], Counter[str], list[str]]:
    """Return the registers, the instructions in total and in the first inner loop, and the listing."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        usage, listing = (
            subprocess.run([tools / tool, flag, file.name], capture_output=True, text=True, check=True).stdout
            for tool, flag in (("cuobjdump", "-res-usage"), ("nvdisasm", "-c"))
        )
    (registers,) = re.findall(r"REG:(\d+)", usage)
    words: list[str] = []
    lines: list[str] = []
    labels: dict[str, int] = {}
    loop: Counter[str] = Counter()
    for line in listing.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(words)
        elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_]+)", line):
            words.append(found[1])
            lines.append(" ".join(line.split("*/", 1)[1].split("/*")[0].split()))
            back = re.search(r"BRA.*?(\.L_\w+)", line)
            if back and back[1] in labels and not loop:  # the branch of an inner loop comes first
                loop.update(words[labels[back[1]] :])
    return int(registers), Counter(words), loop, lines
