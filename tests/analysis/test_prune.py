"""Merging keeps what a network computes; pruning by volume removes what spans the least."""

import pytest
import torch
from torch import Tensor

import ultralif as ul
from ultralif.analysis import log_volume, merge_redundant, prune_neurons, prune_order, redundant_groups
from ultralif.errors import InputError


def doubled_network(neuron: str = "UltraLIF") -> ul.Network:
    """A network in which neurons 1, 4 and 5 are equal."""
    torch.manual_seed(0)
    net = ul.Network((6, 7, 5, 3), neuron).double()
    with torch.no_grad():
        for copy in (4, 5):
            net.linears[0].weight[copy] = net.linears[0].weight[1]
            net.linears[0].bias[copy] = net.linears[0].bias[1]
    return net


def inputs(steps: int = 4) -> Tensor:
    return torch.randn(steps, 50, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("neuron", ["UltraLIF", "LIF", "AdaLIF", "SoftLIF"])
@pytest.mark.parametrize("mode", ["soft", "hard", "tropical"])
def test_merging_keeps_every_output(neuron: str, mode: str) -> None:
    net = doubled_network(neuron)
    ul.set_mode(net, mode)
    merged = merge_redundant(net)
    assert merged.groups == [[1, 4, 5]]
    assert merged.network.sizes == (6, 5, 5, 3)
    torch.testing.assert_close(merged.network(inputs()), net(inputs()), rtol=1e-10, atol=1e-10)
    assert net.sizes == (6, 7, 5, 3)


def test_merging_a_ring_is_exact_at_one_step_only() -> None:
    net = doubled_network("UltraDLIF")
    smaller = merge_redundant(net).network
    torch.testing.assert_close(smaller(inputs(1)), net(inputs(1)), rtol=1e-10, atol=1e-10)
    assert (smaller(inputs(4)) - net(inputs(4))).abs().max() > 1e-4


def test_near_neurons_merge_within_the_tolerance_only() -> None:
    weight = torch.tensor([[1.0, 0.0], [1.0, 1e-4], [2.0, 0.0], [0.0, 1.0]])
    bias = torch.zeros(4)
    assert redundant_groups(weight, bias) == []
    assert redundant_groups(weight, bias, tol=1e-3) == [[0, 1]]  # (2, 0) is parallel, but another neuron
    bias[1] = 0.5
    assert redundant_groups(weight, bias, tol=1e-3) == []
    assert redundant_groups(weight, None, tol=1e-3) == [[0, 1]]


def test_neurons_with_constants_of_their_own_are_not_merged() -> None:
    net = ul.Network((6, 7, 3), "UltraLIF", {"parameter_shape": (7,)}).double()
    with torch.no_grad():
        net.linears[0].weight[1] = net.linears[0].weight[0]
        net.linears[0].bias[1] = net.linears[0].bias[0]
    merged = merge_redundant(net)
    assert merged.groups == []
    assert merged.network.sizes == net.sizes


def greedy_by_brute_force(weight: Tensor, count: int) -> list[int]:
    left, order = list(range(len(weight))), []
    for _ in range(count):
        after = [float(log_volume(weight[[k for k in left if k != j]])) for j in left]
        order.append(left.pop(max(range(len(left)), key=after.__getitem__)))
    return order


@pytest.mark.parametrize(("h", "n"), [(6, 9), (6, 6), (9, 4)])
def test_volume_order_is_the_greedy_one(h: int, n: int) -> None:
    weight = torch.randn(h, n, generator=torch.Generator().manual_seed(h), dtype=torch.float64)
    count = h - 1 if h <= n else h - n
    assert prune_order(weight, count) == greedy_by_brute_force(weight, count)


def test_dependent_rows_go_first_and_the_rest_is_found() -> None:
    weight = torch.randn(8, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight[3] = weight[0] + weight[5]
    first = prune_order(weight, 1)[0]
    assert first in (0, 3, 5)
    assert log_volume(weight[[j for j in range(8) if j != first]]).isfinite()
    assert sorted(prune_order(weight, 8)) == list(range(8))
    assert sorted(prune_order(torch.randn(12, 3), 12)) == list(range(12))  # across h = n


def test_magnitude_and_random_orders() -> None:
    weight = torch.tensor([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    assert prune_order(weight, 2, "magnitude") == [1, 2]
    drawn = prune_order(weight, 3, "random", torch.Generator().manual_seed(0))
    assert sorted(drawn) == [0, 1, 2]
    assert drawn == prune_order(weight, 3, "random", torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match="by must be one of"):
        prune_order(weight, 1, "luck")  # type: ignore[arg-type]


def test_pruned_network_is_the_rest_of_the_old_one() -> None:
    net = ul.Network((6, 7, 3), "UltraLIF", {"parameter_shape": (7,)})
    with torch.no_grad():
        net.neurons[0].log_eps.copy_(torch.linspace(-1, 1, 7))
    small = prune_neurons(net, 4, by="magnitude")
    kept = sorted(net.linears[0].weight.norm(dim=1).argsort(stable=True)[3:].tolist())
    assert torch.equal(small.linears[0].weight, net.linears[0].weight[kept])
    assert torch.equal(small.linears[1].weight, net.linears[1].weight[:, kept])
    assert torch.equal(small.neurons[0].log_eps, net.neurons[0].log_eps[kept])
    assert small(torch.rand(2, 5, 6)).shape == (5, 3)
    small(torch.rand(2, 5, 6)).sum().backward()
    assert all(p.grad is not None for p in small.parameters())


def test_mean_spikes_keep_the_mean_output() -> None:
    net, x = ul.Network((6, 30, 3)).double(), inputs(3)
    with torch.no_grad():
        mean = net.observe(x).rates[0].mean(0)
        whole = net(x).mean(0)
        kept = prune_neurons(net, 10, mean_spikes=mean)(x).mean(0)
        plain = prune_neurons(net, 10)(x).mean(0)
    torch.testing.assert_close(kept, whole)
    assert (plain - whole).abs().max() > 0.01


def test_bad_requests_are_named() -> None:
    net = doubled_network()
    with pytest.raises(InputError, match="keep must be between 1 and the layer's 7 neurons, got 0"):
        prune_neurons(net, 0)
    with pytest.raises(InputError, match="layer must be a hidden layer, 0 to 1, got 2"):
        prune_neurons(net, 1, layer=2)
    assert prune_neurons(net, 2, layer=1).sizes == (6, 7, 2, 3)
