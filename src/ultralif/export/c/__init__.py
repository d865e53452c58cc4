"""Write an integer network as one self-contained folder of plain C99; the templates stand beside."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.c.source import arrays, fill, program, recording, state
from ultralif.export.integer import IntegerNetwork

__all__ = ["Footprint", "footprint", "to_c"]


@dataclass(frozen=True)
class Footprint:
    """The bytes that a model takes on its device, code not counted."""

    rom: int
    """Constants."""
    ram: int
    """State of one stream."""

    @property
    def total(self) -> int:
        """Both together."""
        return self.rom + self.ram


def to_c(
    net: IntegerNetwork,
    out: str | Path,
    recorded: Tensor,
    *,
    memory_budget: int | None = None,
    title: str = "A spiking network",
) -> Footprint:
    """Write ``net`` into a new folder: the model, its self-test, an example, a Makefile and a README.

    Nothing is written unless all of it can be.

    Args:
        net: made by `ultralif.export.quantize`.
        out: the folder; it must be new or empty.
        recorded: event counts ``[T, B, *input]`` that the self-test replays.
        memory_budget: the most bytes of constants and state; the C compiler checks it again.
        title: one line that says what the network is.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"out={out} exists already; name a new folder, or remove it first")
    size = footprint(net)
    budget = size.total if memory_budget is None else memory_budget
    if size.total > budget:
        raise InputError(
            f"the model needs {size.total} bytes ({size.rom} constant, {size.ram} state), but memory_budget "
            f"is {budget}; train fewer neurons, or allow more"
        )
    if net.sizes[0] > 0xFFFF:
        raise InputError(f"the network has {net.sizes[0]} inputs, but a C event numbers at most 65535")
    files = _files(net, recorded, size, budget, title)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        for name in files:
            (Path(folder) / name).replace(out / name)
    return size


def footprint(net: IntegerNetwork) -> Footprint:
    """Return the bytes that a network will take in C."""
    rom = sum(array.bytes for array in arrays(net))
    neurons = sum(len(layer.weight) for layer in net.layers if layer.neuron is not None)
    words = sum(net.sizes[1:]) + net.sizes[-1] + 2  # sums, scores, two counters
    membrane_words = -(-neurons * net.bits // 32)
    return Footprint(rom, 4 * (words + membrane_words))


def _one_line(title: str) -> str:
    """Return a title that neither ends the comment that it stands in nor begins another."""
    printable = "".join(c for c in " ".join(title.split()) if c.isprintable())
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)", " ", printable)


def _files(net: IntegerNetwork, recorded: Tensor, size: Footprint, budget: int, title: str) -> dict[str, str]:
    facts = {
        "title": _one_line(title),
        "sizes": "-".join(map(str, net.sizes)),
        "inputs": net.sizes[0],
        "classes": net.sizes[-1],
        "timesteps": net.timesteps,
        "max_events": net.max_events,
        "bits": net.bits,
        "rom": size.rom,
        "ram": size.ram,
        "budget": budget,
    }
    constants = arrays(net)
    stated = " + ".join(f"sizeof {array.name}" for array in constants)
    check = f"typedef char model_keeps_its_rom[{stated} == MODEL_ROM_BYTES ? 1 : -1];\n"
    return {
        "model.h": fill("model.h", **facts, **state(net)),
        "model.c": fill("model.c", **program(net)),
        "weights.h": "\n\n".join([*(array.text() for array in constants), check]),
        "selftest.c": fill("selftest.c", **recording(net, recorded)),
        "README.md": fill("README.md", **facts),
        **{name: fill(name) for name in ("main.c", "Makefile", "cortex_m.c", "cortex_m.ld")},
    }
