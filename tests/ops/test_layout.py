"""Any dense layout is read and written as it is: no copies, and the outputs keep it."""

import math

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import ultralif as ul
from ultralif import functional, ops

LAYOUTS = {
    "channels last": lambda x: (
        x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, x.shape[:2])
    ),
    "batch first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "batch last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
    "one number": lambda x: x[:1, :1, :1, :1, :1].expand_as(x),
    "a part": lambda x: torch.cat((x, x), 2)[:, :, : x.shape[2]],
}
SHAPES = {
    "a number": (),
    "one a channel": (4, 1, 1),
    "one a neuron": (4, 3, 5),
    "one a column": (5,),
    "with a gap": (4, 1, 5),
}


def leaves(layout: str, shape: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    current = torch.randn(6, 2, 4, 3, 5, dtype=torch.float64, generator=generator)
    eps = 0.5 + torch.rand(shape, dtype=torch.float64, generator=generator)
    return [LAYOUTS[layout](current).requires_grad_(), eps.requires_grad_()]


@pytest.mark.parametrize("function", ["ultralif", "ultradlif"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_layout_gives_the_same_numbers_and_is_kept(function, layout, shape):
    found = []
    for module in (ops, functional):
        inputs = leaves(layout, shape)
        extra = {"leak": 0.9} if function == "ultralif" else {}
        out, last = getattr(module, function)(inputs[0], eps=inputs[1], threshold=0.5, **extra)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
        grads = torch.autograd.grad([out, last], inputs, [weight, weight[0]])
        found.append((out, last, *grads))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)
    if layout in ("channels last", "batch first"):
        assert found[0][0].stride() == found[0][2].stride() == inputs[0].stride()


@pytest.mark.parametrize("axis", [-3, -2])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_neurons_are_coupled_along_any_axis(axis, shape):
    found = []
    for module in (ops, functional):
        inputs = leaves("batch first", shape)
        start = inputs[0][0].detach()
        out, last = module.ultradlif(inputs[0], start, eps=inputs[1], threshold=0.5, coupled_axis=axis)
        found.append((out, last, *torch.autograd.grad(out.square().sum() + last.sum(), inputs)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["UltraLIF", "LIF"])
def test_a_channels_last_network_copies_nothing(name):
    first, second = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last), nn.Conv2d(8, 4, 3)
    second = second.to(memory_format=torch.channels_last)
    neuron = ul.NEURONS[name]()
    x = torch.randn(12, 3, 9, 9).contiguous(memory_format=torch.channels_last)

    def step(between: nn.Module) -> None:
        spikes = between(first(x).unflatten(0, (4, 3))).flatten(0, 1)
        assert spikes.is_contiguous(memory_format=torch.channels_last)
        out = second(spikes)
        torch.autograd.grad(out, [first.weight, second.weight], torch.ones_like(out))

    def copies(between: nn.Module) -> int:
        """Count the copies of anything larger than the constants, such as those within convolutions."""
        step(between)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
            step(between)
        names = ("aten::copy_", "aten::clone", "aten::contiguous")
        sizes = [math.prod(e.input_shapes[0]) for e in trace.events() if e.name in names]
        return sum(size > 1 for size in sizes)

    assert copies(neuron) == copies(nn.ReLU())


@pytest.mark.parametrize("name", ["ultralif", "lif", "ultradlif"])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 1, 2)], ids=str)
def test_a_repeated_current_is_read_where_it_is(name, axis):
    """Strides of 0: constant currents, one current for all samples, and one number for a layer."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    shape = [1 if i in axes else n for i, n in enumerate((7, 3, 40))]
    current = torch.randn(shape, dtype=torch.float64).expand(7, 3, 40)
    constants = {"threshold": 0.5, **({"leak": 0.9} if name != "ultradlif" else {})}
    constants |= {"eps": 0.5} if name != "lif" else {}
    found = []
    for module in (ops, functional):
        x = current.detach().requires_grad_()
        spikes, _ = getattr(module, name)(x, **constants)
        found.append((spikes, *torch.autograd.grad(spikes.square().sum(), x)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        getattr(ops, name)(current, **constants)
    assert not {event.key for event in seen.key_averages()} & {"aten::copy_", "aten::clone"}
