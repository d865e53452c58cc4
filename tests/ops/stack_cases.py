"""A stack's neurons, readout, loss and Adam by kernels, against PyTorch's operators."""

from unittest.mock import patch

import torch
from torch.nn.functional import cross_entropy

import ultralif as ul
from ultralif.stack import Stack
from ultralif.stack.fused_step import adam, readout_loss, sum_rows
from ultralif.training import losses

MEMBERS = [
    ("UltraLIF", {}),
    ("LIF", {}),
    ("UltraLIF", {"eps": 0.5, "learn_eps": False}),
    ("UltraPLIF", {"eps": 20.0, "eps_range": (0.1, 20.0)}),
    ("UltraDLIF", {}),
    ("UltraDPLIF", {}),
    ("PLIF", {}),
    ("FullPLIF", {}),
    ("AdaLIF", {}),
    ("DSpike", {}),
    ("DSpikePlus", {"learn_threshold": True}),
    ("SoftLIF", {"parameter_shape": (64,)}),
    ("LIF", {"learn_slope": True, "surrogate_slope": 1.0}),
    ("LIF", {"surrogate": "atan", "leak": 0.5}),
    ("LIF", {"surrogate": "atan", "leak": 0.8, "surrogate_slope": 2.0}),
]
"""Fixed and learned constants in one group, one for each neuron, and at a bound.

The last group learns nothing, and its members have constants of their own.
"""


def check_groups(time, device="cpu"):
    """One call for all kinds is what each kind's own definition gives, forward and backward.

    If a member has constants for each neuron, the kernels decode all of them; else they are given rows.
    """
    _check_groups(time, device, MEMBERS)
    _check_groups(time, device, [member for member in MEMBERS if "parameter_shape" not in member[1]])


def _check_groups(time, device, given):
    torch.manual_seed(0)
    speeds = [1 + i / 10 for i in range(len(given))]
    members = [ul.Network((6, 64, 3), neuron, options) for neuron, options in given]
    stack = Stack(members, speeds).to(device)
    stack.assign("eps", stack.order.index(2), 0.7)
    x = torch.randn(time, 3, 6, device=device)
    found = []
    for can_be_fused in (True, False):
        for neurons in stack.neurons:
            neurons.can_be_fused = can_be_fused
            for group in neurons.groups:
                for neuron in group:
                    neuron.backend = "auto" if can_be_fused else "reference"
        out = stack(x)
        loss = out.logits.square().sum() + out.rates[0].square().sum()
        grads = torch.autograd.grad(loss, list(stack.parameters()))
        found.append([out.logits, out.rates[0], *grads])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)
    learned = stack.neurons[0].rows[:, 0] != 0
    assert found[0][-1][~learned].count_nonzero() == 0


def check_readout(device="cpu"):
    for batch, members, neurons, classes, batches, smoothing in (
        (130, 2, 64, 10, 1, 0.0),
        (37, 6, 100, 35, 2, 0.1),
    ):
        draw = torch.Generator().manual_seed(0)
        sizes = ((batch, members, neurons), (members, classes, neurons), (members, classes), (members,))
        *given, sparsity = (torch.rand(size, generator=draw).to(device) for size in sizes)
        labels = torch.randint(classes, (batches, batch), generator=draw).to(device)
        rates, weight, bias = (part.requires_grad_() for part in given)
        scores = torch.baddbmm(bias.unsqueeze(1), rates.transpose(0, 1), weight.mT)
        own = labels.repeat_interleave(members // batches, 0)
        entropy = cross_entropy(scores.mT, own, reduction="none", label_smoothing=smoothing)
        rate = rates.mean((0, 2))
        loss = entropy.mean(1) + sparsity * rate
        theirs = [loss, (scores.argmax(2) == own).sum(1).float(), rate]
        ones = torch.ones(members, device=device)
        ours = readout_loss(rates, weight, bias, labels, sparsity, smoothing, ones)
        torch.testing.assert_close(list(ours), theirs, rtol=1e-5, atol=1e-5)
        share = torch.rand(members, generator=draw).to(device)
        for given in (ones, share, ones):
            grads = [
                torch.autograd.grad(each, (rates, weight, bias), given, retain_graph=True)
                for each in (ours[0], loss)
            ]
            torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-7)


def check_sum(device="cpu"):
    for rows, columns in ((3, 5), (200, 130), (2100, 65)):
        x, out = torch.randn(rows, columns, device=device), torch.zeros(columns, device=device)
        sum_rows(x, out)
        torch.testing.assert_close(out, x.double().sum(0).float(), rtol=1e-5, atol=1e-4)


def check_adam(device="cpu"):
    """The same steps as torch's, and the same moments, for two groups with rates and decays of their own."""
    draw = torch.Generator().manual_seed(0)
    sizes = ((3000,), (5, 7), (1,))
    sides = [
        [torch.randn(size, generator=draw.manual_seed(1)).to(device) for size in sizes] for _ in range(2)
    ]
    first, second = ([[torch.zeros_like(x) for x in sides[0]] for _ in range(2)] for _ in range(2))
    steps, rate = torch.zeros((), device=device), torch.tensor(0.01, device=device)
    for _ in range(5):
        grads = [torch.randn(size, generator=draw).to(device) for size in sizes]
        steps += 1
        adam(sides[0], grads, first[0], first[1], steps, [rate, rate, 10 * rate], [0.02, 0.02, 0.0])
        for some, speed, decay in ((slice(2), 0.01, 0.02), (slice(2, 3), 0.1, 0.0)):
            columns = [column[some] for column in (sides[1], grads, *second)]
            torch._fused_adamw_(
                *columns, [], [steps] * len(columns[0]), lr=speed, beta1=0.9, beta2=0.999, weight_decay=decay,
                eps=1e-8, amsgrad=False, maximize=False,
            )  # fmt: skip
    torch.testing.assert_close(
        [*sides[0], *first[0], *first[1]], [*sides[1], *second[0], *second[1]], rtol=1e-5, atol=1e-7
    )


def check_step(device="cpu"):
    """Losses, hits, rates and gradients of members that read two batches are those of PyTorch's operators."""
    torch.manual_seed(0)
    names = ("UltraLIF", "DSpike", "UltraDLIF", "LIF") * 2
    members = [ul.Network((6, 64, 3), name) for name in names]
    stack = Stack(members, readers=[0] * 4 + [1] * 4).to(device)
    configs = [ul.RunConfig(neuron=name, sparsity=0.1 * i) for i, name in enumerate(names)]
    objective = losses.Objective.of(configs, stack.weights[0])
    x, labels = torch.randn(2, 2, 5, 6, device=device), torch.randint(3, (2, 5), device=device)
    ours = losses.member_losses(stack, x, labels, objective, None)
    assert losses.can_be_fused(stack, x, labels, objective)
    grads = torch.autograd.grad(ours.loss, list(stack.parameters()), objective.ones)
    with patch.object(losses, "can_be_fused", lambda *_: False):
        theirs = losses.member_losses(stack, x, labels, objective, None)
    torch.testing.assert_close(list(ours), [part.float() for part in theirs], rtol=1e-5, atol=1e-5)
    others = torch.autograd.grad(theirs.loss, list(stack.parameters()), objective.ones)
    torch.testing.assert_close(grads, others, rtol=1e-4, atol=1e-6)
