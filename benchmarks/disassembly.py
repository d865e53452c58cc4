"""Instruction counts of the Triton kernels of a call, compiled and disassembled without a GPU."""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ultralif.errors import need
from ultralif.ops import dispatch

__all__ = ["Kernel", "compiled"]

MODULES = (
    "ultralif.ops.triton_temporal",
    "ultralif.ops.triton_temporal_back",
    "ultralif.ops.triton_spikes",
    "ultralif.ops.triton_parallel",
    "ultralif.ops.triton_parallel_back",
    "ultralif.ops.triton_spatial",
    "ultralif.ops.triton_spatial_back",
    "ultralif.stack.kernels",
)


class Kernel(NamedTuple):
    """A compiled kernel."""

    name: str
    lanes: int
    """Neurons that a thread integrates side by side."""
    registers: int
    """Of a thread."""
    instructions: Counter[str]
    """Number of occurrences of each instruction."""
    first_loop: Counter[str]
    """The same in the first loop that has none inside."""

    @property
    def spills(self) -> int:
        """Number of register spills and reloads."""
        return self.instructions["STL"] + self.instructions["LDL"]


@contextmanager
def compiled(capability: int = 90) -> Iterator[list[Kernel]]:
    """Compile what operators would launch, in place of launching it; their results are not computed.

    Args:
        capability: of the GPU, such as 80 (A100) or 90 (H100, H200).

    Example:
        >>> from ultralif import ops
        >>> with compiled() as kernels:  # doctest: +SKIP
        ...     ops.lif(torch.zeros(10, 1, 64), leak=0.9, threshold=0.5)
        >>> kernels[0].spills  # doctest: +SKIP
        0
    """
    need("triton", "dev")
    from ultralif.ops import gpu

    gpu.forget()
    made: list[Kernel] = []
    with ExitStack() as replaced:
        replaced.enter_context(_replaced(dispatch, "gpu_for", lambda current: gpu))
        replaced.enter_context(_replaced(dispatch, "is_taken", lambda *about: True))
        for module in map(import_module, MODULES):
            for name in module.__all__:
                compiler = _Compiler(getattr(module, name), capability, made)
                replaced.enter_context(_replaced(module, name, compiler))
        replaced.callback(gpu.forget)
        yield made


@contextmanager
def _replaced(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


class _Compiler:
    """Replacement of a kernel: ``kernel[grid](...)`` compiles it for these arguments."""

    def __init__(self, kernel: Any, capability: int, made: list[Kernel]) -> None:
        self.kernel, self.capability, self.made = kernel, capability, made

    def __getitem__(self, grid: object) -> "_Compiler":
        return self

    def __call__(self, *args: Any, **options: Any) -> None:
        from triton import compile as compile_kernel
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, make_backend
        from triton.runtime.jit import create_function_from_signature

        # As a launch does it: numbers and addresses that are multiples of 16 are known to be so.
        target = GPUTarget("cuda", self.capability, 32)
        backend = make_backend(target)
        bind = create_function_from_signature(self.kernel.signature, self.kernel.params, backend)
        bound, special, _ = bind(*args, **options)
        _, signature, fixed, known = self.kernel._pack_args(backend, options, bound, special, None)
        source = ASTSource(self.kernel, signature, fixed, known)
        code = compile_kernel(source, target=target, options=options)
        tile = next(bound[name] for name in ("LANES", "BLOCK", "BATCH", "ROWS") if name in bound)
        lanes = tile // (32 * options["num_warps"])
        self.made.append(Kernel(self.kernel.__name__, lanes, *_disassembled(code.asm["cubin"])))


def _disassembled(code: bytes) -> tuple[int, Counter[str], Counter[str]]:
    """Return registers, instructions, and those of the first inner loop."""
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
    labels: dict[str, int] = {}
    loop: Counter[str] = Counter()
    for line in listing.splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(words)
        elif found := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_]+)", line):
            words.append(found[1])
            back = re.search(r"BRA.*?(\.L_\w+)", line)
            if back and back[1] in labels and not loop:  # the branch of an inner loop comes first
                loop.update(words[labels[back[1]] :])
    return int(registers), Counter(words), loop
