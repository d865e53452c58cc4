"""NeuroBench, an outside judge, counts what we count by hand: accuracy, sparsity, accumulates."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ultralif as ul
from ultralif.export.adapters import for_neurobench
from ultralif.export.harden import gap, spike_trains
from ultralif.training.result import Operations

pytestmark = pytest.mark.filterwarnings("ignore")  # NeuroBench's own


def judge(net: ul.Network, x, labels) -> dict:
    from neurobench.benchmarks import Benchmark
    from neurobench.metrics.workload import ActivationSparsity, ClassificationAccuracy, SynapticOperations
    from neurobench.models import TorchModel

    model = TorchModel(for_neurobench(net))
    model.add_activation_module(ul.Neuron)
    loader = DataLoader(TensorDataset(x.transpose(0, 1), labels), batch_size=len(labels))
    metrics = [[], [ClassificationAccuracy, ActivationSparsity, SynapticOperations]]
    benchmark = Benchmark(model, loader, [], [lambda scores: scores.argmax(-1)], metrics)
    with torch.no_grad():
        return benchmark.run(quiet=True, device="cpu")


@pytest.mark.parametrize("neuron", ["UltraLIF", "UltraDLIF", "LIF"])
@pytest.mark.parametrize("mode", ["hard", "tropical"])
def test_the_judge_agrees_exactly(mnist, train, neuron, mode):
    net = train(neuron, mnist)
    x, labels = mnist.test_x[:, :200], mnist.test_y[:200]
    with ul.mode(net, mode), torch.no_grad():
        found = judge(net, x, labels)
        (train_,) = spike_trains(net, x)
    ours = gap(net, [(x, labels)])
    report = ours[mode] if mode in ours else ours["hard"]
    assert found["ClassificationAccuracy"] == torch.tensor(report.accuracy / 100).item()  # it is a float32
    assert found["ActivationSparsity"] == float((train_ == 0).sum()) / train_.numel()
    assert found["ActivationSparsity"] == pytest.approx(1 - report.spike_rate[0], abs=1e-6)
    # Every input event reaches 32 neurons, every spike 10 classes.
    accumulates = 32 * int(x.sum()) + 10 * int(train_.sum())
    operations = found["SynapticOperations"]
    assert operations["Effective_ACs"] == accumulates / 200
    assert operations["Effective_MACs"] == 0
    assert operations["Dense"] == 10 * (784 * 32 + 32 * 10)


def test_the_judge_sees_multiplications_in_soft_spikes(mnist, train):
    net = train("UltraLIF", mnist)
    with torch.no_grad():
        found = judge(net, mnist.test_x[:, :50], mnist.test_y[:50])
    assert found["ActivationSparsity"] == 0
    assert found["SynapticOperations"]["Effective_MACs"] == 10 * 32 * 10


def test_two_judges_and_the_evaluation_count_the_same_taps_of_convolutions(tmp_path):
    from spikingjelly.activation_based.op_counter import DispatchCounterMode, SynOpCounter

    torch.manual_seed(0)
    convolutions = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
    first, second = map(ul.nn.TimeDistributed, convolutions)
    net = nn.Sequential(first, ul.LIF(), second, ul.LIF(), nn.Flatten(2), nn.Linear(96, 3)).eval()
    x, labels = (torch.rand(10, 2, 8, 8) < 0.3).float(), torch.arange(10) % 3
    result = ul.train(net, (x, labels), (x, labels), timesteps=4, epochs=1, runs_dir=tmp_path)
    counter, x = SynOpCounter(), x.repeat(4, 1, 1, 1, 1)  # an expanded image would be convolved once
    with ul.mode(net, "hard"), DispatchCounterMode([counter]), torch.no_grad():
        net(x)
    operations = judge(net, x, labels)["SynapticOperations"]
    assert counter.get_total() > 10_000 and operations["Effective_MACs"] == 0
    assert result.by_mode["hard"].operations == Operations(0.0, counter.get_total() / 10)
    assert operations["Effective_ACs"] == counter.get_total() / 10


def test_any_module_is_judged():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(6, 5),
        ul.Recurrent(ul.LIF(threshold=0.1), nn.Linear(5, 5)),
        nn.Linear(5, 2),
    )
    x = torch.rand(4, 8, 6)
    found = judge(net, x, torch.zeros(8, dtype=torch.long))
    with torch.no_grad():
        torch.testing.assert_close(for_neurobench(net)(x.transpose(0, 1)), net(x).mean(0))
        (train,) = spike_trains(net, x)
    assert 0 < found["ActivationSparsity"] == float((train == 0).sum()) / train.numel() < 1
