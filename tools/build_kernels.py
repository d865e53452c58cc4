"""Hatchling hook: add compiled kernels to the Linux x86-64 wheel if tools/dist.py requests it."""

import os
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = (2, 17)
"""The oldest C library that the wheel's tag promises to support."""


class BuildKernels(BuildHookInterface):
    """Compile the kernels for each processor level if ULTRALIF_KERNELS is 1; otherwise add no binaries."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, check the libraries' requirements, and name the wheel for its platform."""
        if self.target_name != "wheel" or version != "standard" or os.environ.get("ULTRALIF_KERNELS") != "1":
            return
        build = runpy.run_path(str(Path(self.root) / "src" / "ultralif" / "ops" / "cpu" / "build.py"))
        self.folder = tempfile.TemporaryDirectory()
        for level in build["LEVELS"]:
            name = build["packaged_name"](level)
            target = Path(self.folder.name) / name
            build["compile_kernels"]([os.environ.get("CC", "cc")], level, target)
            check(target)
            build_data["force_include"][str(target)] = f"ultralif/ops/cpu/compiled/{name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled libraries."""
        if hasattr(self, "folder"):
            self.folder.cleanup()


def check(library: Path) -> None:
    """Refuse a library that needs more than the tag's C library."""
    content = library.read_bytes()
    newest = max((int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", content))
    others = set(re.findall(rb"\0(lib[\w-]+\.so[.\d]*)", content)) - {b"libc.so.6"}
    if newest > GLIBC or others:
        raise RuntimeError(
            f"{library.name} needs glibc {newest} and {sorted(others)}, beyond the wheel's tag"
        )
