"""Parameter groups: every parameter once, in the right group, and usable by torch's optimizers."""

import torch
from torch import nn

import ultralif as ul


def test_weights_norms_and_neurons_are_separated() -> None:
    net = nn.Sequential(
        ul.TimeDistributed(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))),
        ul.UltraPLIF(),
        nn.Flatten(2),
        nn.LayerNorm(144),
        nn.Linear(144, 3),
        ul.LeakyIntegrator(learn_leak=True),
    )
    groups = ul.parameter_groups(net, weights={"weight_decay": 0.1}, neurons={"lr": 0.5})
    names = {id(p): name for name, p in net.named_parameters()}
    by_group = {group["name"]: {names[id(p)] for p in group["params"]} for group in groups}
    assert by_group == {
        "weights": {"0.module.0.weight", "4.weight"},
        "norms": {
            "0.module.0.bias",
            "0.module.1.weight",
            "0.module.1.bias",
            "3.weight",
            "3.bias",
            "4.bias",
        },
        "neurons": {"1.log_eps", "1.logit_leak", "5.logit_leak"},
    }
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0, 0.0]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.01, 0.5]


def test_shared_parameters_are_listed_once_and_empty_groups_left_out() -> None:
    linear = nn.Linear(3, 3, bias=False)
    groups = ul.parameter_groups(nn.Sequential(linear, ul.LIF(), linear))
    assert [(group["name"], len(group["params"])) for group in groups] == [("weights", 1)]
