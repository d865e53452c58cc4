"""Compare the kernels of two source trees: CPU results bit by bit, sm_90 code instruction by instruction.

    python benchmarks/unchanged.py dump OLD/src old.pt     # a source tree, and the file for its results
    python benchmarks/unchanged.py dump src new.pt
    python benchmarks/unchanged.py compare old.pt new.pt
    python benchmarks/unchanged.py speed OLD/src src       # CPU seconds of one thread, in turns

``--only cpu`` or ``--only code`` skips the other half. Neither half needs a GPU. A case uses only options
that both trees have; where 0.2.0 had an option that was removed, it is set to the behaviour that was kept.
"""

import argparse
import hashlib
import inspect
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Case = tuple[str, dict[str, float], dict[str, Any]]
SOFT_HARD = ("soft", "hard")
RESETS = ("zero", "subtract", "none")
SURROGATES = ("sigmoid", "atan", "triangle")


def cases() -> Iterator[Case]:
    """Yield operators, each with its learned constants and its options."""
    ultra = {"eps": 0.5, "leak": 0.9, "threshold": 0.5}
    for mode, reset in product((*SOFT_HARD, "tropical"), (*RESETS, "saturate")):
        more = {"v_sat": 0.7} if reset == "saturate" else {}
        yield "ultralif", ultra | more, {"mode": mode, "reset": reset}
    yield "ultralif", ultra, {"mode": "soft", "detach_reset": True, "v_reset": -0.125}
    yield "ultralif", ultra, {"mode": "hard", "detach_reset": False, "v_reset": -0.125}
    for mode, reset, leak in product((*SOFT_HARD, "tropical"), RESETS, (False, True)):
        learned = ultra if leak else {"eps": 0.5, "threshold": 0.5}
        yield "ultradlif", learned, {"mode": mode, "reset": reset}
    yield "ultradlif", ultra, {"mode": "soft", "centered": True, "v_reset": -0.125}
    yield "ultradlif", ultra, {"mode": "hard", "detach_reset": False}
    lif = {"leak": 0.9, "threshold": 0.5}
    for mode, reset, surrogate in product(SOFT_HARD, RESETS, SURROGATES):
        yield "lif", lif, {"mode": mode, "reset": reset, "surrogate": surrogate}
    for mode, surrogate in product(SOFT_HARD, SURROGATES):
        given = {"mode": mode, "surrogate": surrogate}
        yield "lif", lif | {"surrogate_slope": 5.0}, given
        yield "adalif", lif, given | {"adapt_strength": 0.6, "adapt_decay": 0.7}
        yield "adalif", lif, given | {"adapt_strength": 0.6, "adapt_decay": 0.7, "reset": "subtract"}
    for mode, reset in product(SOFT_HARD, RESETS):
        yield "dspike", lif | {"sharpness": 4.0}, {"mode": mode, "reset": reset}
    for mode, reset in product(SOFT_HARD, (*RESETS, "saturate")):
        more = {"v_sat": 0.7} if reset == "saturate" else {}
        yield "softlif", ultra | more, {"mode": mode, "reset": reset}
    for mode, reset in product(SOFT_HARD, ("zero", "subtract")):
        given = {"mode": mode, "reset": reset, "delayed_reset": True}
        yield "ultralif", ultra, given
        yield "softlif", ultra, given
        yield "dspike", lif | {"sharpness": 4.0}, given
        yield "lif", lif, given | {"surrogate": "atan"}


def title(case: Case) -> str:
    """Return a description of a case."""
    name, learned, given = case
    return " ".join([name, *learned, *(f"{key}={value}" for key, value in given.items())])


def operator(case: Case) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return a case's operator, and its options as the imported tree names them."""
    from ultralif import functional, ops

    name, learned, given = case
    known = inspect.signature(getattr(functional, f"{name}_step")).parameters
    kept = {"adapt_late": True, "scaled_surrogate": True}
    if "surrogate_slope" not in learned:
        kept["surrogate_slope"] = 2.0
    return getattr(ops, name), given | {word: value for word, value in kept.items() if word in known}


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Draw random numbers that do not depend on the dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


LAYERS = {
    "plain": {"shape": (12, 3, 130)},
    "one": {"shape": (1, 2, 33), "start": True},
    "each": {"shape": (7, 2, 3, 32), "constants": (32,), "start": True, "last": True},
    "rate": {"shape": (9, 4, 2, 16), "constants": (2, 1), "rate": True},
    "batch first": {"shape": (5, 4, 40), "swapped": True},
}
"""Input shape ``[T, B, *features]``, shape of the constants, and whether a state and gradient are given."""


def integrate(case: Case, layer: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    """Return spikes, last state and all gradients."""
    from ultralif.functional import AdaptiveState, compute_dtype

    function, given = operator(case)
    shape, wide = layer["shape"], compute_dtype(dtype)
    current = normal(*shape, dtype=dtype, seed=1)
    if layer.get("swapped"):
        current = normal(shape[1], shape[0], *shape[2:], dtype=dtype, seed=1).transpose(0, 1)
    size = layer.get("constants", ())
    spread = torch.linspace(0, 1, max(1, int(torch.Size(size).numel())), dtype=torch.float64).reshape(size)
    constants = {
        key: (value * (1 + 0.1 * spread)).to(wide).requires_grad_() for key, value in case[1].items()
    }
    leaves = [current.requires_grad_(), *constants.values()]
    state = None
    if layer.get("start"):
        count = 3 if case[0] == "adalif" else 1
        parts = [normal(*shape[1:], dtype=wide, seed=5 + i).abs().requires_grad_() for i in range(count)]
        leaves += parts
        state = AdaptiveState(*parts) if count == 3 else parts[0]
    out, last = function(current, state, layer.get("rate", False), **constants, **given)
    ends = [last] if isinstance(last, Tensor) else list(last)
    chosen = [out, *ends] if layer.get("last") else [out]
    chosen = [tensor for tensor in chosen if tensor.requires_grad]
    weights = [normal(*tensor.shape, dtype=tensor.dtype, seed=9 + i) for i, tensor in enumerate(chosen)]
    grads = torch.autograd.grad(chosen, leaves, weights, allow_unused=True)
    return [tensor.detach().contiguous() for tensor in (out, *ends, *grads) if tensor is not None]


def kept_options(name: str) -> dict[str, Any]:
    """Return the options with which a neuron computes the same in both trees."""
    import ultralif as ul

    known = ul.nn.NEURONS[name].__signature__.parameters
    kept = {"surrogate": "atan", "surrogate_slope": 2.0, "adapt_late": True, "scaled_surrogate": True}
    return {word: value for word, value in kept.items() if word in known}


def modules(dtype: torch.dtype) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the results of every neuron's module, called twice to include a repeated call."""
    import ultralif as ul

    for name, shape, learn in product(sorted(ul.nn.NEURONS), (None, (20,)), (False, True)):
        options = kept_options(name) | {"parameter_shape": shape, "learn_threshold": learn}
        if learn and "surrogate" in options:
            options["learn_slope"] = True
        layer = ul.nn.NEURONS[name](**options).to(dtype)
        found = []
        for call in (layer, layer, layer.rate):
            current = normal(10, 3, 20, dtype=dtype, seed=3).requires_grad_()
            out = call(current)
            leaves = [current, *(parameter for _, parameter in sorted(layer.named_parameters()))]
            grads = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
            found += [out.detach(), *(grad for grad in grads if grad is not None)]
        yield f"{name} {shape} {learn}", found


def results() -> dict[str, list[Tensor]]:
    """Return all results on the CPU."""
    torch.set_num_threads(2)
    found = {}
    for case, (name, layer) in product(cases(), LAYERS.items()):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            found[f"{title(case)}, {name}, {dtype}"] = integrate(case, layer, dtype)
    for case in cases():
        if case[0] == "ultralif" and "reset" in case[2]:
            for dtype in (torch.float32, torch.float64):
                layer = {"shape": (8192, 1, 4), "start": True, "last": True}
                found[f"{title(case)}, long, {dtype}"] = integrate(case, layer, dtype)
    for dtype in (torch.float32, torch.float64):
        found |= {f"module {name}, {dtype}": tensors for name, tensors in modules(dtype)}
    return found


CODE_LAYERS = {
    "layer": {"shape": (30, 8, 64)},
    "each": {"shape": (7, 2, 3, 32), "constants": (32,), "start": True, "last": True},
    "rate": {"shape": (9, 4, 2, 64), "constants": (2, 1), "rate": True},
}
FEW_LAYERS = {
    "many": {"shape": (30, 128, 512)},
    "wide": {"shape": (30, 128, 4096)},
    "parts": {"shape": (100, 2, 5000), "start": True, "last": True},
    "uneven": {"shape": (31, 2, 33)},
    "left": {"shape": (4, 2, 3, 40), "constants": (3, 1)},
    "one step": {"shape": (1, 128, 64)},
}
CHUNKED = {"chunks": {"shape": (4096, 1, 8)}, "short": {"shape": (5000, 16, 64), "start": True, "last": True}}


def compile_all() -> dict[str, list[str]]:
    """Return the instructions of each kernel launched by the cases, compiled for sm_90."""
    from disassembly import compiled

    import ultralif as ul

    found: dict[str, list[str]] = {}

    def record(name: str, call: Callable[[], Any]) -> None:
        with compiled() as kernels:
            call()
        for i, kernel in enumerate(kernels):
            found[f"{name}, kernel {i}"] = kernel.listing

    seen = set()
    for case in cases():
        plain = case[0] not in seen
        layers = (
            CODE_LAYERS
            if plain or case[2].get("reset", "zero") == "zero"
            else {"layer": CODE_LAYERS["layer"]}
        )
        layers = layers | FEW_LAYERS if plain else layers
        if case[0] == "ultralif" and case[2].get("reset") in ("none", "saturate"):
            layers = layers | CHUNKED
        seen.add(case[0])
        for name, layer in layers.items():
            for dtype in (torch.float32, torch.bfloat16) if plain and name == "layer" else (torch.float32,):
                record(
                    f"{title(case)}, {name}, {dtype}", lambda c=case, one=layer, d=dtype: integrate(c, one, d)
                )
    for name in ("UltraLIF", "UltraDPLIF", "DSpike", "PLIF", "AdaLIF"):
        layer = ul.nn.NEURONS[name](parameter_shape=(64,))
        current = torch.zeros(30, 8, 64, requires_grad=True)
        record(f"module {name}", lambda n=layer, x=current: n(x).sum().backward())
    for name, steps in product(("constants of neurons", "rows"), (1, 7)):
        record(f"stack, {name}, T={steps}", lambda n=name, t=steps: stack(t, n == "rows"))
    for call in (images, frames, readout, rows, adam):
        record(call.__name__, call)
    return found


STACKED = {
    "UltraLIF": {},
    "UltraPLIF": {},
    "UltraDLIF": {},
    "UltraDPLIF": {},
    "PLIF": {},
    "AdaLIF": {},
    "DSpike": {},
    "SoftLIF": {"parameter_shape": (64,)},
}


def stack(steps: int, shared: bool) -> None:
    """Launch a stack's neurons; with only shared constants, one kernel decodes them for all programs."""
    import ultralif as ul

    names = [name for name, options in STACKED.items() if not (shared and options)]
    members = [ul.Network((6, 64, 3), name, STACKED[name]) for name in names]
    _module("ultralif.stack", "ultralif").Stack(members)(torch.zeros(steps, 3, 6)).logits.sum().backward()


def readout() -> None:
    """Launch a stack's readout and loss."""
    for batch, members, neurons, classes in ((130, 2, 64, 10), (37, 6, 100, 35)):
        sizes = ((batch, members, neurons), (members, classes, neurons), (members, classes))
        given = [torch.zeros(size, requires_grad=True) for size in sizes]
        labels = torch.zeros(1, batch, dtype=torch.int64)
        _fused_step().readout_loss(*given, labels, torch.zeros(members), 0.1)


def rows() -> None:
    """Launch the sum over rows."""
    _fused_step().sum_rows(torch.zeros(2100, 65), torch.zeros(65))


def adam() -> None:
    """Launch Adam."""
    sides = [[torch.zeros(size) for size in ((3000,), (5, 7), (1,))] for _ in range(4)]
    rate = torch.tensor(0.01)
    _fused_step().adam(*sides, torch.ones(()), [rate] * 3, [0.02, 0.02, 0.0])


def _fused_step() -> Any:
    return _module("ultralif.stack.fused_step", "ultralif.ops.step")


def images() -> None:
    """Launch the image encoder."""
    encode = _encoder()
    pixels = torch.zeros(6, 1, 10, 10, dtype=torch.uint8)
    where = pixels, torch.arange(6), torch.zeros(1, dtype=torch.int64), torch.tensor([7])
    for crop, draws in ((0, True), (4, True), (0, False)):
        encode.encode_images(
            torch.empty(8, 6, 100), *where, torch.ones(1), torch.ones(1), draws=draws, crop=crop
        )


def frames() -> None:
    """Launch the event encoder."""
    whole, counts = torch.zeros(6, dtype=torch.int64), torch.zeros(6, dtype=torch.uint8)
    place = torch.zeros(1, dtype=torch.int64)
    _encoder().fill_frames(torch.empty(8, 2, 100), whole, whole.int(), counts, whole, place)


def _encoder() -> Any:
    return _module("ultralif.ops.triton.encode", "ultralif.ops.encode")


def _module(now: str, before: str) -> Any:
    """Import a module by its current name or its name in 0.2.0."""
    try:
        return import_module(now)
    except ModuleNotFoundError:
        return import_module(before)


def dump(tree: str, path: str, only: str | None) -> None:
    """Write a tree's results and compiled code."""
    sys.path[:0] = [tree, str(Path(__file__).parent)]
    with ExitStack() as stack:
        if only != "cpu":
            os.environ["TRITON_CACHE_DIR"] = stack.enter_context(tempfile.TemporaryDirectory())
        import ultralif

        home = Path(ultralif.__file__).resolve()
        if not home.is_relative_to(Path(tree).resolve()):
            raise SystemExit(f"imported {home} in place of {tree}; unset PYTHONPATH")
        found: dict[str, Any] = {}
        if only != "code":
            found |= results()
        if only != "cpu":
            found |= compile_all()
        torch.save(found, path)
    print(f"{len(found)} entries written to {path}")


def compare(first: str, second: str) -> None:
    """Print how many entries are equal, and name the others."""
    old, new = (torch.load(path) for path in (first, second))
    for kind, chosen in (("CPU results", Tensor), ("kernels", str)):
        names = [name for name in old if old[name] and isinstance(old[name][0], chosen)]
        shared = [name for name in names if name in new]
        differ = [name for name in shared if not _same(old[name], new[name])]
        gone = len(names) - len(shared)
        print(f"{kind}: {len(shared)} compared, {len(differ)} differ, {gone} only in the first")
        if kind == "kernels":
            codes = {hashlib.sha256("\n".join(old[name]).encode()).hexdigest() for name in shared}
            total = sum(len(old[name]) for name in shared)
            print(f"  {len(codes)} different kernels, {total} instructions")
        for name in differ:
            print(f"  {name}: {_difference(old[name], new[name])}")


def _same(a: list[Any], b: list[Any]) -> bool:
    if isinstance(a[0], str):  # a return instruction names its kernel
        return [line.split("`(")[0] for line in a] == [line.split("`(")[0] for line in b]
    if len(a) != len(b):
        return False
    return all(
        x.dtype == y.dtype and x.shape == y.shape and torch.equal(_bits(x), _bits(y))
        for x, y in zip(a, b, strict=True)
    )


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8) if x.dim() else x.reshape(1).view(torch.uint8)


def _difference(a: list[Any], b: list[Any]) -> str:
    if isinstance(a[0], str) or len(a) != len(b):
        return f"{len(a)} and {len(b)} lines, {sum(x != y for x, y in zip(a, b, strict=False))} differ"
    return ", ".join(
        f"{i}: {(x.double() - y.double()).abs().max().item() if x.numel() else 0:.3g}"
        for i, (x, y) in enumerate(zip(a, b, strict=True))
        if x.shape != y.shape or not torch.equal(_bits(x), _bits(y))
    )


SIZES = {"T30 B16 N64": (30, 16, 64), "T30 B128 N1024": (30, 128, 1024)}
SPEEDS = ("UltraLIF", "UltraPLIF", "UltraDLIF", "UltraDPLIF", "LIF", "PLIF", "AdaLIF", "DSpike", "SoftLIF")
TURNS = 15


def serve(tree: str) -> None:
    """Measure in a separate process: for each line with a neuron and a size, print two CPU times."""
    sys.path.insert(0, tree)
    import ultralif as ul

    torch.set_num_threads(1)
    layers: dict[str, Any] = {}
    for line in sys.stdin:
        name, size = line.strip().split(": ")
        layer = layers.setdefault(name, ul.nn.NEURONS[name](**kept_options(name)))
        current = normal(*SIZES[size]).requires_grad_()
        grad = torch.ones_like(current)
        spent = [0.0, 0.0]
        for _ in range(1 + 8_000_000 // current.numel()):
            begin = time.process_time()
            out = layer(current)
            middle = time.process_time()
            out.backward(grad)
            spent[0] += middle - begin
            spent[1] += time.process_time() - middle
        print(*spent, flush=True)


def speed(trees: Sequence[str]) -> None:
    """Print how much CPU time the second tree takes, as a multiple of the first one's."""
    command = [sys.executable, __file__, "serve"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    servers = [subprocess.Popen([*command, tree], **pipes) for tree in trees]
    print("CPU time of the second tree over the first, medians of", TURNS, "turns: forward, backward")
    for size, name in product(SIZES, SPEEDS):
        taken = []
        for turn in range(-1, TURNS):  # the first one warms up
            spent = {}
            for i in (0, 1) if turn % 2 else (1, 0):
                servers[i].stdin.write(f"{name}: {size}\n")
                servers[i].stdin.flush()
                spent[i] = [float(word) for word in servers[i].stdout.readline().split()]
            taken.append([new / old for old, new in zip(spent[0], spent[1], strict=True)])
        ratios = [statistics.median(part) for part in zip(*taken[1:], strict=True)]
        print(f"{size:15} {name:11} {ratios[0]:.2f}  {ratios[1]:.2f}", flush=True)
    for server in servers:
        server.stdin.close()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("action", choices=("dump", "compare", "speed", "serve"))
    parser.add_argument("first", help="a source tree, or a file")
    parser.add_argument("second", nargs="?", help="a file, or a source tree")
    parser.add_argument("--only", choices=("cpu", "code"))
    given = parser.parse_args()
    if given.action == "compare":
        compare(given.first, given.second)
    elif given.action == "speed":
        speed((given.first, given.second))
    elif given.action == "serve":
        serve(given.first)
    else:
        dump(given.first, given.second, given.only)


if __name__ == "__main__":
    main()
