"""Networks that NIR can represent, and the libraries that read its files."""

import contextlib
import io

import nir
import torch
from torch import Tensor

import ultralif as ul
from ultralif.export.harden import spike_trains

STEPS = 30


def network(neuron: str, seed: int = 0, readout="linear", **options) -> ul.Network:
    torch.manual_seed(seed)
    net = ul.Network((12, 10, 8, 4), neuron=neuron, neuron_options=options, readout=readout)
    with torch.no_grad():
        for linear in net.linears:
            linear.weight.mul_(3)
    return net


def spikes(seed: int = 1) -> Tensor:
    return (torch.rand(STEPS, 6, 12, generator=torch.Generator().manual_seed(seed)) < 0.4).float()


@torch.no_grad()
def outputs(net: ul.Network, x: Tensor, mode: str) -> Tensor:
    """Return what the last node puts out at every step: W s, or the last layer's spikes."""
    with ul.mode(net, mode):
        trains = spike_trains(net, x)
    assert all(0.02 < train.mean() < 0.98 for train in trains)
    return net.linears[-1](trains[-1]) if net.readout == "linear" else trains[-1]


def in_norse(path, x: Tensor) -> Tensor:
    import norse.torch

    module = norse.torch.from_nir(nir.read(path), dt=1e-4)
    state, out = None, []
    for step in x:
        y, state = module(step, state)
        out.append(y)
    return torch.stack(out)


def in_snntorch(path, x: Tensor) -> Tensor:
    from snntorch.import_nir import import_from_nir

    with contextlib.redirect_stdout(io.StringIO()):
        module = import_from_nir(nir.read(path))
    state, out = None, []
    for step in x:
        y, state = module(step, state)
        out.append(y)
    return torch.stack(out)


def in_spikingjelly(path, x: Tensor) -> Tensor:
    from spikingjelly.activation_based.nir_exchange import import_from_nir

    module = import_from_nir(nir.read(path), dt=1e-4)
    state, out = None, []
    for step in x:
        y, state = module(step, state)
        out.append(y)
    return torch.stack(out)


READERS = {"norse": in_norse, "snntorch": in_snntorch, "spikingjelly": in_spikingjelly}


def convolutional(neuron=ul.LIF, pool=torch.nn.AvgPool2d) -> torch.nn.Module:
    """Convolution, batch norm and pooling before the neurons; pooling of spikes; all read out by spikes."""
    torch.manual_seed(3)
    nn = torch.nn
    norm = nn.BatchNorm2d(5)
    norm.running_mean.normal_(0, 0.1), norm.running_var.uniform_(0.1, 0.3)
    net = nn.Sequential(
        ul.TimeDistributed(nn.Sequential(nn.Conv2d(2, 5, 3, padding=1, bias=False), norm, pool(2))),
        neuron(),
        ul.TimeDistributed(pool(2)),
        ul.TimeDistributed(nn.Conv2d(5, 4, (2, 1), stride=(1, 2))),
        neuron(),
        nn.Flatten(2),
        nn.Linear(4, 6),
        neuron(),
    )
    with torch.no_grad():
        net[3].module.weight.mul_(4)
        net[6].weight.mul_(3)
    return net.eval()
