"""The committed instruction counts are those that the benchmark counts today."""

import importlib.util
import json
import shutil
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="arm-none-eabi-gcc is not installed"),
    pytest.mark.skipif(not importlib.util.find_spec("unicorn"), reason="unicorn is not installed"),
]


@pytest.mark.parametrize("name", ["vgg5, one time step", "dense int8, im2col"])
def test_counts_are_reproduced(name, tmp_path, monkeypatch, request):
    monkeypatch.syspath_prepend(str(request.config.rootpath / "benchmarks"))
    sys.modules.pop("board", None)
    import board

    if not (board.digits.DATA / "mnist").exists():
        pytest.skip("MNIST is not here")
    subject = next(subject for subject in board.SUBJECTS if subject.name == name)
    stored = json.loads(board.JSON.read_text())[name]
    assert subject.write(tmp_path / "net") == stored["state"]
    found = board.count(subject, "m4", tmp_path / "net", samples=min(4, subject.samples))
    assert found["flash"] == stored["boards"]["m4"]["flash"]
    # A few images: digits differ by a fifth, the mean of 200 is known.
    assert found["instructions"] == pytest.approx(stored["boards"]["m4"]["instructions"], rel=0.2)
