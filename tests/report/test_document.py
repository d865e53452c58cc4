"""The report's document says what the runs say."""

import base64
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ultralif as ul
from report.made_runs import made_result, made_runs
from ultralif.cli.arguments import read_arguments
from ultralif.cli.train import Train
from ultralif.errors import InputError
from ultralif.report import Section, Table
from ultralif.report.document import MOST_EPOCHS, make_document
from ultralif.report.gather import Entry, differences, gather, label_of
from ultralif.report.inside import _picture, choose, look, observe, slices
from ultralif.training import Store
from ultralif.training.result import ModeResult


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for options in ({}, {"seed": 43}, {"neuron": "FullPLIF"}, {"hidden": (16,), "learn_eps": False}):
        ul.train(ul.RunConfig(**{"epochs": 2, "timesteps": 3, **options}), runs_dir=folder)
    return folder


@pytest.fixture(scope="module")
def entries(runs: Path) -> list[Entry]:
    return gather([], runs)[0]


def column(document: dict, name: str) -> list:
    return document["runs"]["columns"][name]


def test_runs_are_found_by_store_folder_and_name(runs: Path) -> None:
    everything = {entry.config.id for entry in gather([], runs)[0]}
    assert len(everything) == 4
    one = sorted(everything)[0]
    for sources in ([one[:8]], [str(runs / one)], [str(runs / one), one]):
        found, notes = gather(sources, runs)
        assert [entry.config.id for entry in found] == [one]
        assert notes == []
    with pytest.raises(InputError, match="there are no runs in"):
        gather([], runs / "nothing")


def test_a_damaged_run_is_left_out_and_named(runs: Path, tmp_path: Path) -> None:
    ul.train(ul.RunConfig(epochs=1, timesteps=1), runs_dir=tmp_path)
    other = ul.train(ul.RunConfig(epochs=1, timesteps=2), runs_dir=tmp_path)
    (Path(other.path) / "model.safetensors").write_bytes(b"changed")
    found, notes = gather([], tmp_path)
    assert len(found) == 1
    assert other.id in notes[0]


def test_columns_are_the_results(entries: list[Entry], runs: Path) -> None:
    document = make_document(entries, [], inside=0)
    rows = {row.id: row.to_dict() for row in Store(runs).rows()}
    for i, run in enumerate(column(document, "id")):
        row = rows[run]
        for mode in row["accuracy"]:
            assert column(document, f"accuracy_{mode}")[i] == pytest.approx(row["accuracy"][mode], rel=1e-4)
            assert column(document, f"rate_{mode}")[i] == pytest.approx(row["spike_rate"][mode], rel=1e-4)
            nanojoules = row["energy"]["operations"][mode]["picojoules"] / 1000
            assert column(document, f"nanojoules_{mode}")[i] == pytest.approx(nanojoules, rel=1e-4)
        int8 = row["energy"]["int8"]
        assert column(document, "break_even")[i] == pytest.approx(int8["break_even"], rel=1e-4)
        for mode, picojoules in int8["snn_picojoules"].items():
            assert column(document, f"int8_{mode}")[i] == pytest.approx(picojoules / 1000, rel=1e-4)
        environment = document["runs"]["pools"]["environment"][column(document, "environment")[i]]
        assert environment == row["environment"]
    json.dumps(document, allow_nan=False)


def test_learned_constants_are_those_of_the_network(entries: list[Entry]) -> None:
    document = make_document(entries, [], inside=0)
    for entry, learned in zip(entries, column(document, "learned"), strict=True):
        _, neuron = next(ul.load(entry.folder).layers())
        names = [name for name in neuron.declared() if neuron.learned(name)]
        assert set(learned or {}) == set(names)
        for name in names:
            assert learned[name] == pytest.approx(
                [float(torch.as_tensor(neuron.constant(name)).detach().mean())], rel=1e-4
            )


def test_runs_are_told_apart_by_what_differs(entries: list[Entry]) -> None:
    varies = dict(
        zip(
            (e.config.id for e in entries),
            column(make_document(entries, [], inside=0), "varies"),
            strict=True,
        )
    )
    assert sorted(varies.values()) == ["", "", "", "hidden 16, learn eps False"]


def test_many_differences_are_shortened_and_still_told_apart(entries: list[Entry]) -> None:
    first = entries[0]
    many = {"shift": 1, "gain": 0.25, "label_smoothing": 0.1, "eps_speed": 2.0}
    configs = [first.config, first.config.with_(**many), first.config.with_(**(many | {"shift": 2}))]
    document = make_document([replace(first, config=config) for config in configs], [], inside=0)
    plain, one, other = column(document, "varies")
    assert plain == "" and one.endswith(" and 2 more") and other == f"{one} (2)"


def test_the_command_makes_the_run_again(entries: list[Entry]) -> None:
    """The flags of the page, given to the command line, are the run."""
    document = make_document(entries, [], inside=0)
    for entry, place in zip(entries, column(document, "rest"), strict=True):
        flags = " ".join(document["runs"]["pools"]["rest"][place]["flags"]).split()
        named = ("dataset", "neuron", "timesteps", "seed", "sparsity")
        given = [word for name in named for word in (f"--{name}", str(getattr(entry.config, name)))]
        assert read_arguments(Train, [*given, *flags], "train").run == entry.config


def test_histories_keep_their_ends_and_are_short() -> None:
    (entry,) = made_runs(1)
    history = make_document([entry], [], inside=0)["history"]
    epochs = history["grids"][history["grid"][0]]
    assert (epochs[0], epochs[-1], len(epochs)) == (1, 100, MOST_EPOCHS)
    for place, epoch in enumerate(epochs):
        assert history["loss"][0][place] == pytest.approx(entry.history[epoch - 1]["loss"], rel=1e-4)
    assert history["leak"][0] == [0.9]  # it never changed


def test_a_network_is_observed_as_it_computes(entries: list[Entry]) -> None:
    entry = next(e for e in entries if e.config.neuron == "UltraLIF" and e.config.hidden == (64,))
    subject = look(entry)
    seen = observe(subject, samples=4)
    assert len(set(seen["labels"])) == 4
    x = subject.x[:, seen["samples"]]
    for name, shown in seen["modes"].items():
        with ul.mode(subject.network, name):
            out = subject.network.observe(x)
        assert shown["decided"] == out.logits.argmax(1).tolist()
        layer = shown["layers"][0]
        spikes = np.frombuffer(base64.b64decode(layer["spikes"]), np.uint8).reshape(4, 3, 64) / 255
        np.testing.assert_allclose(spikes.mean(1), out.rates[0].detach(), atol=1 / 255)
    membrane = np.frombuffer(base64.b64decode(layer["membrane"]), np.uint8).reshape(4, 3, 64) / 255
    with ul.mode(subject.network, "tropical"):
        (recorded,) = ul.plot.record(subject.network, x)
    shown = layer["low"] + membrane * (layer["high"] - layer["low"])
    step = (layer["high"] - layer["low"]) / 255
    np.testing.assert_allclose(shown, recorded.membrane.transpose(0, 1), atol=step)


def test_slices_hold_the_classes_of_their_samples(entries: list[Entry]) -> None:
    """At the place of a sample the plane has the class that the network gives it."""
    subject = look(entries[0])
    cut = slices(subject)
    size, held = cut["resolution"], cut["steps"]
    cells = np.frombuffer(base64.b64decode(cut["cells"]["hard"]), np.uint8).reshape(size, size)
    x = subject.x.mean(0)
    chosen = [int((subject.labels == label).nonzero()[0]) for label in cut["labels"]]
    with ul.mode(subject.network, "hard"):
        answers = subject.network(x[chosen].expand(held, *x[chosen].shape)).argmax(1).tolist()
    hits = 0
    for (right, up), answer in zip(cut["places"], answers, strict=True):
        column_, row = (round((c / cut["extent"] + 1) / 2 * (size - 1)) for c in (right, up))
        near = cells[max(row - 1, 0) : row + 2, max(column_ - 1, 0) : column_ + 2] >> 3
        hits += int((near == answer).any())
    assert hits == 3


def test_choose_takes_the_best_of_each_kind(entries: list[Entry]) -> None:
    first, second = choose(entries, 2)
    assert (first.config.neuron, second.config.neuron) == ("UltraLIF", "FullPLIF")
    soft = [e.result.by_mode["soft"].accuracy for e in entries if e.config.neuron == "UltraLIF"]
    assert first.result.by_mode["soft"].accuracy == max(soft)


def test_a_network_whose_data_are_gone_is_noted(
    monkeypatch: pytest.MonkeyPatch, entries: list[Entry]
) -> None:
    def gone(*_: object) -> None:
        raise InputError("the data are not on this machine")

    monkeypatch.setattr("ultralif.report.inside.load_data", gone)
    notes: list[str] = []
    document = make_document(entries, notes, inside=1)
    assert document["networks"] == []
    assert "the data are not on this machine" in notes[0]
    assert notes[0] in document["notes"]


def test_what_is_not_finite_is_not_known() -> None:
    """A run that diverged has numbers that JSON does not."""
    (entry,) = made_runs(1, epochs=2)
    by_mode = {"hard": ModeResult(math.nan), "soft": ModeResult(math.inf)}
    result = replace(entry.result, status="diverged", by_mode=by_mode)
    document = make_document([Entry(entry.config, result, [])], [], inside=0)
    assert "accuracy_hard" in document["runs"]["columns"]
    assert column(document, "accuracy_hard") == [None]
    json.dumps(document, allow_nan=False)


def test_a_run_is_labelled_by_what_differs_and_shown_in_its_own_mode() -> None:
    kinds: list[tuple[dict[str, object], str]] = [
        ({"neuron": "LIF"}, "hard"),
        ({"neuron": "LIF", "hidden": (128,)}, "hard"),
        ({}, "soft"),
        ({"mode": "hard"}, "hard"),
    ]
    entries = []
    for options, mode in kinds:
        config = ul.RunConfig(dataset="mnist", epochs=2, **options)
        result = made_result(config, {"soft": 90.0, "hard": 80.0}, dict.fromkeys(("soft", "hard"), 0.1))
        assert result.mode == mode
        entries.append(Entry(config, result, []))
    labels = map(label_of, (entry.config for entry in entries), differences(entries))
    shown = dict(zip(labels, (entry.result.own.accuracy for entry in entries), strict=True))
    assert shown == {"LIF": 80.0, "LIF hidden=[128]": 80.0, "UltraLIF": 90.0, "UltraLIF mode=hard": 80.0}


def test_sections_and_references_of_the_caller_are_in_the_document() -> None:
    table = Table("mine", "A table", ("claim", "verdict"), [("it works", "holds")], ["a note"])
    section = Section("Mine", "What I found.", [table])
    document = make_document(
        made_runs(1), [], inside=0, sections=[section], references={"mnist": {"LIF": {1: 95.0}}}
    )
    (shown,) = document["sections"]
    assert shown["title"] == "Mine" and shown["tables"][0]["rows"] == [("it works", "holds")]
    assert document["references"]["mnist"]["LIF"][1] == 95.0
    assert make_document(made_runs(1), [], inside=0)["sections"] == []


@pytest.mark.parametrize(
    ("shape", "is_events", "size"),
    [
        ((10, 28, 20), False, (28, 20)),
        ((10, 784), False, (28, 28)),
        ((10, 1, 28, 28), False, (28, 28)),
        ((10, 2, 34, 34), True, (34, 34)),
        ((30, 64), True, (64, 30)),
        ((10, 12), False, (12, 10)),
    ],
)
def test_an_input_is_shown_as_the_picture_that_it_is(
    shape: tuple[int, ...], is_events: bool, size: tuple[int, int]
) -> None:
    x = torch.rand(shape)
    picture = _picture(x, is_events)
    assert (picture["height"], picture["width"]) == size
