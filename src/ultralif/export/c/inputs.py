"""The parts of the C program that depend on its input: event counts, or levels of real numbers."""

import torch
from torch import Tensor

from ultralif.export.c.gather import has_levels, holds
from ultralif.export.c.plan import LayerPlan
from ultralif.export.c.source import fields
from ultralif.export.c.text import Field, fill, lines, numbers
from ultralif.export.integer import IntegerNetwork

__all__ = ["header", "input_functions", "main", "readme", "recorded_inputs", "sketch"]


def header(net: IntegerNetwork, plan: LayerPlan) -> dict[str, object]:
    """Return the header's text about the input."""
    if net.levels is None:
        return {
            "limits": f"#define MODEL_MAX_EVENTS UINT32_C({net.max_events}) /* in one time step, likewise */",
            "value": "uint8_t",
            "meaning": "events of one input in a time step",
            "counter": "    uint32_t events; /* in this time step */\n",
            "functions": fill("input_events.h"),
            "step": "for (each time step) model_frame(&state, counts);",
        }
    low, high, step = net.levels.low, net.levels.high, net.levels.step
    return {
        "limits": f"#define MODEL_LEVEL {step:.9g} /* of an input: level = round(value / MODEL_LEVEL) */",
        "value": "int8_t" if net.levels.signed else "uint8_t",
        "meaning": f"a level of one input, {low} to {high}",
        "counter": "    const model_value *levels; /* the input, which stays where it is */\n"
        if has_levels(plan)
        else "",
        "functions": fill("input_levels.h"),
        "step": "model_input(&state, levels); for (each time step) model_tick(&state);",
    }


def input_functions(net: IntegerNetwork, plan: LayerPlan) -> str:
    """Return the functions that accept an input."""
    if net.levels is None:
        return fill("input_events.c")
    keep = "    s->levels = levels;\n" if has_levels(plan) else ""
    keep += "    s->known[0] = 0;\n" if holds(net, plan) else ""
    stay = held(net, plan)
    take = fill("input_spread.c", clear=lines(4, cleared(stay))) if stay else ""
    return fill("input_levels.c", index="    uint32_t i;\n" if stay else "", keep=keep, take=take)


def held(net: IntegerNetwork, plan: LayerPlan) -> list[Field]:
    """Return the sums that persist from one time step to the next, until another input arrives."""
    names = {f"sum_{place}" for place, node in enumerate(net.nodes) if node.graded}
    return [field for field in fields(net, plan) if field.name in names]


def cleared(which: list[Field]) -> list[str]:
    """Return statements that set arrays of the state to 0."""
    return [
        line
        for field in which
        for line in (f"for (i = 0; i < {field.size}; i++)", f"    s->{field.name}[i] = 0;")
    ]


def main(net: IntegerNetwork) -> dict[str, object]:
    """Return how the example reads samples."""
    if net.levels is None:
        return {"stream": "event counts for\n   every time step of a sample", "take": fill("main_events.c")}
    return {
        "stream": "the levels of a\n   sample, which stay for all of its time steps",
        "take": fill("main_levels.c"),
    }


def sketch(net: IntegerNetwork) -> dict[str, object]:
    """Return how the Arduino sketch reads samples."""
    if net.levels is None:
        take = "if (!receive() || model_frame(&state, values) < 0) return;"
        return {"stream": "the event counts of every time step", "take": take}
    take = "if (step == 0) {\n      if (!receive()) return;\n      model_input(&state, values);\n    }\n"
    return {"stream": "the levels of a sample once", "take": take + "    model_tick(&state);"}


def readme(net: IntegerNetwork) -> dict[str, object]:
    """Return the README's text about the input."""
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
        "input": f"real numbers as 8-bit levels, round(value / {step:.9g}), from {low} to {high}",
        "first": "\nThe first layer multiplies weights by the levels of its input, once for each input.",
        "loop": loop,
    }


def recorded_inputs(net: IntegerNetwork, recorded: Tensor) -> str:
    """Return recorded inputs ``[T, B, *input]`` as constants, and the function that replays them."""
    if net.levels is not None:
        levels = net.levels(recorded).flatten(2).transpose(0, 1)  # [B, T, inputs]
        if bool((levels == levels[:, :1]).all()):
            levels = levels[:, :1]
        return fill("recorded_levels.c", frames=levels.shape[1], level=numbers(levels))
    counts = recorded.flatten(2).long().transpose(0, 1)
    index = torch.arange(net.inputs).expand_as(counts)
    events = index.flatten().repeat_interleave(counts.flatten())
    return fill(
        "recorded_events.c",
        count=numbers(counts.sum(-1)),
        # One more, so that a recording without events is valid C as well.
        event=numbers(torch.cat([events, events.new_zeros(1)])),
    )
