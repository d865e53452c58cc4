"""The speedrun's own parts: augmentation, the orthogonal step, and a whole small run."""

import importlib.util
import json
import lzma
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

EXAMPLE = Path(__file__).parents[2] / "examples" / "speedrun.py"


@pytest.fixture(scope="module")
def speedrun():
    spec = importlib.util.spec_from_file_location("speedrun", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def on_cpu(speedrun, monkeypatch):
    """Compute on the CPU, in float32, also where there is a GPU."""
    for name, value in {"DEVICE": torch.device("cpu"), "ON_GPU": False, "HALF": torch.float32}.items():
        monkeypatch.setattr(speedrun, name, value)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("shape", [(8, 40), (40, 8), (16, 16)])
def test_a_step_of_muon_keeps_directions_and_evens_their_sizes(speedrun, shape):
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    rotated = left.T @ speedrun.orthogonal(gradient[None])[0] @ right.T
    sizes = rotated.diagonal()
    assert sizes.min() > 0.5 and sizes.max() < 1.3
    assert (rotated - sizes.diag()).abs().max() < 1e-4


def plain_orthogonal(matrix):
    """Newton-Schulz for one matrix, written out."""
    x = (matrix.T if matrix.shape[0] > matrix.shape[1] else matrix) / matrix.norm()
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x - 4.775 * square @ x + 2.0315 * square @ square @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


@pytest.mark.usefixtures("on_cpu")
def test_muon_takes_filters_of_a_shape_together_and_each_as_if_alone(speedrun):
    torch.manual_seed(0)
    shapes = [(4, 6, 3, 3), (40, 2, 3, 3), (4, 6, 3, 3), (9, 1, 3, 3)]
    filters = [torch.randn(shape).contiguous(memory_format=torch.channels_last) for shape in shapes]
    muon = speedrun.SGD([torch.nn.Parameter(f.clone()) for f in filters], lr=0.2, muon=True)
    past = [torch.zeros_like(f) for f in filters]
    for factor in (1.0, 0.5):
        for i, p in enumerate(muon.params):
            p.grad = torch.randn_like(p)
            past[i] = 0.6 * past[i] + p.grad
            step = plain_orthogonal((p.grad + 0.6 * past[i]).flatten(1)).reshape(p.shape)
            filters[i] = filters[i] * len(p) ** 0.5 / filters[i].norm() - 0.2 * factor * step
        muon.step(torch.tensor(factor))
        for p, expected in zip(muon.params, filters, strict=True):
            torch.testing.assert_close(p.detach(), expected)


def test_the_rest_takes_the_steps_of_torchs_sgd(speedrun):
    ours, theirs = ([torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(()))] for _ in "ab")
    sgd = speedrun.SGD(ours, lr=0.3, decay=0.01)
    expected = torch.optim.SGD(theirs, lr=0.3, momentum=0.85, nesterov=True, weight_decay=0.01)
    for factor in (1.0, 0.5, 0.25):
        expected.param_groups[0]["lr"] = 0.3 * factor
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        sgd.step(torch.tensor(factor))
        expected.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.usefixtures("on_cpu")
def test_images_are_moved_mirrored_and_cut(speedrun):
    image = torch.arange(2 * 3 * 12 * 12.0).view(2, 3, 12, 12) + 1
    drawn = {"generator": torch.Generator().manual_seed(0)}
    found = speedrun.augmented(image, torch.tensor([False, True]), 2, 3, drawn)
    assert found.shape == (2, 3, 8, 8)
    assert ((found == 0).sum((2, 3)) == 9).all()
    for one, source, mirrored in zip(found, image, (False, True), strict=True):
        one = one.flip(-1) if mirrored else one
        kept = one[0] != 0
        places = [(y, x) for y in range(5) for x in range(5)]
        matches = [torch.equal(one[:, kept], source[:, y : y + 8, x : x + 8][:, kept]) for y, x in places]
        assert sum(matches) == 1


@pytest.mark.usefixtures("on_cpu")
def test_whitened_patches_are_uncorrelated(speedrun):
    torch.manual_seed(0)
    net = speedrun.Net(speedrun.Namespace(**speedrun.RECIPE | {"widths": "3,6,19,26"}))
    images = torch.randn(200, 3, 8, 8) @ torch.randn(8, 8)
    net.look(images)
    patches = net.whiten(images)[:, :12].transpose(0, 1).flatten(1)
    torch.testing.assert_close(patches @ patches.T / patches.shape[1], torch.eye(12), atol=2e-3, rtol=0)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("recipe", [{}, {"optimizer": "sgd", "timesteps": 2, "cutout": 4}])
def test_no_step_asks_the_device_for_a_number(speedrun, monkeypatch, recipe):
    """A step can only be recorded if the host needs no value: fake tensors have none to give."""
    monkeypatch.setattr(speedrun, "settle", lambda *_: None)  # it does ask, and is not recorded
    given = speedrun.RECIPE | {"epochs": 2, "batch": 4, "widths": "4,8,8,8"} | recipe
    with FakeTensorMode():
        net = speedrun.Net(speedrun.Namespace(**given))
        data = torch.randn(13, 3, 32, 32), torch.randint(10, (13,))
        speedrun.Training(net, data[0], speedrun.Namespace(**given)).fit(*data, seed=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_recorded_step_does_what_its_kernels_do_one_by_one(speedrun, capsys):
    given = {"epochs": 2, "batch": 40, "widths": "8,16,16,16", "optimizer": "sgd", "soft": 0.5}
    data = torch.randn(240, 3, 32, 32, device="cuda").bfloat16(), torch.randint(10, (240,), device="cuda")
    data = data[0].contiguous(memory_format=torch.channels_last), data[1]
    changes = []
    for graph in (0, 1):
        torch.manual_seed(0)
        recipe = speedrun.Namespace(**speedrun.RECIPE | given | {"graph": graph})
        net = speedrun.Net(recipe).cuda().to(memory_format=torch.channels_last)
        before = torch.cat([p.detach().flatten() for p in net.parameters()])
        speedrun.Training(net, data[0], recipe).fit(*data, seed=0)
        changes.append(torch.cat([p.detach().flatten() for p in net.parameters()]) - before)
    assert torch.cosine_similarity(*changes, dim=0) > 0.95  # bfloat16 does not round the same way twice
    assert not capsys.readouterr().err


def test_it_runs_and_ends_with_binary_spikes(speedrun, tmp_path, monkeypatch, capsys):
    rows = np.random.default_rng(0).integers(0, 256, (24, 3073), np.uint8)
    rows[:, 0] %= 10
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / f"{name}.bin.xz").write_bytes(lzma.compress(rows.tobytes()))
    given = {"data": tmp_path, "widths": "2,4,12,15", "epochs": 2, "batch": 20}
    given |= {"subset": 60, "timesteps": 2}
    monkeypatch.setattr(sys, "argv", ["speedrun.py", *(f"--{name}={value}" for name, value in given.items())])
    speedrun.main()
    row = json.loads(capsys.readouterr().out)
    assert row["mode"] == "hard" and 0 <= row["accuracy"] <= 100 and len(row["eps"]) == 10


def test_a_folder_without_the_data_is_named(speedrun, tmp_path):
    with pytest.raises(SystemExit, match=r"data_batch_1\.bin not found: --data must be"):
        speedrun.load(tmp_path, "train")
