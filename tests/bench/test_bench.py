"""The benchmark measures what it says, leaves out what it cannot run, and refuses wrong neurons."""

import json
from importlib import import_module

import pytest
import torch

from ultralif.bench import OURS, Layer, measure, refuse_unless_right
from ultralif.bench.plan import EVERY, Part
from ultralif.bench.stopwatch import Spread
from ultralif.bench.subjects import PEERS, BenchSubject, Skip, build
from ultralif.cli import main
from ultralif.errors import JobError
from ultralif.ops.cpu.plan import CallPlan

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def threads():
    """Leave the number of threads as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_rows_say_what_was_measured():
    layer = Layer(3, 2, 8)
    parts = [Part("layer", ("copy", "UltraDLIF", "UltraDLIF loop", "LIF rate"), layer)]
    rows = {row.subject: row for row in measure(parts, CPU, quick=True)}
    assert list(rows) == ["copy", "UltraDLIF", "UltraDLIF loop", "LIF rate"]
    for row in rows.values():
        assert 0 < row.low <= row.ms <= row.high
        assert row.ns_per_step == pytest.approx(1e6 * row.ms / (3 * 2 * 8))
    assert rows["copy"].kept == rows["LIF rate"].kept == 0
    assert rows["UltraDLIF"].kept < 1  # its temperature, once for the layer
    assert rows["UltraDLIF loop"].kept >= 32


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # norse's
@pytest.mark.parametrize("name", EVERY)
def test_every_subject_integrates_the_whole_layer(name):
    layer = Layer(4, 3, 5)
    try:
        run = BenchSubject(name, layer, CPU)
    except Skip as reason:
        pytest.skip(str(reason))
    out = run.forward(run.x)
    assert out.shape == (4, 3, 5)
    (gradient, *_) = run()
    assert gradient.shape == (4, 3, 5) and gradient.isfinite().all() and gradient.count_nonzero() > 0


def test_spikingjelly_is_given_our_neuron():
    """Membrane, threshold and reset are the same, so that the same spikes come out."""
    try:
        theirs, _ = build("SpikingJelly LIF", CPU)
    except Skip as reason:
        pytest.skip(str(reason))
    ours, _ = build("LIF", CPU)
    current = torch.rand(20, 4, 6)
    assert torch.equal(theirs(current), ours(current))


def test_a_library_that_is_missing_is_left_out_with_a_note(monkeypatch):
    monkeypatch.setitem(PEERS, "Nobody's LIF", ("no_such_library", lambda module, device: None))
    notes: list[str] = []
    parts = [Part("layer", ("copy", "Nobody's LIF"), Layer(2, 2, 4))]
    assert [row.subject for row in measure(parts, CPU, quick=True, note=notes.append)] == ["copy"]
    assert len(notes) == 1 and "no_such_library is not installed" in notes[0]


def test_wrong_neurons_are_not_timed(monkeypatch):
    refuse_unless_right(CPU)

    right = CallPlan.forward
    monkeypatch.setattr(CallPlan, "forward", lambda *given: (1.01 * right(*given)[0], *right(*given)[1:]))
    with pytest.raises(JobError, match="UltraLIF differs from its definition"):
        refuse_unless_right(CPU)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("quick", [True, False])
def test_plans_name_subjects_that_exist(device, quick, request, monkeypatch):
    monkeypatch.syspath_prepend(str(request.config.rootpath / "benchmarks"))
    for part in import_module("neurons").PLANS[device](quick):
        for name in part.subjects:
            kind, _, way = name.partition(" ")
            assert (
                name == "copy" or name in PEERS or (kind in OURS and way in ("", "loop", "rate", "compiled"))
            )


def test_a_spread_holds_its_median():
    assert Spread.of([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert Spread.of([5.0]) == (5.0, 5.0, 5.0)


def test_the_command_prints_one_document(capsys):
    small = ["--timesteps", "2", "--batch", "2", "--features", "4"]
    assert main(["bench", *small, "--device", "cpu", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["torch"] == torch.__version__
    assert {row["subject"] for row in document["rows"]} >= {"copy", *OURS}


@pytest.mark.parametrize("flag", ["--timesteps", "--batch", "--features", "--threads"])
def test_the_command_refuses_an_empty_layer(flag, capsys):
    assert main(["bench", flag, "0"]) == 2
    assert flag.strip("-") in capsys.readouterr().err
