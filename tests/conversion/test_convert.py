"""`ul.convert`: networks of other libraries, compared with those libraries spike by spike."""

import importlib.util
import pickle
import sys
import types
import warnings

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.conversion import SpikeMismatch, convert, with_lif
from ultralif.conversion.check import _compare_output
from ultralif.conversion.neurons import SnnTorchNeuron, SpikingJellyNeuron
from ultralif.errors import JobError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    snn = pytest.importorskip("snntorch")
    norse = pytest.importorskip("norse.torch")
    sj = pytest.importorskip("spikingjelly.activation_based")
    from snntorch import surrogate
    from spikingjelly.activation_based import functional, layer, neuron
    from spikingjelly.activation_based import surrogate as sj_surrogate

STEPS, BATCH = 30, 4


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def x() -> Tensor:
    return torch.rand(STEPS, BATCH, 12, generator=torch.Generator().manual_seed(1))


def linear(inputs: int, outputs: int, gain: float = 3.0) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    made.weight.data.mul_(gain)
    return made


def run_steps(net: nn.Module, x: Tensor) -> Tensor:
    """Run a network of one step over a sequence; the first output is the spikes."""
    outs = []
    for frame in x:
        out = net(frame)
        outs.append(out[0] if isinstance(out, tuple) else out)
    return torch.stack(outs)


def fires(spikes: Tensor) -> bool:
    return 0.005 < float(spikes.detach().mean()) < 0.9


KINDS = {
    "Leaky": {"beta": 0.9},
    "Synaptic": {"alpha": 0.7, "beta": 0.8},
    "Lapicque": {"beta": 0.9},
    "RLeaky": {"beta": 0.9, "linear_features": 16},
    "RLeaky one to one": {"beta": 0.9, "all_to_all": False, "V": 0.4},
    "RSynaptic": {"alpha": 0.7, "beta": 0.8, "linear_features": 16},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reset", ["subtract", "zero", "none"])
@pytest.mark.parametrize("delay", [True, False])
@pytest.mark.parametrize("learned", [False, True])
def test_snntorch_neurons(kind: str, reset: str, delay: bool, learned: bool, x: Tensor) -> None:
    if not delay and (kind == "Lapicque" or kind == "RSynaptic"):
        pytest.skip("it has no reset_delay that works")
    options = dict(KINDS[kind], reset_mechanism=reset, init_hidden=True)
    options |= {} if kind == "Lapicque" else {"reset_delay": delay}
    options |= {"learn_beta": True, "learn_threshold": True} if learned else {}
    net = nn.Sequential(
        linear(12, 16),
        getattr(snn, kind.split()[0])(**options),
        linear(16, 8, 8.0),
        snn.Leaky(beta=0.5, init_hidden=True),
    )
    ours = convert(net, check=x)
    spikes = ours(x)
    assert isinstance(ours, nn.Sequential)
    assert torch.equal(spikes, run_steps(net, x))
    assert fires(spikes)
    if learned and kind != "Lapicque":
        spikes.sum().backward()
        names = [name for name, parameter in ours.named_parameters() if parameter.grad is not None]
        assert any("beta" in name for name in names) and any("limit" in name for name in names)


@pytest.mark.parametrize("per_neuron", [False, True])
def test_constants_per_neuron(per_neuron: bool, x: Tensor) -> None:
    beta = torch.linspace(0.5, 0.95, 16) if per_neuron else 0.8
    threshold = torch.linspace(0.5, 1.5, 16) if per_neuron else 1.0
    net = nn.Sequential(linear(12, 16), snn.Leaky(beta=beta, threshold=threshold, init_hidden=True))
    assert fires(convert(net, check=x)(x))


@pytest.mark.parametrize(
    "given", [{"R": 5.1, "C": 3, "time_step": 0.5}, {"R": 2, "C": 3}, {"beta": 0.8, "C": 2}]
)
def test_integers_in_a_circuit(given: dict[str, float], x: Tensor) -> None:
    """Lapicque takes integers beside floats, and one number or a tensor of one."""
    net = nn.Sequential(linear(12, 16, 12.0), snn.Lapicque(**given, reset_mechanism="zero", init_hidden=True))
    assert fires(convert(net, check=x, exact=True)(x))
    one = snn.Lapicque(beta=torch.tensor([0.8]), init_hidden=True)
    assert fires(convert(nn.Sequential(linear(12, 16, 12.0), one), check=x, exact=True)(x))


class Tutorial(nn.Module):
    """A network as snnTorch's tutorials write it: a static image, a loop over time."""

    def __init__(self, reset: str, steps: int = 10) -> None:
        super().__init__()
        self.fc1, self.lif1 = linear(12, 20), snn.Leaky(beta=0.95, reset_mechanism=reset)
        self.fc2, self.lif2 = linear(20, 5), snn.Leaky(beta=0.95, reset_mechanism=reset)
        self.steps = steps

    def forward(self, x):
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spk2_rec, mem2_rec = [], []
        for _ in range(self.steps):
            cur1 = self.fc1(x)
            spk1, mem1 = self.lif1(cur1, mem1)
            cur2 = self.fc2(spk1)
            spk2, mem2 = self.lif2(cur2, mem2)
            spk2_rec.append(spk2)
            mem2_rec.append(mem2)
        return torch.stack(spk2_rec, dim=0), torch.stack(mem2_rec, dim=0)


@pytest.mark.parametrize("reset", ["subtract", "zero", "none"])
def test_a_tutorial_of_snntorch(x: Tensor, reset: str) -> None:
    net = Tutorial(reset)
    ours = convert(net, check=x[0])
    spikes, membranes = ours(x[0])
    expected = net(x[0])
    assert torch.equal(spikes, expected[0]) and fires(spikes)
    torch.testing.assert_close(membranes, expected[1])
    membranes.sum().backward()
    assert torch.equal(convert(net)(x[0])[0], expected[0])


def test_synapses_of_a_static_image_are_computed_once(x: Tensor) -> None:
    ours, shapes = convert(Tutorial("subtract"), check=x[0]), []
    ours.fc1.register_forward_hook(lambda module, given, out: shapes.append(out.shape))
    assert fires(ours(x[0])[0]) and shapes == [(BATCH, 20)]


class Frames(nn.Module):
    """A convolutional network that loops over the frames of its input, with functions between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lif1 = nn.Conv2d(2, 4, 3, padding=1), snn.Leaky(beta=0.5)
        self.conv.weight.data.mul_(3)
        self.fc, self.lif2 = linear(4 * 16, 5), snn.Synaptic(alpha=0.5, beta=0.9, reset_mechanism="zero")

    def forward(self, x):
        mem1, (syn2, mem2) = self.lif1.reset_mem(), self.lif2.reset_mem()
        rec, count = [], 0
        for step in range(x.size(0)):
            pooled = nn.functional.max_pool2d(self.conv(x[step]), 2)
            spk1, mem1 = self.lif1(pooled, mem1)
            spk2, syn2, mem2 = self.lif2(self.fc(spk1.view(x.size(1), -1)), syn2, mem2)
            rec.append(spk2)
            count = count + spk2
        return torch.stack(rec), count


def test_a_loop_over_frames() -> None:
    frames = (torch.rand(9, 3, 2, 8, 8) > 0.5).float()
    net = Frames()
    ours = convert(net, check=frames)
    spikes, count = ours(frames)
    assert torch.equal(spikes, net(frames)[0]) and torch.equal(count, spikes.sum(0)) and fires(spikes)


class BatchFirst(nn.Module):
    """A loop over the second axis of its input, whose outputs are stacked there too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.lif = linear(12, 6), nn.BatchNorm1d(6), snn.Leaky(beta=0.9)

    def forward(self, x):
        mem, rec = self.lif.init_leaky(), []
        for t in range(x.shape[1]):
            spk, mem = self.lif(self.norm(self.fc(x[:, t])), mem)
            rec.append(spk)
        return torch.stack(rec, dim=1)


def test_a_loop_over_the_second_axis(x: Tensor) -> None:
    net, x = BatchFirst().eval(), x.transpose(0, 1)
    ours = convert(net, check=x)
    more = torch.rand(7, 11, 12)
    assert torch.equal(ours(more), net(more)) and fires(ours(more))


class Flattening(nn.Module):
    """A tutorial's view with the batch size, before a loop that it writes for one image."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.lif = linear(12, 6), snn.Leaky(beta=0.9)

    def forward(self, x):
        x, mem, rec = x.view(x.size(0), -1), self.lif.init_leaky(), []
        for _ in range(5):
            spk, mem = self.lif(self.fc(x), mem)
            rec.append(spk)
        return torch.stack(rec)


def test_another_batch_size_than_that_of_the_example() -> None:
    net = Flattening()
    ours, more = convert(net, check=torch.rand(4, 3, 4)), torch.rand(9, 3, 4)
    assert torch.equal(ours(more), net(more)) and fires(ours(more))


class Free(nn.Module):
    """A network as people write it: slices, joined spikes, sums and an output tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.lif1 = linear(12, 16), snn.Leaky(beta=0.9)
        self.fc2, self.lif2 = linear(16, 16), snn.Synaptic(alpha=0.8, beta=0.8)
        self.fc3, self.lif3 = linear(32, 4), snn.Leaky(beta=0.9)

    def forward(self, x, gain=1.5):
        mem1, mem3 = torch.zeros(x.shape[1], 16), self.lif3.init_leaky()
        syn2, mem2 = self.lif2.init_synaptic()
        out, count = torch.empty(x.shape[0], x.shape[1], 4), torch.zeros(x.shape[1], 4)
        for t in range(x.shape[0]):
            spk1, mem1 = self.lif1(self.fc1(x[t, :]) * gain, mem1)
            spk2, syn2, mem2 = self.lif2(self.fc2(spk1) + spk1, syn2, mem2)
            spk3, mem3 = self.lif3(self.fc3(torch.cat([spk1, spk2], dim=1)), mem3)
            out[t, :, :] = mem3
            count += spk3
            unused = spk1 + spk2
            unused += 1
        return out, count / x.shape[0]


def test_a_forward_as_people_write_it(x: Tensor) -> None:
    net = Free()
    ours = convert(net, check=x)
    membranes, rates = ours(x)
    expected = net(x)
    torch.testing.assert_close(membranes, expected[0])
    assert torch.equal(rates, expected[1]) and fires(rates)
    more = torch.rand(STEPS, 7, 12)  # another batch
    assert torch.equal(ours(more)[1], net(more)[1])


class OneStep(Free):
    """A forward that takes one time step and returns spikes and membrane."""

    def forward(self, x):
        spikes, membrane = self.lif1(self.fc1(x))
        return spikes, membrane


def test_every_output_of_a_forward_of_one_step(x: Tensor) -> None:
    net = OneStep()
    spikes, membranes = convert(net, check=x)(x)
    state, expected = torch.zeros(4, 16), []
    for frame in x:
        expected.append(net.lif1(net.fc1(frame), state))
        state = expected[-1][1]
    assert torch.equal(spikes, torch.stack([each[0] for each in expected])) and fires(spikes)
    assert torch.equal(membranes, torch.stack([each[1] for each in expected]))


class TwoStates(Free):
    """A forward of one step that takes a number and two membranes, and returns them."""

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.together = together

    def forward(self, x, gain=1.5, mem1=None, mem3=None):
        spk1, mem1 = self.lif1(self.fc1(x) * gain, mem1)
        spk3, mem3 = self.lif3(self.fc2(spk1), mem3)
        return (spk3, (mem1, mem3)) if self.together else (spk3, mem1, mem3)


@pytest.mark.parametrize("together", [False, True])
def test_several_states_as_arguments(together: bool, x: Tensor) -> None:
    net = TwoStates(together)
    spikes = convert(net, check=x, exact=True)(x)[0]
    net.together = False
    mem1, mem3, expected = net.lif1.init_leaky(), net.lif3.init_leaky(), []
    for frame in x:
        spk, mem1, mem3 = net(frame, 1.5, mem1, mem3)
        expected.append(spk)
    assert torch.equal(spikes, torch.stack(expected)) and fires(spikes)


class Wrong(Free):
    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x):
        mem = torch.ones(1) if self.what == "start" else self.lif1.init_leaky()
        total, rec = torch.zeros(x.shape[1], 16), []
        for frame in x:
            spk, mem = self.lif1(self.fc1(frame), mem)
            if self.what == "twice":
                spk, mem = self.lif1(self.fc2(spk), mem)
            if self.what == "in place":
                total.add_(spk)
            if self.what == "whole":
                spk = spk / spk.max()
            rec.append(spk)
        return torch.stack(rec)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("start", "'lif1' starts from a state other than 0"),
        ("twice", "'lif1' is called twice"),
        ("in place", "in place by add_"),
        ("whole", "max mixes the samples"),
    ],
)
def test_forwards_that_are_refused(what: str, said: str, x: Tensor) -> None:
    with pytest.raises(ValueError, match=said):
        convert(Wrong(what), check=x)


class InPlace(nn.Module):
    """A forward that changes a tensor and goes on with the old name."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.relu = what, nn.ReLU(inplace=True)
        self.fc, self.lif = linear(12, 16), snn.Leaky(beta=0.9, init_hidden=True)

    def forward(self, x):
        h = kept = self.fc(x)
        if self.what == "layer":
            self.relu(h)
        elif self.what == "function":
            nn.functional.relu(h, inplace=True)
        elif self.what == "method":
            h = h.relu_()
        elif self.what == "operator":
            h += 1
        else:
            torch.clamp(h, min=0, out=h)
        return self.lif(kept)


@pytest.mark.parametrize("what", ["layer", "function", "method", "operator", "argument"])
def test_a_tensor_that_is_changed_in_place_and_used_afterwards(what: str, x: Tensor) -> None:
    for check in (None, x):
        with pytest.raises(ValueError, match="the forward changes a tensor in place"):
            convert(InPlace(what), check=check)


def test_an_example_that_the_network_itself_refuses() -> None:
    with pytest.raises(ValueError, match=r"the network fails on check, which has shape \(30, 4, 13\)"):
        convert(Free(), check=torch.rand(STEPS, BATCH, 13))


class FromRest(OneStep):
    """A forward of one step that starts from rest in every call."""

    def forward(self, x):
        return self.lif1(self.fc1(x), self.lif1.init_leaky())[0]


def test_a_forward_without_a_state_between_its_steps(x: Tensor) -> None:
    with pytest.raises(ValueError, match="'lif1' starts from rest in every call of the forward"):
        convert(FromRest(), check=x)


class Encoded(nn.Module):
    """A network that draws the spikes of its input itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.lif = linear(12, 16), snn.Leaky(beta=0.9)

    def forward(self, x):
        drawn, mem, rec = torch.bernoulli(x.expand(9, *x.shape)), self.lif.init_leaky(), []
        for step in range(9):
            spk, mem = self.lif(self.fc(drawn[step]), mem)
            rec.append(spk)
        return torch.stack(rec)


def test_random_spikes_of_the_input_are_compared(x: Tensor) -> None:
    net = Encoded()
    ours, before = convert(net, check=x[0], exact=True), torch.get_rng_state()
    found = ours(x[0])
    torch.set_rng_state(before)
    assert torch.equal(found, net(x[0])) and fires(found)


class Readout(nn.Module):
    """norse's own example: cells in a loop, read out by LILinearCell."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.lif, self.out = linear(12, 16, 9.0), norse.LIFCell(), norse.LILinearCell(16, 5)

    def forward(self, x):
        s1 = s2 = None
        voltages = []
        for frame in x:
            z, s1 = self.lif(self.fc(frame), s1)
            v, s2 = self.out(z, s2)
            voltages.append(v)
        return torch.stack(voltages)


def test_a_readout_of_norse(x: Tensor) -> None:
    net = Readout()
    expected = net(x)
    assert expected.abs().sum() > 0
    torch.testing.assert_close(convert(net, check=x)(x), expected)


class Handwritten(nn.Module):
    """Feedback by hand: the spikes of the second layer drive the first one step later."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.lif, self.back = linear(12, 6), snn.Leaky(beta=0.9), linear(6, 6)

    def forward(self, x):
        mem, spk, rec = self.lif.init_leaky(), torch.zeros(4, 6), []
        for frame in x:
            spk, mem = self.lif(self.fc(frame) + self.back(spk), mem)
            rec.append(spk)
        return torch.stack(rec)


def test_feedback_by_hand_is_refused_with_a_remedy(x: Tensor) -> None:
    with pytest.raises(ValueError, match="three lines"):
        convert(Handwritten(), check=x)


NODES = {
    "IF": lambda **o: neuron.IFNode(**o),
    "LIF": lambda **o: neuron.LIFNode(tau=1.7, **o),
    "LIF plain input": lambda **o: neuron.LIFNode(tau=3.0, decay_input=False, **o),
    "PLIF": lambda **o: neuron.ParametricLIFNode(init_tau=2.5, **o),
    "PLIF plain input": lambda **o: neuron.ParametricLIFNode(init_tau=2.5, decay_input=False, **o),
}


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("v_reset", [0.0, None, -0.2])
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("mode", ["s", "m"])
def test_spikingjelly_neurons(kind: str, v_reset: float | None, detach: bool, mode: str, x: Tensor) -> None:
    given = {"v_reset": v_reset, "detach_reset": detach, "v_threshold": 0.7}
    net = nn.Sequential(
        layer.Linear(12, 16),
        NODES[kind](**given),
        layer.Dropout(0.3),
        layer.Linear(16, 8),
        NODES[kind](**given),
    )
    for module in (net[0], net[3]):
        module.weight.data.mul_(8)
    functional.set_step_mode(net, mode)
    net.eval()
    ours = convert(net, check=x, share=True, exact=True)
    functional.reset_net(net)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    theirs = net(a) if mode == "m" else run_steps(net, a)
    spikes = ours(b)
    assert torch.equal(spikes, theirs) and fires(spikes)
    weights = torch.randn_like(spikes)
    torch.testing.assert_close(
        torch.autograd.grad((spikes * weights).sum(), b)[0],
        torch.autograd.grad((theirs * weights).sum(), a)[0],
        rtol=1e-4,
        atol=1e-5,
    )
    assert {id(p) for p in ours.parameters()} == {id(p) for p in net.parameters()}


def test_a_layer_in_single_step_mode_before_neurons_in_multi_step_mode(x: Tensor) -> None:
    """layer.Linear takes sequences in both modes, a neuron does not."""
    net = nn.Sequential(layer.Linear(12, 16), neuron.LIFNode(v_threshold=0.3, step_mode="m"))
    ours = convert(net, check=x, exact=True)
    assert torch.equal(ours(x), net(x)) and fires(ours(x))
    assert type(ours[1]) is SpikingJellyNeuron
    net[1].step_mode = "s"
    wrong = nn.Sequential(*net, layer.Linear(16, 3), neuron.IFNode(step_mode="m"))
    with pytest.raises(ValueError, match=r"'3' takes whole sequences, but layer '1' takes one step"):
        convert(wrong, check=x)


def test_batch_norms_of_spikingjelly(x: Tensor) -> None:
    net = nn.Sequential(layer.ThresholdDependentBatchNorm1d(1.5, 1.0, 12), neuron.IFNode(step_mode="m"))
    functional.set_step_mode(net, "m")
    ours = convert(net.eval(), check=x, exact=True)
    assert torch.equal(ours(x), net(x)) and fires(ours(x))
    with pytest.raises(ValueError, match=r"'0' is a WSLinear, which ul\.convert does not support"):
        convert(nn.Sequential(layer.WSLinear(12, 16), neuron.IFNode()))


def test_the_state_of_the_source_is_left_alone(x: Tensor) -> None:
    net = nn.Sequential(layer.Linear(12, 16), neuron.LIFNode(step_mode="m"))
    net(x)
    before = net[1].v
    convert(net, check=x)
    assert net[1].v is before


def test_integers_at_the_threshold() -> None:
    """SpikingJelly fires where the membrane equals the threshold."""
    net = nn.Sequential(neuron.IFNode(v_threshold=2.0, step_mode="m"))
    x = torch.ones(6, 1, 1)
    assert convert(net, check=x)(x).flatten().tolist() == [0, 1, 0, 1, 0, 1]


def test_containers_of_spikingjelly() -> None:
    net = nn.Sequential(
        layer.SeqToANNContainer(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)),
        neuron.IFNode(step_mode="m", surrogate_function=sj_surrogate.ATan()),
        layer.MultiStepContainer(
            nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 5), neuron.LIFNode())
        ),
    )
    net[2][0][2].weight.data.mul_(8)
    net.eval()
    frames = torch.rand(6, 3, 2, 8, 8)
    ours = convert(net, check=frames)
    functional.reset_net(net)
    assert torch.equal(ours(frames), net(frames))


@pytest.mark.parametrize("model", ["vgg", "resnet", "sew"])
@pytest.mark.parametrize("mode", ["s", "m"])
def test_the_zoo_of_spikingjelly(model: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("torchvision") is None:  # its model zoo imports it for pretrained weights
        for name in ("torchvision", "torchvision.models", "torchvision.models.utils"):
            stub = types.ModuleType(name)
            vars(stub).update(__path__=[], load_state_dict_from_url=None)
            monkeypatch.setitem(sys.modules, name, stub)
    from spikingjelly.activation_based.model import sew_resnet, spiking_resnet, spiking_vgg

    torch.manual_seed(0)
    common = {"spiking_neuron": neuron.IFNode, "num_classes": 4, "detach_reset": True, "v_threshold": 0.5}
    if model == "vgg":
        net = spiking_vgg.SpikingVGG([8, "M", 512, "M"], batch_norm=True, **common)
        net.classifier = nn.Sequential(layer.Linear(512 * 49, 16), neuron.IFNode(), layer.Linear(16, 4))
    elif model == "resnet":
        net = spiking_resnet.SpikingResNet(spiking_resnet.BasicBlock, [1, 1, 1, 1], **common)
    else:
        net = sew_resnet.SEWResNet(sew_resnet.BasicBlock, [1, 1, 1, 1], cnf="ADD", **common)
    functional.set_step_mode(net, mode)
    net.eval()
    frames = torch.randn(3, 2, 3, 32, 32)
    ours = convert(net, check=frames)
    functional.reset_net(net)
    theirs = net(frames) if mode == "m" else run_steps(net, frames)
    torch.testing.assert_close(ours(frames), theirs, rtol=1e-4, atol=1e-5)
    spiking = [m for m in ours.modules() if isinstance(m, ul.Neuron)]
    assert len(spiking) == sum(isinstance(m, neuron.BaseNode) for m in net.modules())
    assert not any(type(m).__module__.startswith("spikingjelly") for m in ours.modules())


NORSE = {
    "LIF": lambda: norse.LIF(norse.LIFParameters(v_th=torch.tensor(0.3))),
    "LIF at -0.1": lambda: norse.LIF(
        norse.LIFParameters(v_th=torch.tensor(0.3), v_leak=torch.tensor(-0.1), v_reset=torch.tensor(-0.2))
    ),
    "IAF": lambda: norse.IAF(),
    "LIFRecurrent": lambda: norse.LIFRecurrent(16, 16, norse.LIFParameters(v_th=torch.tensor(0.3))),
    "LI": lambda: norse.LI(),
}


@pytest.mark.parametrize("kind", NORSE)
def test_norse_neurons(kind: str, x: Tensor) -> None:
    net = norse.SequentialState(linear(12, 16), NORSE[kind](), linear(16, 8), norse.LIF())
    ours = convert(net, check=x)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    theirs, spikes = net(a)[0], ours(b)
    assert torch.equal(spikes, theirs) and fires(spikes)
    weights = torch.randn_like(spikes)
    torch.testing.assert_close(
        torch.autograd.grad((spikes * weights).sum(), b)[0],
        torch.autograd.grad((theirs * weights).sum(), a)[0],
        rtol=1e-4,
        atol=1e-5,
    )


def test_norse_lifted_layers() -> None:
    frames = torch.rand(7, 2, 2, 8, 8)
    net = norse.SequentialState(
        norse.Lift(nn.Conv2d(2, 3, 3)), norse.LIF(norse.LIFParameters(v_th=torch.tensor(0.05))), nn.Flatten(2)
    )
    assert torch.equal(convert(net, check=frames)(frames), net(frames)[0])


CELLS = {
    "LIF": lambda: norse.LIFCell(norse.LIFParameters(v_th=torch.tensor(0.05))),
    "box": lambda: norse.LIFBoxCell(norse.LIFBoxParameters(v_th=torch.tensor(0.05))),
    "IAF": lambda: norse.IAFCell(),
}


@pytest.mark.parametrize("kind", CELLS)
def test_norse_cells(kind: str) -> None:
    frames = torch.rand(7, 2, 2, 8, 8)
    cells = norse.SequentialState(nn.Conv2d(2, 3, 3), CELLS[kind]())
    ours = convert(cells, check=frames)
    state, outs = None, []
    for frame in frames:
        out, state = cells(frame, state)
        outs.append(out)
    assert torch.equal(ours(frames), torch.stack(outs)) and fires(torch.stack(outs))


class Cells(nn.Module):
    """Cells of norse in a forward that takes and returns their states."""

    def __init__(self) -> None:
        super().__init__()
        p = norse.LIFParameters(v_th=torch.tensor(0.3))
        self.first, self.fc, self.last = norse.LIFRecurrentCell(12, 16, p), linear(16, 4), norse.LIFCell(p)
        self.first.input_weights.data.mul_(20)

    def forward(self, x, state=None):
        first, last = (None, None) if state is None else state
        spikes, first = self.first(x, first)
        spikes, last = self.last(self.fc(spikes), last)
        return spikes, (first, last)


def test_cells_of_norse_with_their_states(x: Tensor) -> None:
    net, state, outs = Cells(), None, []
    ours = convert(net, check=x, exact=True)
    for frame in x:
        spikes, state = net(frame, state)
        outs.append(spikes)
    assert torch.equal(ours(x), torch.stack(outs)) and fires(ours(x))


def test_containers_of_norse(x: Tensor) -> None:
    p = norse.LIFParameters(v_th=torch.tensor(0.2))
    lifted = norse.SequentialState(linear(12, 16), norse.Lift(norse.LIFCell(p)))
    assert torch.equal(convert(lifted, check=x)(x), lifted(x)[0][0])
    hidden = norse.SequentialState(linear(12, 16), norse.LIF(p), linear(16, 4), return_hidden=True)
    for found, expected in zip(convert(hidden, check=x)(x), hidden(x)[0], strict=True):
        assert torch.equal(found, expected)
    with pytest.raises(ValueError, match=r"'0' is a CobaLIFCell, which ul\.convert does not support"):
        convert(norse.SequentialState(norse.CobaLIFCell(12, 16)))


@pytest.mark.parametrize("kind", ["atan", "sigmoid", "fast_sigmoid", "triangular"])
def test_surrogates_of_snntorch(kind: str, x: Tensor) -> None:
    options = {"slope": 4} if kind == "sigmoid" else {}  # theirs overflows for its default
    leaky = snn.Leaky(beta=0.9, spike_grad=getattr(surrogate, kind)(**options), init_hidden=True)
    net = nn.Sequential(linear(12, 16), leaky)
    ours = convert(net, check=x)
    assert (type(ours[-1]) is ul.LIF) == (kind != "triangular")
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    weights = torch.randn(STEPS, BATCH, 16)
    torch.testing.assert_close(
        torch.autograd.grad((ours(b) * weights).sum(), b)[0],
        torch.autograd.grad((run_steps(net, a) * weights).sum(), a)[0],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("kind", ["Leaky", "Synaptic", "RLeaky"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_gradient_of_a_reset_without_delay(kind: str, exact: bool, x: Tensor) -> None:
    """Without delay, snnTorch differentiates the reset by the spike."""
    made = getattr(snn, kind)(**KINDS[kind], reset_mechanism="zero", reset_delay=False, init_hidden=True)
    net = nn.Sequential(linear(12, 16), made)
    ours = convert(net, check=x, exact=exact)
    assert any(type(each) is ul.LIF for each in ours.modules()) is not exact
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    weights = torch.randn(STEPS, BATCH, 16)
    torch.testing.assert_close(
        torch.autograd.grad((ours(b) * weights).sum(), b)[0],
        torch.autograd.grad((run_steps(net, a) * weights).sum(), a)[0],
        rtol=1e-3,
        atol=1e-4,
    )


def test_parameters_are_copied_or_shared(x: Tensor) -> None:
    net = nn.Sequential(linear(12, 16), snn.Leaky(beta=0.9, init_hidden=True, learn_beta=True))
    copied, shared = convert(net), convert(net, share=True)
    mine = {id(p) for p in net.parameters()}
    assert not mine & {id(p) for p in copied.parameters()}
    assert mine == {id(p) for p in shared.parameters()}
    again = pickle.loads(pickle.dumps(copied))  # noqa: S301 - our own bytes
    assert torch.equal(again(x), copied(x))


def test_a_difference_is_reported(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    import ultralif.conversion.snntorch as theirs

    def wrong(*given):
        made = original(*given)
        made.reset = "none"
        return made

    original = theirs._neuron
    monkeypatch.setattr(theirs, "_neuron", wrong)
    net = nn.Sequential(linear(12, 16), snn.Leaky(beta=0.9, init_hidden=True))
    with pytest.raises(SpikeMismatch, match="layer '1', step") as caught:
        convert(net, check=x)
    found = caught.value.difference
    assert (
        found.layer == "1" and found.source_membrane != found.membrane and found.spikes == STEPS * BATCH * 16
    )


def test_refusals_name_the_layer(x: Tensor) -> None:
    with pytest.raises(ValueError, match="'1', Leaky, has inhibition=True"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        convert(nn.Sequential(linear(12, 16), snn.Leaky(beta=0.9, inhibition=True)))
    with pytest.raises(ValueError, match="'0' is a Alpha"):
        convert(nn.Sequential(snn.Alpha(alpha=0.9, beta=0.8)))
    with pytest.raises(ValueError, match=r"'0' is a PSN, which ul.convert does not support"):
        convert(nn.Sequential(neuron.PSN(5)))
    with pytest.raises(ValueError, match="nothing to convert"):
        convert(nn.Sequential(linear(12, 16)))


LIFS = {
    **{f"snnTorch {kind} {reset}": (kind, reset) for kind in KINDS for reset in ("subtract", "zero", "none")},
    **{f"SpikingJelly {kind} {v_reset}": (kind, v_reset) for kind in NODES for v_reset in (0.0, None, -0.2)},
    **{f"norse {kind}": (kind, None) for kind in (*NORSE, "LIFBox") if kind != "LI"},
}


def foreign(name: str) -> nn.Module:
    (kind, reset), library = LIFS[name], name.split(" ")[0]
    if library == "snnTorch":
        made = getattr(snn, kind.split()[0])(**KINDS[kind], reset_mechanism=reset, init_hidden=True)
        return nn.Sequential(linear(12, 16), made)
    if library == "SpikingJelly":
        net = nn.Sequential(layer.Linear(12, 16), NODES[kind](v_reset=reset, v_threshold=0.7))
        net[0].weight.data.mul_(8)
        functional.set_step_mode(net, "m")
        return net
    box = norse.LIFBoxCell(norse.LIFBoxParameters(v_th=torch.tensor(0.2), v_leak=torch.tensor(0.05)))
    return norse.SequentialState(linear(12, 16), box if kind == "LIFBox" else NORSE[kind]())


@pytest.mark.parametrize("name", LIFS)
def test_every_neuron_as_a_lif(name: str, x: Tensor) -> None:
    """With the gradients of the source, and with its spikes but for rounding."""
    exact = convert(foreign(name), check=x, exact=True)
    fast = with_lif(exact)
    neurons = [m for m in fast.modules() if isinstance(m, ul.Neuron)]
    assert neurons and all(type(m) is ul.LIF for m in neurons)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    slow, spikes = exact(a), fast(b)
    assert torch.equal(slow, spikes) and (fires(spikes) or "none" in name)
    weights = torch.randn_like(spikes)
    torch.testing.assert_close(
        torch.autograd.grad((spikes * weights).sum(), b)[0],
        torch.autograd.grad((slow * weights).sum(), a)[0],
        rtol=1e-3,
        atol=1e-4,
    )


def test_kernels_are_used_where_nothing_but_rounding_changes(x: Tensor) -> None:
    net = nn.Sequential(linear(12, 16), snn.Leaky(beta=0.9, init_hidden=True))
    learned = nn.Sequential(linear(12, 16), snn.Leaky(beta=0.9, learn_beta=True, init_hidden=True))
    other = nn.Sequential(linear(12, 16), snn.Leaky(beta=0.9, spike_grad=surrogate.LSO(), init_hidden=True))
    assert type(convert(net, check=x)[1]) is ul.LIF
    for each in (convert(net, check=x, exact=True), convert(learned), convert(other)):
        assert type(each[1]) is not ul.LIF


def test_rounding_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(snn.Leaky(beta=0.9, threshold=1.0, init_hidden=True))
    x = torch.zeros(2, 100, 100)
    x[0, 0, 0], x[1, 0, 0] = 0.7, 1.0 - (torch.tensor(0.9) * torch.tensor(0.7)).item()
    original = SnnTorchNeuron.form  # a gain of 1 + 1e-6 in the place of rounding
    monkeypatch.setattr(SnnTorchNeuron, "form", lambda self: original(self)._replace(gain=1 + 1e-6))
    with pytest.warns(UserWarning, match="rounding moved 1 of 20000 spikes of layer '0'; exact=True"):
        convert(net, check=x)


def test_a_double_reset_has_no_lif(x: Tensor) -> None:
    net = nn.Sequential(linear(12, 16), snn.Leaky(beta=0.9, reset_delay=False, init_hidden=True))
    with pytest.raises(ValueError, match=r"layer 'layer_1': without reset_delay .* reset_delay=True"):
        with_lif(convert(net, check=x))


@pytest.mark.parametrize("found", [torch.zeros(3, 4), torch.full((3, 5), 0.1)], ids=["shape", "values"])
def test_another_output_with_the_same_spikes_is_refused(found: Tensor) -> None:
    _compare_output(torch.zeros(3, 5), torch.zeros(3, 5))
    with pytest.raises(JobError, match="a different output"):
        _compare_output(torch.zeros(3, 5), found)
