"""The code in docs/deployment.md runs."""

import re
from pathlib import Path

import pytest
import torch

import ultralif as ul

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"


@pytest.mark.filterwarnings("ignore")  # of the libraries that our neurons are used in
def test_the_page_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    x = (torch.rand(10, 16, 12, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    names = {
        "net": ul.Network((12, 10, 4), neuron="UltraDLIF"),
        "batches": [(x, torch.arange(16) % 4)],
        "x": x,
        "mem": None,
        "state": None,
    }
    for block in blocks:
        if "for_snntorch" in block:
            names["x"] = x[0]
        exec(block, names)  # noqa: S102
    assert names["found"]["hard"].agreement > 0
    assert names["spk"].shape == names["spike"].shape == (16, 12)
