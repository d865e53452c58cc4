"""The speedrun's own parts: augmentation, the orthogonal step, and a whole small run."""

import importlib.util
import json
import lzma
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "speedrun.py"


@pytest.fixture(scope="module")
def speedrun():
    spec = importlib.util.spec_from_file_location("speedrun", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("shape", [(8, 40), (40, 8), (16, 16)])
def test_a_step_of_muon_keeps_directions_and_evens_their_sizes(speedrun, shape):
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    rotated = left.T @ speedrun.Muon.orthogonal(gradient) @ right.T
    sizes = rotated.diagonal()
    assert sizes.min() > 0.5 and sizes.max() < 1.3
    assert (rotated - sizes.diag()).abs().max() < 1e-4


def test_images_are_moved_mirrored_and_cut(speedrun):
    image = torch.arange(2 * 3 * 12 * 12.0).view(2, 3, 12, 12) + 1
    random = torch.Generator().manual_seed(0)
    found = speedrun.augmented(image, torch.tensor([False, True]), 2, 3, random)
    assert found.shape == (2, 3, 8, 8)
    assert ((found == 0).sum((2, 3)) == 9).all()
    for one, source, mirrored in zip(found, image, (False, True), strict=True):
        one = one.flip(-1) if mirrored else one
        kept = one[0] != 0
        places = [(y, x) for y in range(5) for x in range(5)]
        matches = [torch.equal(one[:, kept], source[:, y : y + 8, x : x + 8][:, kept]) for y, x in places]
        assert sum(matches) == 1


def test_whitened_patches_are_uncorrelated(speedrun):
    torch.manual_seed(0)
    net = speedrun.Net(speedrun.Namespace(**speedrun.RECIPE | {"width": 0.05}))
    images = torch.randn(200, 3, 8, 8) @ torch.randn(8, 8)
    net.look(images)
    patches = net.whiten(images).transpose(0, 1).flatten(1)
    torch.testing.assert_close(patches @ patches.T / patches.shape[1], torch.eye(12), atol=2e-3, rtol=0)


def test_it_runs_and_ends_with_binary_spikes(speedrun, tmp_path, monkeypatch):
    rows = np.random.default_rng(0).integers(0, 256, (24, 3073), np.uint8)
    rows[:, 0] %= 10
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / f"{name}.bin.xz").write_bytes(lzma.compress(rows.tobytes()))
    given = {"data": tmp_path, "out": tmp_path / "out", "width": 0.03, "epochs": 2, "batch": 20}
    given |= {"subset": 60, "timesteps": 2}
    monkeypatch.setattr(sys, "argv", ["speedrun.py", *(f"--{name}={value}" for name, value in given.items())])
    speedrun.main()
    row = json.loads((tmp_path / "out").read_text())
    assert row["mode"] == "hard" and 0 <= row["accuracy"] <= 100 and len(row["eps"]) == 10
