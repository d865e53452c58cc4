"""The fast operators compute what `ultralif.functional` defines: outputs and every gradient."""

import pytest
import torch

from ops.op_cases import CASES, run_and_differentiate, values
from ultralif.functional import AdaptiveState


def compare(case, current, shape, *, rate=False, start=None, rtol, atol, **overrides):
    constants = values(
        case, shape, current.dtype if current.dtype == torch.float64 else torch.float32, **overrides
    )
    got = run_and_differentiate(case, current, start, constants, reference=False, rate=rate)
    want = run_and_differentiate(case, current, start, constants, reference=True, rate=rate)
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].shape == want[name].shape and got[name].dtype == want[name].dtype, name
        torch.testing.assert_close(
            got[name], want[name], rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (3, 1), (3, 5)], ids=str)
def test_float64(case, shape):
    torch.manual_seed(0)
    current = torch.randn(7, 4, 3, 5, dtype=torch.float64)
    start = torch.randn(4, 3, 5, dtype=torch.float64) * 0.3
    if case.name == "adalif":
        start = AdaptiveState(start, start.abs(), (start > 0).double())
    compare(case, current, shape, start=start, rtol=1e-10, atol=1e-12)
    compare(case, current, shape, rate=True, rtol=1e-10, atol=1e-12)
