"""Measure the errors of the operators' spikes and gradients against their definition in float64.

    python benchmarks/gradient_error.py [--device cuda]

An error is the largest difference divided by the largest number in the exact tensor. For the temperature, it
is divided by the sum of the magnitudes of the added terms. Half precision is compared on the same rounded
currents; its error includes the rounding of its outputs, up to 1/256 for bfloat16 and 1/2048 for float16.
"""

import argparse

import torch

from ultralif import functional, ops

RULES = {"UltraLIF": ("ultralif", {"leak": 0.9}), "UltraDLIF": ("ultradlif", {})}


def errors(name: str, dtype: torch.dtype, time: int, eps: float, device: str) -> list[float]:
    """Return the errors of the spikes and of the gradients for the current and the temperature."""
    function, numbers = RULES[name]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(time, 4, 64, generator=generator).to(dtype).to(device)
    weight = torch.randn(time, 4, 64, generator=generator).to(dtype).to(device)
    current, given = x.clone().requires_grad_(), torch.tensor(eps, device=device, requires_grad=True)
    out, _ = getattr(ops, function)(current, eps=given, threshold=0.5, **numbers)
    found = (out, *torch.autograd.grad(out, [current, given], weight))
    exact, each = x.double().requires_grad_(), given.detach().double().expand(4, 64).clone().requires_grad_()
    ideal, _ = getattr(functional, function)(exact, eps=each, threshold=0.5, **numbers)
    wanted = (ideal, *torch.autograd.grad(ideal, [exact, each], weight.double()))
    pairs = zip(found[:2], wanted[:2], strict=True)
    largest = [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in pairs]
    return [*largest, ((found[2].double() - wanted[2].sum()).abs() / wanted[2].abs().sum()).item()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    print("| neuron | dtype | T | eps | spikes | d current | d eps |\n|---|---|---|---|---|---|---|")
    for name in RULES:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for time in (1, 30, 100, 1000) if dtype == torch.float32 else (30,):
                for eps in (0.1, 1.0, 20.0):
                    cells = " | ".join(f"{e:.1e}" for e in errors(name, dtype, time, eps, device))
                    print(f"| {name} | {str(dtype).removeprefix('torch.')} | {time} | {eps:g} | {cells} |")


if __name__ == "__main__":
    main()
