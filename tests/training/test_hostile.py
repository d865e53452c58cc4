"""Stores that somebody tampered with, or whose processes were killed: the other runs are safe."""

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ultralif as ul
from training.small import files, small, stop_after
from ultralif.cli import main
from ultralif.errors import InputError, JobError
from ultralif.training import Interrupted, RunOptions, Store, plan, train_stack
from ultralif.training import store as store_module
from ultralif.training.checkpoint import Damaged
from ultralif.training.config import document_id
from ultralif.training.evaluate import constants_of
from ultralif.training.loop import stack_id

QUICK = {"epochs": 1, "timesteps": 1, "hidden": (3,)}


@pytest.fixture
def filled(store: Store) -> Store:
    train_stack([small(**QUICK), small(**QUICK, neuron="LIF")], store)
    return store


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Change a file of a run, and its manifest as well."""
    (folder / name).unlink()
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def change(folder: Path, **values: Any) -> None:
    rewrite(
        folder, "result.json", json.dumps(json.loads((folder / "result.json").read_text()) | values).encode()
    )


def test_an_id_does_not_lead_out_of_the_store(filled: Store, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    with sqlite3.connect(filled.index) as index:
        index.execute("UPDATE runs SET id = ? WHERE neuron = 'LIF'", ("cafe00000000/../../victim",))
    index.close()
    with pytest.raises(InputError):
        filled.remove("cafe")
    assert victim.is_dir() and len(filled.rows()) == 1
    for name in ("..", "cafe00000000/../../victim", "CAFE00000000", "cafe0000000\n", ""):
        with pytest.raises(InputError):
            filled.path(name)
        with pytest.raises(InputError):
            filled.checkpoints(name)


@pytest.mark.parametrize("name", ["index.sqlite", ".training/{}.lock"])
def test_nothing_is_written_through_a_link(store: Store, tmp_path: Path, name: str) -> None:
    config, victim = small(**QUICK), tmp_path / "victim"
    victim.write_bytes(b"")
    link = store.root / name.format(stack_id([config]))
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    with pytest.raises(JobError):
        train_stack([config], store)
    assert victim.read_bytes() == b"" and link.is_symlink()


def test_folders_that_were_swapped_are_refused(filled: Store) -> None:
    first, second = (filled.path(row.id) for row in filled.rows())
    first.rename(filled.root / "aside")
    second.rename(first)
    (filled.root / "aside").rename(second)
    with pytest.raises(Damaged, match="does not contain the run that it is named after"):
        filled.read(first.name)
    assert filled.rebuild()[0] == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: rewrite(folder, "result.json", b"[]"),
        lambda folder: rewrite(folder, "result.json", b"{}"),
        lambda folder: rewrite(folder, "history.json", b'{"a": 1}'),
        lambda folder: rewrite(folder, "history.json", b"[1]"),
        lambda folder: change(folder, accuracy=3),
        lambda folder: change(folder, accuracy={"hard": "much"}),
        lambda folder: change(folder, seed=-1, timesteps=[]),
        lambda folder: change(folder, energy={"operations": {"hard": 1}}),
        lambda folder: change(folder, neuron=None),
        lambda folder: change(folder, spike_rates={"hard": {"a": 1}}),
        lambda folder: change(folder, epochs="x" * 9999),
        lambda folder: ((folder / "model.safetensors").unlink(), os.mkfifo(folder / "model.safetensors")),
        lambda folder: (
            (folder / "model.safetensors").unlink(),
            (folder / "model.safetensors").symlink_to("/dev/zero"),
        ),
    ],
)
def test_a_hostile_run_does_not_stop_the_others(
    damage: Callable[[Path], Any], filled: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its manifest is right; the commands name it and go on, or refuse it in one line."""
    bad, good = small(**QUICK).id, small(**QUICK, neuron="LIF").id
    damage(filled.path(bad))
    where = ["--runs-dir", str(filled.root)]
    assert main(["runs", "rebuild", *where]) == 0
    assert bad in capsys.readouterr().err
    assert main(["runs", "list", "--json", *where]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [good]
    for words in (["runs", "show", bad], ["eval", bad], ["export", bad, "--to", "nir", "--out", "x.nir"]):
        assert main([*words, *where]) in (1, 2)
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("ultralif: ")


def test_rows_that_are_not_results_are_named_and_left_out(
    filled: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = small(**QUICK).id
    for text in ("1", "{", "[" * 100_000, '{"id": "\\u001b[31m"}', "null", '{"accuracy": []}'):
        with sqlite3.connect(filled.index) as index:
            index.execute("UPDATE runs SET result = ? WHERE id = ?", (text, bad))
        index.close()
        complaints: list[str] = []
        assert [row.neuron for row in filled.rows(complain=complaints.append)] == ["LIF"]
        assert len(complaints) == 1 and bad in complaints[0] and complaints[0].isprintable()


def test_a_view_in_place_of_the_table_is_refused(filled: Store) -> None:
    with sqlite3.connect(filled.index) as index:
        index.execute("DROP TABLE runs")
        index.execute(
            "CREATE VIEW runs AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
            "SELECT * FROM n"
        )
    index.close()
    with pytest.raises(JobError, match="is not an index of runs"):
        filled.rows()


def test_the_index_is_for_its_owner_alone(tmp_path: Path) -> None:
    root = tmp_path / "open"
    root.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        store = Store(root)
        store.prepare()
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.index.stat().st_mode) == 0o600


def test_a_neuron_that_is_not_known_here(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    class Passing(ul.LIF):
        pass

    ul.register(Passing)
    run = small(**QUICK, neuron="Passing")
    train_stack([run, small(**QUICK)], store)
    del ul.NEURONS["Passing"]
    where = ["--runs-dir", str(store.root)]
    assert main(["runs", "list", *where]) == 0
    said = capsys.readouterr()
    assert run.id in said.out and small(**QUICK).id in said.out and "Passing is not known here" in said.err
    assert main(["runs", "show", run.id, *where]) == 0
    assert "neuron=Passing" in capsys.readouterr().out
    assert store.rebuild() == (2, [])
    assert main(["report", "--out", str(store.root / "r.html"), *where]) == 0
    assert main(["eval", run.id, *where]) == 2


class Killed(BaseException):
    """The process ends here."""


def test_a_stack_that_was_killed_while_it_was_written_is_finished_as_a_whole(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without an index, the members that were written count as finished only with the others."""
    configs = [small(**QUICK), small(**QUICK, neuron="LIF"), small(**QUICK, neuron="PLIF")]
    whole = Store(tmp_path / "whole")
    train_stack(configs, whole)
    write, count = store_module.write_folder, 0

    def killed(*args: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise Killed
        write(*args)

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "write_folder", killed)
        with pytest.raises(Killed):
            train_stack(configs, store)
    (stack,) = plan(configs, store)
    assert {config.id for config in stack} == {config.id for config in configs}
    train_stack(stack, store)
    assert all(files(store, config) == files(whole, config) for config in configs)


def test_a_run_that_ends_while_the_index_is_made_again_is_kept(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = small(**QUICK, seed=9)
    scan, calls = Store._from_folders, []

    def scanned(self: Store, names: Any) -> Any:
        found = scan(self, names)
        if not calls:
            calls.append(1)
            train_stack([late], filled)  # after the folders were read
        return found

    monkeypatch.setattr(Store, "_from_folders", scanned)
    assert filled.rebuild() == (3, [])
    assert filled.finished([late.id]) == {late.id}


def test_runs_of_another_schema_are_named_and_left_out(store: Store) -> None:
    config = small(**QUICK)
    train_stack([config], store)
    document = {"schema": 2, "epochs": 1}
    name = document_id(document)
    rewrite(store.path(config.id), "config.json", json.dumps(document).encode())
    store.path(config.id).rename(store.path(name))
    count, complaints = store.rebuild()
    assert count == 0 and "schema 2" in complaints[0] and "train the run again" in complaints[0]
    with pytest.raises(JobError, match="schema 2"):
        store.read(name)
    with contextlib.closing(sqlite3.connect(store.index)) as index:
        index.execute("PRAGMA user_version = 2")
    with pytest.raises(JobError, match=r"version 2, .* reads version 3"):
        store.rows()


def test_checkpoints_of_finished_stacks_are_removed_with_a_new_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, begun = small(**QUICK), small(seed=3)
    with monkeypatch.context() as patched:
        patched.setattr("ultralif.training.loop.shutil.rmtree", lambda *_, **__: None)  # killed before that
        train_stack([done], store, RunOptions(checkpoint_seconds=0))
    with pytest.raises(Interrupted):
        train_stack([begun], store, RunOptions(stopping=stop_after(1)))
    assert len(list((store.root / ".training").iterdir())) == 2
    assert store.rebuild() == (1, [])
    (left,) = (store.root / ".training").iterdir()
    assert left.name == stack_id([begun])


def test_a_constant_is_shown_as_the_network_uses_it() -> None:
    """A learned sharpness may leave its range; the network, and so the report, keeps it inside."""
    network = ul.Network((4, 3, 2), neuron="DSpike")
    with torch.no_grad():
        network.neurons[0].log_sharpness.fill_(math.log(200.0))
    assert constants_of(network, learned=True)["sharpness"] == [pytest.approx(100.0)]
