"""Decision boundaries in a plane: where they lie, and that the three modes are really switched."""

import pytest
import torch

import ultralif as ul
from ultralif.analysis import Plane, boundary_slice, boundary_slices, class_scores
from ultralif.errors import InputError

AXES = Plane(
    torch.zeros(2, dtype=torch.float64),
    torch.tensor([1.0, 0.0], dtype=torch.float64),
    torch.tensor([0.0, 1.0], dtype=torch.float64),
)


def test_boundary_is_where_two_scores_cross() -> None:
    cut = boundary_slice(lambda x: torch.stack((x[:, 0], x[:, 1]), 1), AXES, 1.0, 100)  # tie on the diagonal
    rows, columns = cut.boundary.nonzero().T
    assert ((rows - columns).abs() <= 1).all()
    assert len(rows) >= 99
    assert torch.equal(cut.tied, torch.eye(100, dtype=torch.bool))
    right_of_diagonal = torch.ones(100, 100).triu(1).bool()
    assert (cut.labels[right_of_diagonal] == 0).all()
    assert float(cut.margin[0, -1]) == pytest.approx(2.0)


def test_ties_of_piecewise_constant_scores_fill_cells() -> None:
    cut = boundary_slice(lambda x: torch.stack(((x[:, 0] > 0.5).double(), 0 * x[:, 0]), 1), AXES, 1.0, 80)
    assert 0.7 < float(cut.tied.double().mean()) < 0.8  # the half-plane x <= 0.5 of [-1, 1]


def test_slices_through_samples_match_the_network_in_each_mode() -> None:
    torch.manual_seed(0)
    net = ul.Network((5, 16, 4), "UltraDLIF").double()
    samples = torch.rand(3, 5, dtype=torch.float64)
    places, extent, slices = boundary_slices(net, samples, timesteps=3, resolution=41)
    assert list(slices) == ["soft", "hard", "tropical"]
    assert [neuron.mode for neuron in net.neurons] == ["soft"]  # as before
    assert extent == pytest.approx(1.5 * float(places.abs().max()))
    margins = []
    for name, cut in slices.items():
        with ul.mode(net, name), torch.no_grad():
            middle = net(samples.mean(0).expand(3, 1, 5))[0]
        assert int(cut.labels[20, 20]) == int(middle.argmax())  # the middle of the grid is the samples' mean
        margins.append(cut.margin)
    assert not torch.allclose(margins[0], margins[1])
    assert not torch.allclose(margins[1], margins[2])


def test_scores_hold_the_input_for_all_steps() -> None:
    net, x = ul.Network((4, 6, 3)), torch.rand(7, 4)
    torch.testing.assert_close(class_scores(net, 5)(x), net(x.expand(5, 7, 4)))


def test_bad_requests_are_named() -> None:
    net = ul.Network((4, 6, 3))
    with pytest.raises(InputError, match="the network's 4 inputs, got 5"):
        boundary_slices(net, torch.rand(3, 5))
    with pytest.raises(InputError, match="resolution"):
        boundary_slices(net, torch.rand(3, 4), resolution=1)
    with pytest.raises(InputError, match="two classes"):
        boundary_slice(lambda x: x[:, :1], AXES, 1.0, 10)
