"""A repeated call of a layer enters few functions, and the first call of a process imports little."""

import subprocess
import sys
import threading
from types import FrameType

import pytest
import torch

import ultralif as ul
from ultralif.ops.layout import contiguous_strides, like_strides

FIRST_CALL = """
import time
import torch
before = time.process_time()
import ultralif
from ultralif import nn
imported = time.process_time()
layer, current = nn.UltraLIF(), torch.zeros(2, 2, 4, requires_grad=True)
if warm:
    nn.LIF()(torch.zeros(1, 1, 1))  # builds the kernels, once for a machine
    raise SystemExit
begin = time.process_time()
layer(current)
print(imported - before, time.process_time() - begin)
"""


def entered(work):
    """Return the functions of ultralif that a call enters, in any thread."""
    found = []

    def see(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if event == "call" and "/ultralif/" in code.co_filename and not code.co_name.startswith("<"):
            found.append(code)

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {code.co_qualname for code in found}


@pytest.mark.parametrize("name", ["UltraLIF", "UltraPLIF", "UltraDLIF", "LIF", "AdaLIF"])
def test_a_repeated_call_enters_few_functions(name):
    layer, current = ul.nn.NEURONS[name](), torch.randn(10, 4, 64, requires_grad=True)
    for _ in range(2):
        layer(current).sum().backward()
    forward = entered(lambda: layer(current))
    out = layer(current)
    grad = torch.ones_like(out)
    backward = entered(lambda: out.backward(grad))
    assert 5 <= len(forward) <= 12, sorted(forward)
    assert 4 <= len(backward) <= 8, sorted(backward)


def test_the_first_call_of_a_process_is_quick():
    """In seconds of the processor: the import after torch's, and the first forward pass."""
    run = [sys.executable, "-c"]
    subprocess.run([*run, f"warm = True\n{FIRST_CALL}"], check=True)
    found = [
        subprocess.run([*run, f"warm = False\n{FIRST_CALL}"], check=True, capture_output=True, text=True)
        for _ in range(3)
    ]
    imports, calls = zip(*(map(float, one.stdout.split()) for one in found), strict=True)
    assert min(imports) <= 0.15 and min(calls) <= 0.05, (imports, calls)


def test_strides_are_those_of_empty_like():
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        size = torch.randint(1, 4, (4,), generator=generator).tolist()
        order = torch.randperm(4, generator=generator).tolist()
        x = torch.empty([2 * n for n in size])[tuple(slice(0, n) for n in size)].permute(order)
        if torch.rand((), generator=generator) < 0.5:
            x = x.contiguous()
        if torch.rand((), generator=generator) < 0.5:
            x = x[:1].expand(3, *x.shape[1:]).transpose(0, 2)
        assert like_strides(x.shape, x.stride()) == torch.empty_like(x).stride(), (x.shape, x.stride())
        assert contiguous_strides(x.shape) == torch.empty(x.shape).stride()


def test_the_header_is_that_of_the_rule():
    from ultralif.ops.cpu import build
    from ultralif.ops.rule import c_header

    assert build.SOURCE.with_name("rule.h").read_text() == c_header()
