"""Kernels against the definition, over random options, sizes, constants and memory layouts."""

import random
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import Tensor

from ops.op_cases import Case, Setting, compare, draw, run, spread
from ultralif import functional, ops
from ultralif.errors import InputError

CHOSEN = 100
"""Configurations of a seed."""
NEURONS = [name for name in ops.__all__ if name != "Backend"]
RANGES = {
    "eps": (0.1, 5.0),
    "leak": (0.5, 0.99),
    "threshold": (0.3, 1.2),
    "v_sat": (0.7, 2.0),
    "surrogate_slope": (2.0, 10.0),
    "sharpness": (1.5, 8.0),
}
"""Constants that kernels differentiate by."""
NUMBERS = {"adapt_strength": (0.05, 0.3), "adapt_decay": (0.5, 0.95), "v_reset": (-0.5, 0.25)}


def draw_case(rng: random.Random, setting: Setting) -> Case:
    """Draw a neuron and every keyword of its definition, from their types."""
    name = rng.choice(NEURONS)
    learned: dict[str, float] = {}
    fixed: dict[str, Any] = {}
    for keyword, kind in get_type_hints(getattr(functional, f"{name}_step")).items():
        parts = (kind, *get_args(kind))
        words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
        if keyword in ("current", "v", "state", "return"):
            continue
        if keyword == "coupled_axis":
            fixed[keyword] = -rng.randrange(1, len(setting.features) + 1)
        elif keyword in RANGES:
            if type(None) not in parts or rng.random() < 0.7:
                learned[keyword] = rng.uniform(*RANGES[keyword])
        elif keyword in NUMBERS:
            fixed[keyword] = rng.choice([0.0, rng.uniform(*NUMBERS[keyword])])
        elif words:
            fixed[keyword] = rng.choice(words)
        else:
            assert bool in parts, f"{name} has a new constant {keyword}: give it a range above"
            fixed[keyword] = rng.choice([False, True, *[None] * (type(None) in parts)])
    return Case(name, name, learned, fixed)


def draw_setting(rng: random.Random) -> Setting:
    time = rng.choice([1, 2, 3, 8, 9, rng.randrange(10, 70)])
    features = tuple(rng.choice([2, 3, 5, 16, 33, 129]) for _ in range(rng.choice([1, 1, 2, 3])))
    if torch.Size(features).numel() > 2000:
        features = features[:1]
    return Setting(time, rng.choice([1, 2, 5]), features, start=rng.random() < 0.4, rate=rng.random() < 0.3)


def laid_out(rng: random.Random, x: Tensor) -> Tensor:
    """Return the same numbers elsewhere in memory: other strides, an offset, unaligned, or negated lazily."""
    axes = list(range(x.dim()))
    kind = rng.randrange(7)
    if kind == 1:
        rng.shuffle(axes)
        return x.permute(axes).contiguous().permute([axes.index(axis) for axis in range(x.dim())])
    if kind == 2:
        steps = [rng.choice([1, 2, 3]) for _ in axes]
        wide = x.new_zeros([size * step for size, step in zip(x.shape, steps, strict=True)])
        view = wide[tuple(slice(None, None, step) for step in steps)]
    elif kind == 3:
        view = x.new_zeros(x.numel() + 5)[rng.randrange(1, 6) :][: x.numel()].view(x.shape)
    elif kind == 4:
        size = x.element_size()
        memory = bytearray((x.numel() + 1) * size)
        view = torch.frombuffer(memory, dtype=x.dtype, count=x.numel(), offset=rng.randrange(1, size))
        view = view.view(x.shape)
    elif kind == 5:
        return torch._neg_view(-x)
    else:
        return x
    return view.copy_(x)


def draw_tensors(rng: random.Random, case: Case, setting: Setting, dtype: torch.dtype) -> dict[str, Tensor]:
    drawn = draw(case, setting, dtype, seed=rng.randrange(1 << 30))
    for name, value in case.learned.items():
        shape = [rng.choice([1, size]) for size in setting.features][
            rng.randrange(len(setting.features) + 1) :
        ]
        drawn[name] = value * (1 + 0.05 * torch.rand(shape, dtype=drawn[name].dtype))
    current = drawn["current"]
    if case.name == "dspike" and not setting.start:
        current[0, ..., ::3] *= 1e-4  # around the lower end of the clipped curve
    if case.name != "ultradlif" or case.fixed["mode"] != "tropical":  # else ties would hang on rounding
        current *= rng.choice([0.3, 1.0, 1.0, 3.0])
        if rng.random() < 0.1:
            current = current.narrow(rng.randrange(current.dim()), 0, 1).expand_as(current)
    drawn["current"] = laid_out(rng, current)
    drawn["grad out"] = laid_out(rng, drawn["grad out"])
    return drawn


def is_as_near_as_the_definition(case: Case, setting: Setting, drawn: dict[str, Tensor]) -> bool:
    """Return whether the definition in float32 is half as far off: feedback can amplify rounding."""
    exact = run(case, setting, spread(case, setting, drawn), reference=True)
    plain, ours = (run(case, setting, drawn, reference=which) for which in (True, False))
    for name, found in ours.items():
        expected = exact[name].sum_to_size(found.shape)
        scale = max(exact[name].abs().sum_to_size(found.shape).max().item(), 1e-2)
        own = (plain[name] - expected).abs().max().item()
        if (found - expected).abs().max().item() > max(1e-4 * scale, 2 * own):
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_kernels_compute_the_definition(seed: int) -> None:
    """3,000 configurations in all: outputs and all gradients, against the definition in float64."""
    rng = random.Random(seed)  # noqa: S311 (it draws cases, not secrets)
    torch.manual_seed(seed)
    found, refused, chaotic = 0, 0, 0
    while found < CHOSEN:
        setting = draw_setting(rng)
        case = draw_case(rng, setting)
        ties = case.fixed.get("mode") == "tropical" and case.name == "ultradlif"  # float32 would break some
        dtype = torch.float64 if ties else rng.choice([torch.float32, torch.float32, torch.float64])
        drawn = draw_tensors(rng, case, setting, dtype)
        try:
            compare(case, setting, drawn, dtype, near=1e-4, least=1e-2)
        except InputError:
            refused += 1
            with pytest.raises(InputError):
                run(case, setting, drawn, reference=True)
        except AssertionError as error:
            if dtype == torch.float32 and is_as_near_as_the_definition(case, setting, drawn):
                chaotic += 1
                continue
            raise AssertionError(
                f"configuration {found + refused + chaotic} of seed {seed}: {case}, {setting}, {dtype}"
            ) from error
        else:
            found += 1
    assert refused < CHOSEN and chaotic <= CHOSEN // 50
