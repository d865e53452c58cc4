"""Deep networks: shapes, binary spikes at every convolution, gradients that reach the first layer."""

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.errors import InputError
from ultralif.models import resnet, vgg

SMALL = {
    "vgg": lambda **options: vgg(((8, 8), (12, 12)), **options),
    "residual vgg": lambda **options: vgg(((8, 8, 8), (8, 12, 12)), residual=True, **options),
    "resnet": lambda **options: resnet(((8, 2), (12, 2)), **options),
}
both = pytest.mark.parametrize("build", SMALL.values(), ids=SMALL)


@both
@pytest.mark.parametrize("neuron", ["UltraLIF", ul.SoftLIF, "LIF", nn.ReLU], ids=str)
def test_gradient_reaches_every_parameter(build, neuron):
    torch.manual_seed(0)
    options = {"eps": 0.2} if neuron in ("UltraLIF", ul.SoftLIF) else {}
    net = build(neuron=neuron, neuron_options=options, timesteps=2)
    nn.functional.cross_entropy(net(torch.rand(4, 3, 16, 16)), torch.arange(4)).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in net.parameters())


@both
def test_spikes_are_binary_at_every_convolution_but_the_first(build):
    torch.manual_seed(0)
    net = build(timesteps=3, neuron_options={"eps": 0.2})
    seen = []
    linear = [m for m in net.first.modules() if isinstance(m, nn.Conv2d)]  # a residual vgg has two
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and module not in linear[1:]:
            module.register_forward_pre_hook(lambda module, args: seen.append(args[0].unique()))
    with ul.mode(net, "hard"):
        net(torch.rand(4, 3, 16, 16))
    first, *middle, head = seen
    assert len(first) > 2
    assert len(middle) == sum(isinstance(m, nn.Conv2d) for m in net.modules()) - len(linear)
    assert all(values.tolist() == [0.0, 1.0] for values in middle)
    assert 0 < head.max() < 1  # mean spikes


@both
def test_an_image_is_a_constant_current(build):
    torch.manual_seed(0)
    net = build(timesteps=3).eval()
    image = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(net(image), net(image.expand(3, *image.shape)))


@both
def test_the_scores_are_the_mean_of_those_of_the_steps(build):
    torch.manual_seed(0)
    net, image = build(timesteps=3).eval(), torch.rand(2, 3, 16, 16)
    scores, net.by_step = net(image), True
    assert net(image).shape == (3, 2, 10)
    torch.testing.assert_close(net(image).mean(0), scores)


@both
def test_batch_norm_sees_time_and_batch(build):
    net = build(channels=2)
    events = torch.rand(5, 2, 2, 16, 16)
    net(events)
    *before, norm = net.first.module
    current = nn.Sequential(*before)(events.flatten(0, 1))
    torch.testing.assert_close(norm.running_mean, 0.1 * current.mean((0, 2, 3)))


@pytest.mark.parametrize("name", ["vgg5", "vgg7", "vgg9", "vgg11", "vgg11r"])
def test_a_name_counts_the_convolutions_and_the_head(name):
    net = vgg(name, width=1 / 32)
    layers = [m for m in net.modules() if isinstance(m, nn.Linear) or getattr(m, "kernel_size", 0) == (3, 3)]
    assert len(layers) == int(name[3:].strip("r"))


@pytest.mark.parametrize(
    ("name", "count"), [("resnet10", 10), ("resnet18", 18), ("resnet20", 20), ("resnet34", 34)]
)
def test_a_name_counts_all_but_the_shortcuts(name, count):
    net = resnet(name, width=1 / 16)
    layers = [m for m in net.modules() if isinstance(m, nn.Linear) or getattr(m, "kernel_size", 0) == (3, 3)]
    assert len(layers) == count


def test_residual_current_keeps_its_scale():
    torch.manual_seed(0)
    net = resnet(((16, 9),), timesteps=1)
    current = net.first(torch.rand(1, 8, 3, 16, 16))
    assert 1.0 < net.blocks(current).std() / current.std() < 2.0  # nine blocks of variance 1/9 each


@both
def test_channels_last_gives_the_same(build):
    torch.manual_seed(0)
    net = build(timesteps=2).eval()
    x = torch.rand(2, 3, 16, 16)
    expected = net(x)
    net.to(memory_format=torch.channels_last)
    torch.testing.assert_close(net(x.to(memory_format=torch.channels_last)), expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda: vgg("vgg10"),
        lambda: vgg(((64,), ())),
        lambda: vgg(width=0),
        lambda: vgg(timesteps=0),
        lambda: vgg("vgg5", neuron="none"),
        lambda: vgg("vgg9", width=0.1)(torch.rand(1, 3, 8, 8)),
        lambda: resnet("resnet17"),
        lambda: resnet(((64, 0),)),
        lambda: resnet("resnet10", width=0.1)(torch.rand(3, 8, 8)),
    ],
)
def test_bad_input_is_told(call):
    with pytest.raises(InputError):
        call()
