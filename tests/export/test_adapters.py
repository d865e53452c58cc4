"""Our neurons inside other libraries: the same spikes, and they train there."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import ultralif as ul
from ultralif.errors import InputError
from ultralif.export.adapters import for_norse, for_snntorch, for_spikingjelly

pytestmark = pytest.mark.filterwarnings("ignore")  # the other libraries' own
STEPS, BATCH = 6, 8


@pytest.fixture
def task() -> tuple[Tensor, Tensor]:
    """Spikes whose first half, or second half, is the busier."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(BATCH) % 2
    chance = torch.full((BATCH, 12), 0.1)
    chance[labels == 0, :6] = 0.8
    chance[labels == 1, 6:] = 0.8
    return (torch.rand(STEPS, BATCH, 12, generator=generator) < chance).float(), labels


def ours(neuron: ul.Neuron) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 10), neuron, nn.Linear(10, 2))


def train(net: nn.Module, forward, labels: Tensor, reset=lambda: None) -> tuple[float, float]:
    """Take a few steps, and return the loss before and after."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(15):
        loss = cross_entropy(forward(), labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reset()
    return losses[0], losses[-1]


@pytest.mark.parametrize("name", ["UltraLIF", "UltraDLIF", "AdaLIF"])
@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_spikingjelly(task, name, step_mode):
    from spikingjelly.activation_based import functional, layer

    x, labels = task
    neuron = ul.nn.find_neuron(name)()
    torch.manual_seed(1)
    guest = for_spikingjelly(neuron, step_mode)
    net = nn.Sequential(layer.Linear(12, 10), guest, layer.Linear(10, 2))
    functional.set_step_mode(net, step_mode)

    def forward() -> Tensor:
        return (net(x) if step_mode == "m" else torch.stack([net(step) for step in x])).mean(0)

    torch.testing.assert_close(forward(), ours(neuron)(x).mean(0))
    functional.reset_net(net)
    assert guest.v is None
    before, after = train(net, forward, labels, lambda: functional.reset_net(net))
    assert after < before - 0.05


def test_spikingjelly_goes_on_from_its_state_until_it_is_reset(task):
    from spikingjelly.activation_based import functional

    x, _ = task
    guest = for_spikingjelly(ul.UltraDLIF(), "m")
    whole = guest(x)
    functional.reset_net(guest)
    halves = torch.cat([guest(x[:3]), guest(x[3:])])
    torch.testing.assert_close(halves, whole)
    functional.detach_net(guest)
    assert not guest.v.requires_grad
    guest.step_mode = "s"
    assert guest(x[0]).shape == x[0].shape


@pytest.mark.parametrize("name", ["UltraLIF", "UltraDLIF", "LIF"])
def test_snntorch(task, name):
    import snntorch

    x, labels = task
    neuron = ul.nn.find_neuron(name)()
    torch.manual_seed(1)
    first, guest, last = nn.Linear(12, 10), for_snntorch(neuron), nn.Linear(10, 2)
    torch.manual_seed(2)
    theirs = snntorch.Leaky(beta=0.9, threshold=0.2)
    net = nn.ModuleList([first, guest, last, theirs])

    def run(with_theirs: bool) -> Tensor:
        mem1, mem2, out = guest.reset_mem(), theirs.reset_mem(), []
        for step in x:
            spk, mem1 = guest(first(step), mem1)
            current = last(spk)
            if with_theirs:
                _, mem2 = theirs(current, mem2)
                current = mem2
            out.append(current)
        return torch.stack(out).mean(0)

    torch.testing.assert_close(run(False), ours(neuron)(x).mean(0))
    before, after = train(net, lambda: run(True), labels)
    assert after < before - 0.05


@pytest.mark.parametrize("name", ["UltraLIF", "UltraDLIF", "AdaLIF"])
def test_norse(task, name):
    import norse.torch as norse

    x, labels = task
    neuron = ul.nn.find_neuron(name)()
    torch.manual_seed(1)
    net = norse.SequentialState(nn.Linear(12, 10), for_norse(neuron), nn.Linear(10, 2))
    assert net.stateful_layers == [False, True, False]

    def forward() -> Tensor:
        state, out = None, []
        for step in x:
            y, state = net(step, state)
            out.append(y)
        return torch.stack(out).mean(0)

    torch.testing.assert_close(forward(), ours(neuron)(x).mean(0))
    before, after = train(net, forward, labels)
    assert after < before - 0.05


def test_norse_lifts_a_cell_over_time(task):
    import norse.torch as norse

    x, _ = task
    neuron = ul.UltraLIF()
    lifted, _ = norse.Lift(for_norse(neuron))(x)
    torch.testing.assert_close(lifted, neuron(x))


def test_snntorch_carries_one_membrane_only():
    with pytest.raises(InputError, match="more state than a membrane"):
        for_snntorch(ul.AdaLIF())


@pytest.mark.parametrize("adapt", [for_norse, for_snntorch, for_spikingjelly])
def test_batch_first_is_refused(adapt):
    with pytest.raises(InputError, match="batch_first"):
        adapt(ul.LIF(batch_first=True))
