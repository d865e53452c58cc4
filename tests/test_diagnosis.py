"""Diagnosis: every problem is planted and found, a sound network has none; calibration reaches its rate."""

import pytest
import torch
from torch import nn

import ultralif as ul
from ultralif.diagnosis import Diagnosis
from ultralif.errors import InputError
from ultralif.training.losses import rate_mse

T, B = 6, 8


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(T, B, 10, generator=torch.Generator().manual_seed(0)), torch.arange(B) % 3


def network(*, gain: float = 1.0, **options: object) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(10, 64), ul.UltraLIF(**options), nn.Linear(64, 64), ul.UltraLIF(**options), nn.Linear(64, 3)
    )
    with torch.no_grad():
        net[0].weight.mul_(gain)
    ul.calibrate_init(net, batch(), 0.2) if gain == 1.0 else None
    return net


def found(diagnosis: Diagnosis, words: str) -> str:
    """Return the layer of the one finding with these words, which has a fix."""
    (hit,) = {each.layer for each in diagnosis.findings if words in each.problem}
    assert all(each.fix for each in diagnosis.findings)
    return hit


def test_a_sound_network_has_no_findings_and_is_not_changed() -> None:
    net = network()
    net.insert(1, ul.TimeDistributed(nn.BatchNorm1d(64)))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    ul.calibrate_init(net, batch()[0])
    changed = {name: value.clone() for name, value in net.state_dict().items()}
    assert torch.equal(changed["1.module.running_mean"], before["1.module.running_mean"])
    diagnosis = ul.diagnose(net, batch())
    assert diagnosis.findings == () and "No problems found" in str(diagnosis)
    assert [layer.name for layer in diagnosis.layers] == ["2", "4"]
    for name, value in net.state_dict().items():
        assert torch.equal(value, changed[name]), name
    assert all(p.grad is None for p in net.parameters()) and "forward" not in vars(net[2])


def test_silent_and_saturated_layers() -> None:
    silent = ul.diagnose(network(gain=1e-3, threshold=3.0), batch())
    assert "1" in {f.layer for f in silent.findings if "never fire" in f.problem}
    assert found(silent, "the readout is starved") == "3"
    loud = network()
    with torch.no_grad():
        loud[0].bias.fill_(5.0)
    assert found(ul.diagnose(loud, batch()), "fire in almost every step") == "1"


def test_currents_far_from_the_threshold() -> None:
    small = network()
    with torch.no_grad():
        small[0].weight.mul_(1e-4)
        small[0].bias.zero_()
    assert found(ul.diagnose(small, batch()), "currents are very small") == "1"
    assert found(ul.diagnose(network(gain=1e3), batch()), "currents are very large") == "1"


def test_gradients_that_vanish_explode_or_never_arrive() -> None:
    net = network()
    with torch.no_grad():
        net[2].weight.mul_(1e-6)
    assert found(ul.diagnose(net, batch()), "the gradient vanishes") == "1"
    with torch.no_grad():
        net[2].weight.mul_(1e12)
    assert "1" in {f.layer for f in ul.diagnose(net, batch()).findings if "gradient" in f.problem}

    class Detached(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[4](self[3](self[2](self[1](self[0](x)).detach())))

    assert found(ul.diagnose(Detached(*network()), batch()), "no gradient arrives") == "1"
    frozen = network().requires_grad_(False)
    assert found(ul.diagnose(frozen, batch()), "the loss has no gradient") == "network"


def test_a_spiking_readout() -> None:
    net = nn.Sequential(*network(), ul.UltraLIF())
    spiking = ul.diagnose(net, batch(), loss=lambda scores, labels: rate_mse(scores.mean(0), labels))
    assert found(spiking, "the scores are spikes") == "5"
    perceptron = ul.Network([10, 32, 3], readout="spiking")
    assert "the scores are spikes" in str(ul.diagnose(perceptron, batch()))


def test_eps_at_its_bound_and_modes() -> None:
    at_bound = ul.diagnose(network(eps=0.1), batch())
    assert {f.layer for f in at_bound.findings if "eps_range" in f.problem} == {"1", "3"}
    net = network()
    net[1].mode = "hard"
    assert found(ul.diagnose(net, batch()), "different modes: 1 hard, 3 soft") == "network"
    ul.set_mode(net, "hard")
    assert found(ul.diagnose(net, batch()), "trained in hard mode") == "network"
    ul.set_mode(net, "soft")
    assert found(ul.diagnose(net.eval(), batch()), "still soft") == "network"
    assert ul.diagnose(
        nn.Sequential(nn.Linear(10, 99), ul.LIF(threshold=0.1), nn.Linear(99, 3)), batch()
    ).layers


def test_inputs_with_a_misplaced_time_axis() -> None:
    x, labels = batch()
    wrong = ul.diagnose(network(), (x.transpose(0, 1).contiguous(), labels), loss=lambda s, y: s.mean())
    problem = next(f for f in wrong.findings if f.layer == "1")
    assert "integrate from sample to sample" in problem.problem and "transpose" in problem.fix
    conv = nn.Sequential(
        ul.TimeDistributed(nn.Conv2d(2, 4, 3)), ul.UltraLIF(), nn.Flatten(2), nn.Linear(144, 3)
    )
    events = (torch.rand(B, T, 2, 8, 8) < 0.1).float()
    forgotten = ul.diagnose(conv, (events, labels))
    assert "events=True" in str(forgotten)
    crashed = ul.diagnose(nn.Sequential(nn.Conv2d(2, 4, 3), ul.UltraLIF()), (events, labels))
    assert found(crashed, "the forward pass failed") == "network" and "ul.TimeDistributed" not in str(crashed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x * float("nan"), "NaN"),
        (lambda x: x * 0, "all values are zero"),
        (lambda x: (x * 255).round(), "pixels from 0 to 255"),
    ],
)
def test_inputs_that_are_no_use(change, words: str) -> None:
    x, labels = batch()
    assert found(ul.diagnose(network(), (change(x), labels)), words) == "input"


def test_other_tasks_and_every_way_to_call_a_neuron() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()[0]
            self.first, self.second = ul.LIF(threshold=0.2), ul.Recurrent(ul.UltraLIF(), nn.Linear(64, 64))
            self.third, self.out = ul.UltraLIF(batch_first=True), nn.Linear(64, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state, spikes = None, []
            for step in x:
                spike, state = self.first.step(self.inner(step), state)
                spikes.append(spike)
            out = self.second(torch.stack(spikes))
            return self.out(self.third.rate(out.transpose(0, 1)))

    diagnosis = ul.diagnose(Loop(), (batch()[0], torch.rand(B, 2)))
    assert [layer.name for layer in diagnosis.layers] == ["first", "second.neuron", "third"]
    assert all(layer.gradient > 0 for layer in diagnosis.layers)


@pytest.mark.parametrize("neuron", [ul.UltraLIF, ul.UltraDLIF, ul.LIF, ul.AdaLIF, ul.SoftLIF])
@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_calibration_reaches_the_rate_in_every_layer(neuron: type, rate: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        ul.TimeDistributed(nn.Conv2d(1, 8, 3)),
        ul.TimeDistributed(nn.BatchNorm2d(8)),
        neuron(),
        nn.Flatten(2),
        nn.Linear(288, 200),
        neuron(),
        nn.Linear(200, 200),
        neuron(),
        nn.Linear(200, 3),
    )
    readout = net[8].weight.clone()
    rates = ul.calibrate_init(net, torch.randn(T, B, 1, 8, 8), rate)
    assert list(rates) == ["2", "5", "7"]
    assert all(value == pytest.approx(rate, rel=0.1) for value in rates.values())
    assert torch.equal(net[8].weight, readout)


def test_calibration_of_recurrent_layers_and_rates_out_of_reach() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 64), ul.Recurrent(ul.LIF(), nn.Linear(64, 64)), nn.Linear(64, 3))
    feedback = net[1].linear.weight.clone()
    rates = ul.calibrate_init(net, batch()[0], 0.2)
    assert rates["1.neuron"] == pytest.approx(0.2, rel=0.2)
    assert torch.equal(net[1].linear.weight, feedback)
    with torch.no_grad():
        net[0].weight.fill_(-1.0)
        net[0].bias.fill_(-1.0)
    weights = net[0].weight.clone()
    assert ul.calibrate_init(net, batch()[0], 0.2)["1.neuron"] < 0.1
    assert torch.equal(net[0].weight, weights)


def test_bad_arguments_get_one_clear_error() -> None:
    for call, words in (
        (lambda: ul.calibrate_init(network(), batch(), 1.5), "rate must be between 0 and 1"),
        (lambda: ul.calibrate_init(nn.Linear(2, 2), batch()), "without ultralif neurons"),
        (lambda: ul.diagnose(network(), batch()[0]), "batch must be a pair"),  # type: ignore[arg-type]
        (lambda: ul.diagnose(nn.Linear(2, 2), batch()), "without ultralif neurons"),
    ):
        with pytest.raises(InputError, match=words):
            call()
