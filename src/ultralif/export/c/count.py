"""Count the instructions of an inference on a Cortex-M, without a board: the program runs in an emulator.

    python3 count.py count-m0plus.elf count-m4.elf

needs Unicorn (``pip install unicorn``). Each program replays its self-test. Instructions are counted only in
the model's own functions: reset, input, time steps and class selection.
"""

import struct
import sys
from pathlib import Path
from typing import Any

try:
    import unicorn
    from unicorn import arm_const as arm
except ImportError:  # reported when it is needed
    unicorn = arm = None

__all__ = ["Emulator"]

CPUS = {
    "m0plus": "UC_CPU_ARM_CORTEX_M0",
    "m3": "UC_CPU_ARM_CORTEX_M3",
    "m4": "UC_CPU_ARM_CORTEX_M4",
}
CALLS = ("reset", "input", "event", "frame", "tick", "class")
RETURN = 0x00F0_0000  # the return address of every call; no code is stored there
STACK, SIZE = 0x3000_0000, 1 << 16
FREE = 0x2800_0000, 1 << 20  # memory for arguments


class Emulator:
    """A Cortex-M with one program in its memory."""

    def __init__(self, path: str | Path, cpu: str) -> None:
        """Load an ELF file for ``m0plus``, ``m3`` or ``m4``."""
        if unicorn is None:
            raise SystemExit("the emulator is not installed; run: pip install unicorn")
        image = Path(path).read_bytes()
        self.emulator = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self.emulator.ctl_set_cpu_model(getattr(arm, CPUS[cpu]))
        for base, size in ((0, 16 << 20), (0x2000_0000, 8 << 20), FREE, (STACK, SIZE)):
            self.emulator.mem_map(base, size)
        for kind, offset, address, _, size, *_ in _table(image, 28, 42, "8I"):
            if kind == 1 and size:
                self.emulator.mem_write(address, image[offset : offset + size])
        self.symbols = _symbols(image)
        self.instructions = 0
        """Instructions counted in the model's functions since the start."""
        self._code, self._lengths = image, dict[tuple[int, int], int]()
        self._entries = {
            self.symbols[f"model_{name}"] & ~1 for name in CALLS if f"model_{name}" in self.symbols
        }
        self._until: int | None = None
        self.emulator.hook_add(unicorn.UC_HOOK_BLOCK, self._block)

    def call(self, function: str, *arguments: int) -> int:
        """Call a function with up to four arguments, and return its result."""
        registers = (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2, arm.UC_ARM_REG_R3)
        for register, value in zip(registers, arguments, strict=False):
            self.emulator.reg_write(register, value)
        self.emulator.reg_write(arm.UC_ARM_REG_SP, STACK + SIZE)
        self.emulator.reg_write(arm.UC_ARM_REG_LR, RETURN | 1)
        self._until = None
        self.emulator.emu_start(self.symbols[function] | 1, RETURN)
        result = self.emulator.reg_read(arm.UC_ARM_REG_R0)
        return int(result) - (int(result) >> 31 << 32)

    def write(self, data: bytes) -> int:
        """Copy bytes into the memory for arguments, and return their address."""
        self.emulator.mem_write(FREE[0], data)
        return FREE[0]

    def read(self, address: int, size: int) -> bytes:
        """Return bytes from memory."""
        return bytes(self.emulator.mem_read(address, size))

    def stack(self) -> int:
        """Return the number of stack bytes that ever held a nonzero value."""
        return SIZE - next((i for i, byte in enumerate(self.read(STACK, SIZE)) if byte), SIZE)

    def _block(self, emulator: Any, address: int, size: int, _: object) -> None:
        if self._until is None and address in self._entries:
            self._until = emulator.reg_read(arm.UC_ARM_REG_LR) & ~1
        elif address == self._until:
            self._until = None
        if self._until is not None:
            self.instructions += self._count(address, size)

    def _count(self, address: int, size: int) -> int:
        """Return a block's instruction count; those starting with 0b11101 or 0b1111 take four bytes."""
        key = address, size
        if key not in self._lengths:
            code, at, found = self.read(address, size), 0, 0
            while at < size:
                at += 4 if code[at + 1] >= 0xE8 else 2
                found += 1
            self._lengths[key] = found
        return self._lengths[key]


def _table(image: bytes, start: int, entry: int, form: str) -> list[tuple[int, ...]]:
    """Return a table of an ELF file, whose offset, entry size and entry count are in the header."""
    (offset,), (size, count) = struct.unpack_from("<I", image, start), struct.unpack_from("<2H", image, entry)
    return [struct.unpack_from(f"<{form}", image, offset + i * size) for i in range(count)]


def _symbols(image: bytes) -> dict[str, int]:
    """Return the addresses of all names."""
    sections = _table(image, 32, 46, "10I")
    found = {}
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind == 2:
            names = sections[link][4]
            for at in range(offset, offset + size, 16):
                name, value = struct.unpack_from("<2I", image, at)
                found[image[names + name : image.index(b"\0", names + name)].decode()] = value
    return found


def main(paths: list[str]) -> None:
    """Print a line for each program, named like ``count-m4.elf`` or ``count-m4-portable.elf``."""
    for path in paths:
        name = Path(path).stem.removeprefix("count-")
        board = Emulator(path, name.split("-")[0])
        state, samples = (
            board.symbols["state"],
            struct.unpack("<I", board.read(board.symbols["model_samples"], 4)),
        )
        if board.call("model_selftest", state) != 0:
            sys.exit(f"{path}: the self-test failed")
        each = board.instructions / samples[0]
        print(f"Cortex-{name.upper():12} {each:12,.0f} instructions, {board.stack()} bytes of stack")


if __name__ == "__main__":
    main(sys.argv[1:])
