"""The recipe for deep networks, by the trainer: binary at the end, counted, stored and read again."""

import torch
from torch import nn

import ultralif as ul
from ultralif.training.config import PRESETS


def test_a_deep_network_learns_and_ends_binary(tmp_path):
    recipe = PRESETS["deep"] | {"timesteps": 1, "epochs": 4}
    config = ul.RunConfig(dataset="digits", **recipe)
    result = ul.train(config, runs_dir=tmp_path)
    binary = result.by_mode["hard"].accuracy
    assert binary > 80  # chance is 10
    net = ul.load(result.path)
    seen = []
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda module, args: seen.append(args[0].unique().tolist()))
    digits = ul.data.load("digits").test
    images = digits.batch(range(len(digits))).float() / 255
    net.eval()
    with torch.no_grad(), ul.mode(net, "hard"):
        right = net(images).argmax(1) == torch.as_tensor(digits.labels)
    assert all(values == [0.0, 1.0] for values in seen[1:]) and len(seen) == 4
    assert abs(100 * right.float().mean().item() - binary) < 1


def test_a_model_is_trained_by_the_losses_of_its_steps(tmp_path):
    recipe = PRESETS["deep"] | {"timesteps": 2, "epochs": 1, "width": 0.25, "loss": "tet"}
    result = ul.train(ul.RunConfig(dataset="digits", **recipe), runs_dir=tmp_path)
    assert ul.load(result.path)(torch.rand(3, 1, 8, 8)).shape == (3, 10)
