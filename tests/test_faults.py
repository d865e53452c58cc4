"""The table of faults keeps up with the code: each text that a fault changes is in its file once."""

from pathlib import Path

import pytest

from faults.table import FAULTS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_can_be_put_in(fault):
    assert (ROOT / "src" / "ultralif" / fault.file).read_text().count(fault.was) == 1
