"""A member of a stack computes, learns and ends like the same network alone."""

import copy
import pickle
from math import log

import pytest
import torch
from torch.nn.functional import cross_entropy

import ultralif as ul
from ultralif.stack import Stack

OPTIONS = [
    ("UltraLIF", {}),
    ("LIF", {}),
    ("UltraLIF", {"eps": 0.5, "learn_eps": False}),
    ("UltraPLIF", {"eps": 2.0}),
    ("UltraDLIF", {}),
    ("UltraDPLIF", {}),
    ("PLIF", {}),
    ("FullPLIF", {}),
    ("AdaLIF", {}),
    ("DSpike", {}),
    ("DSpikePlus", {}),
    ("SoftLIF", {"parameter_shape": (8,)}),
    ("LIF", {"learn_slope": True, "surrogate_slope": 1.0}),
    ("UltraDLIF", {"centered": True}),
]


def networks(sizes=(6, 8, 3), readout="linear"):
    torch.manual_seed(1)
    return [ul.Network(sizes, kind, options, readout).double() for kind, options in OPTIONS]


pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("mode", [None, "soft", "hard", "tropical"])
@pytest.mark.parametrize(
    ("sizes", "readout"), [((6, 8, 3), "linear"), ((6, 8, 5, 3), "linear"), ((6, 8, 3), "spiking")]
)
def test_forward(sizes, readout, mode):
    members = (
        networks(sizes, readout)
        if sizes == (6, 8, 3) and readout == "linear"
        else [ul.Network(sizes, kind, {}, readout) for kind in ("LIF", "UltraLIF", "UltraDLIF", "LIF")]
    )
    x = 2 * torch.randn(4, 7, 6)
    stack = Stack(members)
    out = stack(x, mode)
    for place, i in enumerate(stack.order):
        if mode is not None:
            ul.set_mode(members[i], mode)
        alone = members[i].observe(x)
        torch.testing.assert_close(out.logits[place], alone.logits, rtol=1e-12, atol=1e-12)
        for mine, own in zip(out.rates, alone.rates, strict=True):
            torch.testing.assert_close(mine[:, place], own, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda members: pickle.loads(pickle.dumps(members))],  # noqa: S301 - our own
    ids=["copied", "pickled"],
)
def test_copies_are_stacked_as_what_they_are(copied):
    members = copied(networks())
    x = 2 * torch.randn(4, 7, 6)
    stack = Stack(members)
    logits = stack(x).logits
    for place, i in enumerate(stack.order):
        torch.testing.assert_close(logits[place], members[i](x), rtol=1e-12, atol=1e-12)


def test_members_keep_the_mode_that_they_had_when_stacked():
    members = [ul.Network((6, 8, 3), "UltraLIF") for _ in range(2)]
    x = 2 * torch.randn(4, 7, 6)
    stack = Stack(members)
    before = stack(x).logits
    ul.set_mode(members[0], "hard")
    assert torch.equal(stack(x).logits, before)


@pytest.mark.parametrize("sizes", [(6, 8, 3), (6, 8, 5, 3)])
def test_members_read_their_own_batches(sizes):
    kinds = ["LIF", "UltraLIF", "UltraDLIF", "LIF", "UltraDLIF", "UltraLIF"]
    readers = [1, 0, 1, 0, 0, 1]
    members = [ul.Network(sizes, kind) for kind in kinds]
    x = 2 * torch.randn(2, 4, 7, 6)
    stack = Stack(members, readers=readers)
    out = stack(x)
    for place, i in enumerate(stack.order):
        alone = members[i].observe(x[readers[i]])
        torch.testing.assert_close(out.logits[place], alone.logits, rtol=1e-12, atol=1e-12)
    labels = torch.arange(14).view(2, 7)
    assert stack.spread(labels).tolist() == [labels[readers[i]].tolist() for i in stack.order]
    assert Stack(members).spread(labels[0]).tolist() == [labels[0].tolist()] * 6


def steps(net, parameters, data, loss):
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for x, y in data:
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()


def test_training_gives_what_training_alone_gives():
    members = networks()
    alone = copy.deepcopy(members)
    data = [(2 * torch.randn(5, 16, 6), torch.randint(3, (16,))) for _ in range(25)]
    stack = Stack(members)
    steps(
        stack,
        stack.parameters(),
        data,
        lambda out, y: sum(cross_entropy(logits, y) for logits in out.logits),
    )
    for member, single in zip(stack.unstack(), alone, strict=True):
        steps(single, single.parameters(), data, cross_entropy)
        for name, value in single.state_dict().items():
            torch.testing.assert_close(member.state_dict()[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_a_member_that_learns_nothing_keeps_its_constants():
    members = [ul.Network((6, 8, 3), "LIF"), ul.Network((6, 8, 3), "PLIF")]
    stack = Stack(members)
    data = [(2 * torch.randn(5, 16, 6), torch.randint(3, (16,))) for _ in range(5)]
    steps(stack, stack.parameters(), data, lambda out, y: sum(cross_entropy(o, y) for o in out.logits))
    fixed, learned = stack.constants("leak")
    assert fixed.item() == 0.9 and learned.item() != pytest.approx(0.9, abs=1e-6)


def test_eps_speed_scales_the_steps_of_the_temperature():
    moved = []
    for speed in (1.0, 0.1, 4.0):
        torch.manual_seed(0)
        stack = Stack([ul.Network((6, 8, 3), "UltraLIF")], eps_speeds=[speed])
        data = [(2 * torch.randn(5, 16, 6), torch.randint(3, (16,)))]
        steps(stack, stack.parameters(), data, lambda out, y: cross_entropy(out.logits[0], y))
        (net,) = stack.unstack()
        moved.append(abs(net.neurons[0].log_eps.item() - log(0.2)))
    assert moved == pytest.approx([0.01, 0.001, 0.04], rel=1e-4)  # Adam's first step is the learning rate


def test_what_cannot_be_stacked_is_refused():
    with pytest.raises(ValueError, match="the same shape"):
        Stack([ul.Network((6, 8, 3)), ul.Network((6, 9, 3))])
    with pytest.raises(ValueError, match="at least one"):
        Stack([])
    with pytest.raises(ValueError, match="equally often"):
        Stack([ul.Network((6, 8, 3))] * 3, readers=[0, 1, 0])


def test_a_temperature_above_its_bound_may_only_fall():
    stack = Stack([ul.Network((6, 8, 3), "UltraLIF", {"eps": 0.5})] * 2)
    (raw,) = stack.neurons[0].parameters()
    for entry, part in stack.neurons[0]._split(raw.data):
        if entry.name == "eps":
            part.fill_(log(30.0))  # the bound is 20
    for sign in (1, -1):
        (grad,) = torch.autograd.grad(sign * stack.neurons[0].values().sum(), raw)
        for entry, part in stack.neurons[0]._split(grad):
            assert entry.name != "eps" or (part != 0) == (sign > 0)
