"""Write an integer network as one self-contained folder of plain C99, from the templates here."""

import re
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.c.gather import has_levels, weight_type
from ultralif.export.c.inputs import header, main, readme, recorded_inputs, sketch
from ultralif.export.c.plan import LayerPlan, make_plan
from ultralif.export.c.program import program
from ultralif.export.c.source import arrays, constants_hash, fields, mixed, recording, state
from ultralif.export.c.text import fill
from ultralif.export.integer import IntegerNetwork

__all__ = ["Footprint", "footprint", "to_c", "ways"]


@dataclass(frozen=True)
class Footprint:
    """The bytes that a model occupies on the device, excluding code.

    Example:
        >>> Footprint(rom=900, ram=64).ram
        64
    """

    rom: int
    """Constants."""
    ram: int
    """State of one stream."""

    @property
    def total(self) -> int:
        """Constants and state together."""
        return self.rom + self.ram


def to_c(
    net: IntegerNetwork,
    out: str | Path,
    recorded: Tensor,
    *,
    memory_budget: int | None = None,
    title: str = "A spiking network",
    layout: Literal["make", "arduino"] = "make",
) -> Footprint:
    """Write ``net`` into a new folder: the model, its self-test, an example and a README.

    Either all files are written or none.

    Args:
        net: a network returned by `ultralif.export.quantize`.
        out: the folder; it must be new or empty.
        recorded: inputs ``[T, B, *input]`` for the self-test to replay.
        memory_budget: the maximum bytes for constants and state; the C compiler checks it again.
        title: one line that describes the network.
        layout: ``make`` adds a Makefile and a CMake file; ``arduino`` writes a library for the Arduino IDE,
            with a sketch.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from ultralif.export import quantize
        >>> from ultralif.nn import Network
        >>> recorded = (torch.rand(5, 3, 4) < 0.3).long()
        >>> size = to_c(quantize(Network((4, 8, 2)), timesteps=5), tempfile.mkdtemp(), recorded)
        >>> size.rom < 1000
        True
    """
    if layout not in ("make", "arduino"):
        raise InputError(f"layout must be make or arduino, got {layout!r}")
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"out={out} already exists; name a new folder, or remove it first")
    plan = make_plan(net)
    size = _footprint(net, plan)
    budget = size.total if memory_budget is None else memory_budget
    if size.total > budget:
        raise InputError(
            f"the model needs {size.total} bytes ({size.rom} constant, {size.ram} state), but memory_budget "
            f"is {budget}; reduce the number of neurons, or raise it"
        )
    if net.inputs > 0xFFFF:
        raise InputError(f"the network has {net.inputs} inputs, but event indices are limited to 65535")
    texts = _files(net, plan, recorded, size, budget, title)
    if layout == "arduino":
        texts = _arduino(net, texts, out.name, _one_line(title), size)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        for name, text in texts.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_text(text)
        for part in Path(folder).iterdir():
            part.replace(out / part.name)
    return size


def footprint(net: IntegerNetwork) -> Footprint:
    """Return a network's memory footprint in C.

    Example:
        >>> from ultralif.export import quantize
        >>> from ultralif.nn import Network
        >>> footprint(quantize(Network((4, 8, 2)), timesteps=5)).ram < 100
        True
    """
    return _footprint(net, make_plan(net))


def _footprint(net: IntegerNetwork, plan: LayerPlan) -> Footprint:
    rom = sum(array.bytes for array in arrays(net, plan))
    counters = (2 if net.levels is None else 1) + len(plan.gathered)
    ram = 4 * (net.classes + counters) + sum(field.bytes for field in fields(net, plan))
    pointer = 8 if has_levels(plan) else 4  # the address of the input on a 64-bit machine
    return Footprint(rom, -(-ram // pointer) * pointer + (16 if has_levels(plan) else 0))


def ways(net: IntegerNetwork) -> dict[str, str]:
    """Return, for each layer of neurons by name, how the C program computes it and why."""
    plan = make_plan(net)
    places = sorted([*plan.gathered, *plan.spread])
    return {net.nodes[place].name: plan.why(place) for place in places}


def _ways(net: IntegerNetwork, plan: LayerPlan) -> str:
    places = sorted([*plan.gathered, *plan.spread])
    return "\n".join(f"- layer {place}, `{net.nodes[place].name}`: {plan.why(place)}" for place in places)


def _one_line(title: str) -> str:
    """Return a title that is safe inside a C comment."""
    printable = "".join(c for c in " ".join(title.split()) if c.isprintable())
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)", " ", printable)


def _arduino(
    net: IntegerNetwork, texts: dict[str, str], folder: str, title: str, size: Footprint
) -> dict[str, str]:
    """Arrange the files as an Arduino library that passes arduino-lint."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", folder).lstrip("_.-")[:63] or "model"
    facts = {"name": name, "title": title, "ram": size.ram, "rom": size.rom}
    return {
        "library.properties": fill("library.properties", **facts),
        "README.md": texts["README.md"].partition("```sh")[0].rstrip() + "\n",
        "examples/Classify/Classify.ino": fill("arduino.ino", title=title, **sketch(net)),
        **{f"src/{part}": texts[part] for part in ("model.h", "model.c", "weights.h", "selftest.c")},
    }


def _files(
    net: IntegerNetwork, plan: LayerPlan, recorded: Tensor, size: Footprint, budget: int, title: str
) -> dict[str, str]:
    facts = {
        "title": _one_line(title),
        "sizes": str(net),
        "inputs": net.inputs,
        "classes": net.classes,
        "timesteps": net.timesteps,
        "bits": net.bits,
        "weight": weight_type(net.synapses[0]),
        "weight_bits": net.synapses[0].weight_bits,
        "rom": size.rom,
        "ram": size.ram,
        "budget": budget,
    }
    answers = recording(net, plan, recorded)  # first, because it refuses inputs that the program would refuse
    constants = arrays(net, plan)
    stated = " + ".join(f"sizeof {array.name}" for array in constants)
    check = f"typedef char model_keeps_its_rom[{stated} == MODEL_ROM_BYTES ? 1 : -1];\n"
    return {
        "model.h": fill(
            "model.h", **facts, **header(net, plan), membrane=f"int{net.bits}_t", fields=state(net, plan)
        ),
        "model.c": fill("model.c", **program(net, plan), constants=mixed(constants)),
        "weights.h": "\n\n".join([*(array.text() for array in constants), check]),
        "selftest.c": fill(
            "selftest.c",
            inputs=recorded_inputs(net, recorded),
            constants=f"{constants_hash(constants)}u",
            **answers,
        ),
        "README.md": fill("README.md", **facts, **readme(net), ways=_ways(net, plan)),
        "Makefile": fill("Makefile", ram=size.ram),
        "main.c": fill("main.c", **main(net)),
        **{name: fill(name) for name in ("cortex_m.c", "cortex_m.ld", "CMakeLists.txt")},
        "count.py": (files("ultralif.export.c") / "count.py").read_text(),
    }
