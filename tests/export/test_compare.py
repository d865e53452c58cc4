"""Every export is compared with the network before it is written; a difference is refused and named."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import ultralif as ul
from ultralif.errors import InputError
from ultralif.export import compare, quantize, to_nir, to_onnx, to_torch
from ultralif.export.compare import compare_integers, compared


def body(first=None, neuron=None) -> nn.Sequential:
    torch.manual_seed(1)
    first = first or nn.Linear(20, 32)
    with torch.no_grad():
        first.weight.mul_(3)
    return nn.Sequential(first, neuron or ul.LIF(), nn.Linear(32, 10))


class Scaled(nn.Linear):
    def forward(self, x):
        return functional.linear(x, -self.weight, self.bias)


class Standardised(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)


class Turned(nn.BatchNorm1d):
    def forward(self, x):
        return -super().forward(x)


class Shifted(nn.Dropout):
    def forward(self, x):
        return 2 * x - 1


class Negative(ul.LIF):
    def forward(self, x):
        return super().forward(-x)


class Between(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.body, self.change = body(), change

    def forward(self, x):
        return self.body[2](self.body[1](self.change(self.body[0](x))))


def written(h):
    h[..., :24] = 0
    return h


def view(h):
    h[..., :24].zero_()
    return h


def data(h):
    h.data.neg_()
    return h


def array(h):
    h.numpy()[...] *= -1
    return h


def hooked(layer, hook, before=False):
    net = body()
    (net[layer].register_forward_pre_hook if before else net[layer].register_forward_hook)(hook)
    return net


def patched():
    net = body()
    net[0].forward = lambda x: -functional.linear(x, net[0].weight, net[0].bias)
    return net


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.neuron, self.last = Standardised(1, 8, 3), ul.LIF(), nn.Linear(8 * 3 * 2, 10)

    def forward(self, x):
        h = self.conv(x.view(-1, 1, 5, 4))
        return self.last(self.neuron(h.view(*x.shape[:2], 8, 3, 2)).flatten(2))


class Branch(Between):
    def forward(self, x):
        h = self.body[0](x)
        return self.body[2](self.body[1](-h if x.sum() > 0 else h))


class Outer(Between):
    """The output is changed in a way that no recorded function shows."""

    def forward(self, x):
        out = self.body(x)
        out.numpy()[...] += 1
        return out


FOREIGN = {
    "a subclass of Linear": (
        lambda: body(Scaled(20, 32)),
        "layer '0' is Scaled, a Linear with its own forward",
    ),
    "a subclass of Conv2d": (Convolutional, "layer 'conv' is Standardised"),
    "a subclass of BatchNorm": (
        lambda: nn.Sequential(
            nn.Linear(20, 32), ul.nn.TimeDistributed(Turned(32)), ul.LIF(), nn.Linear(32, 3)
        ),
        "is Turned, a BatchNorm1d",
    ),
    "a subclass of Dropout": (
        lambda: nn.Sequential(nn.Linear(20, 32), Shifted(), ul.LIF(), nn.Linear(32, 3)),
        "layer '1' is Shifted",
    ),
    "a subclass of LIF": (lambda: body(neuron=Negative()), "layer '1' does not return"),
    "a forward that was replaced": (patched, "layer '0' has a forward that was replaced"),
    "a hook on Linear": (lambda: hooked(0, lambda m, i, o: -o), "layer '0' has a forward hook"),
    "a hook on neurons": (lambda: hooked(1, lambda m, i, o: 1 - o), "layer '1' has a forward hook"),
    "a hook before Linear": (
        lambda: hooked(0, lambda m, i: (1 - i[0],), True),
        "layer '0' has a forward hook",
    ),
    "an assignment": (lambda: Between(written), "in place after layer 'body.0'"),
    "a view": (lambda: Between(view), "in place"),
    "data": (lambda: Between(data), "in place"),
    "numpy": (lambda: Between(array), "layer 'body.1' does not receive"),
    "a branch": (lambda: Branch(None), "layer 'body.1' does not receive"),
    "the output": (lambda: Outer(None), "the network does not return the output of its last layer, 'body.2'"),
}


@pytest.mark.parametrize("case", FOREIGN)
@pytest.mark.parametrize("to", [to_nir, to_onnx, to_torch, quantize])
def test_another_network_is_refused_and_its_layer_named(tmp_path, to, case):
    make, message = FOREIGN[case]
    options = {"shape": (1, 5, 4)} if case == "a subclass of Conv2d" else {}
    arguments = (make().eval(),) if to is quantize else (make().eval(), tmp_path / "model")
    with pytest.raises(InputError, match=message):
        to(*arguments, **options)
    assert list(tmp_path.iterdir()) == []


class Other(ul.LIF):
    @classmethod
    def integrate(cls, current, *args, **options):
        return super().integrate(-current, *args, **options)


def test_a_neuron_with_its_own_formula_goes_to_onnx_only(tmp_path):
    net = body(neuron=Other())
    for write in (quantize, lambda net: to_nir(net, tmp_path / "model.nir")):
        with pytest.raises(InputError, match="changes 'integrate' of an ultralif neuron"):
            write(net)
    assert to_onnx(net, tmp_path / "model.onnx") < 1e-3


class LastAxis(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.neuron, self.last = nn.Linear(4, 4), ul.LIF(), nn.Linear(16, 10)

    def forward(self, x):
        return self.last(self.neuron(self.first(x)).flatten(2))


def test_linear_on_the_last_of_several_axes(tmp_path):
    for write in (quantize, lambda net, **options: to_nir(net, tmp_path / "model.nir", **options)):
        with pytest.raises(InputError, match="layer 'first' is a Linear on the last of several axes"):
            write(LastAxis(), shape=(4, 4))
    assert to_onnx(LastAxis(), tmp_path / "model.onnx", shape=(4, 4)) < 1e-3


def test_the_inputs_of_the_user_are_compared_too(tmp_path):
    net = Between(lambda h: h if h.abs().max() < 100 else -h)
    inputs = torch.full((4, 2, 20), 1000.0)
    quantize(net, timesteps=4)
    with pytest.raises(InputError, match=r"layer 'body.1' does not receive"):
        to_nir(net, tmp_path / "model.nir", inputs=inputs)
    with pytest.raises(InputError, match=r"inputs must be \[T, B, \*input\] with 20 values"):
        to_onnx(net, tmp_path / "model.onnx", inputs=torch.zeros(4, 2, 3))


@pytest.mark.parametrize("neuron", ["LIF", "UltraLIF", "UltraDLIF"])
@pytest.mark.parametrize("change", ["weight", "bias", "threshold", "shift"])
def test_integers_beyond_rounding_are_refused(neuron, change):
    net = body(neuron=getattr(ul, neuron)())
    integer = quantize(net, timesteps=6)
    graph = compared(net, None, "hard")
    compare_integers(net, graph, integer, "hard")
    nodes = list(integer.nodes)
    place = 2 if change == "threshold" else 1
    op = nodes[place].op
    if change == "threshold":
        op = replace(op, threshold=op.threshold * 3 + 10_000)
    elif change == "weight":
        op = replace(op, weight=-op.weight)
    elif change == "bias":
        op = replace(op, bias=op.bias + (2 / op.unit).long())
    else:
        op = replace(op, shift=op.shift + 1)
    nodes[place] = replace(nodes[place], op=op)
    with pytest.raises(InputError, match="more than rounding error"):
        compare_integers(net, graph, replace(integer, nodes=tuple(nodes)), "hard")


@pytest.mark.parametrize(("factor", "close"), [(1 + 1e-6, True), (1.01, False), (1.04, False)])
def test_a_layer_may_differ_by_rounding_only(factor, close):
    values = torch.linspace(-1, 1, 9, dtype=torch.float64)
    assert compare._close((values * factor).float(), values, 1) == close
