"""Write an integer network as one self-contained folder of plain C99, from the templates here."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ultralif.errors import InputError
from ultralif.export.c.program import program
from ultralif.export.c.source import arrays, fields, fill, recording, state, weight_type
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

    Either all files are written or none.

    Args:
        net: made by `ultralif.export.quantize`.
        out: the folder; it must be new or empty.
        recorded: inputs ``[T, B, *input]`` that the self-test replays.
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
    if net.inputs > 0xFFFF:
        raise InputError(f"the network has {net.inputs} inputs, but event indices are limited to 65535")
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
    counters = 2 if net.levels is None else 1
    ram = 4 * (net.classes + counters) + sum(field.bytes for field in fields(net))
    return Footprint(rom, -(-ram // 4) * 4)


def _one_line(title: str) -> str:
    """Return a title that is safe inside of a C comment."""
    printable = "".join(c for c in " ".join(title.split()) if c.isprintable())
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)", " ", printable)


def _files(net: IntegerNetwork, recorded: Tensor, size: Footprint, budget: int, title: str) -> dict[str, str]:
    facts = {
        "title": _one_line(title),
        "sizes": str(net),
        "inputs": net.inputs,
        "classes": net.classes,
        "timesteps": net.timesteps,
        "bits": net.bits,
        "weight": weight_type(net.synapses[0]),
        "rom": size.rom,
        "ram": size.ram,
        "budget": budget,
    }
    constants = arrays(net)
    stated = " + ".join(f"sizeof {array.name}" for array in constants)
    check = f"typedef char model_keeps_its_rom[{stated} == MODEL_ROM_BYTES ? 1 : -1];\n"
    return {
        "model.h": fill("model.h", **facts, **_header(net), membrane=f"int{net.bits}_t", fields=state(net)),
        "model.c": fill("model.c", **program(net)),
        "weights.h": "\n\n".join([*(array.text() for array in constants), check]),
        "selftest.c": fill("selftest.c", **recording(net, recorded)),
        "README.md": fill("README.md", **facts, **_readme(net)),
        "Makefile": fill("Makefile", ram=size.ram),
        "main.c": fill("main.c", **_main(net)),
        **{name: fill(name) for name in ("cortex_m.c", "cortex_m.ld")},
    }


def _header(net: IntegerNetwork) -> dict[str, object]:
    """Return what the header says of the input."""
    if net.levels is None:
        return {
            "limits": f"#define MODEL_MAX_EVENTS UINT32_C({net.max_events}) /* in one time step, likewise */",
            "value": "uint8_t",
            "meaning": "events of one input in a time step",
            "counter": "    uint32_t events; /* in this time step */\n",
            "functions": fill("input_events.h"),
        }
    low, high, step = net.levels.low, net.levels.high, net.levels.step
    return {
        "limits": f"#define MODEL_LEVEL {step:.9g} /* of an input: level = round(value / MODEL_LEVEL) */",
        "value": "int8_t" if net.levels.signed else "uint8_t",
        "meaning": f"a level of one input, {low} to {high}",
        "counter": "",
        "functions": fill("input_levels.h"),
    }


def _main(net: IntegerNetwork) -> dict[str, object]:
    """Return how the example reads samples."""
    if net.levels is None:
        return {"stream": "event counts for\n   every time step of a sample", "take": fill("main_events.c")}
    return {
        "stream": "the levels of a\n   sample, which stay for all of its time steps",
        "take": fill("main_levels.c"),
    }


def _readme(net: IntegerNetwork) -> dict[str, object]:
    """Return what the README says of the input."""
    if net.levels is None:
        loop = """for (each time step) {
    for (each input event) model_event(&state, input);   /* or model_frame(&state, counts) */
    model_tick(&state);
}"""
        return {"input": f"event counts, at most {net.max_events} in a time step", "first": "", "loop": loop}
    low, high, step = net.levels.low, net.levels.high, net.levels.step
    loop = """model_input(&state, levels);                             /* stays until the next one */
for (each time step)
    model_tick(&state);"""
    return {
        "input": f"real numbers in 8 bits, round(value / {step:.9g}), from {low} to {high}",
        "first": "\nThe first layer multiplies weights by the levels of its input, once for each input.",
        "loop": loop,
    }
