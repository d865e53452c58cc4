"""One index finds all runs, whoever writes them."""

import json
import sqlite3
import time
from pathlib import Path

import pytest

from training.forks import ROUNDS, ROWS, WRITERS
from training.small import small
from ultralif.errors import InputError, JobError
from ultralif.training import RunConfig, Store, train_stack
from ultralif.training.store import _TABLE, default_runs_dir

FORKS = Path(__file__).with_name("forks.py")


RESULT = {"status": "done", "dataset": "digits", "neuron": "LIF", "timesteps": 1, "mode": "hard"}
"""The least that a result says."""


def fill(store: Store, count: int) -> list[str]:
    """Put rows into an index as quickly as SQLite takes them."""
    store.root.mkdir(parents=True)
    names = [f"{number * 2654435761 % 2**48:012x}" for number in range(count)]
    with sqlite3.connect(store.index) as index:
        index.executescript(_TABLE)
        index.executemany(
            "INSERT INTO runs VALUES (?, ?, 'done', ?, ?, ?, ?, 0.0, ?)",
            (
                (
                    name,
                    float(number),
                    ("mnist", "digits")[number % 2],
                    ("LIF", "UltraLIF", "PLIF")[number % 3],
                    (1, 10, 30)[number % 3],
                    number,
                    json.dumps(RESULT | {"id": name, "seed": number}),
                )
                for number, name in enumerate(names)
            ),
        )
    index.close()
    return names


def test_one_run_among_a_hundred_thousand(store: Store) -> None:
    names = fill(store, 100_000)
    searches = (
        lambda: store.find(names[77_777][:11]) == names[77_777],
        lambda: store.rows(runs=[names[5]])[0].seed == 5,
        lambda: store.finished([names[9], "absent"]) == {names[9]},
        lambda: (
            store.rows(dataset="digits", neuron="PLIF", timesteps=30, sparsity=0.0, seed=99_995)[0].seed
            == 99_995
        ),
        lambda: [row.seed for row in store.rows(2)] == [99_999, 99_998],
    )
    for search in searches:
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            assert search()
            seconds.append(time.perf_counter() - began)
        assert min(seconds) < 0.05


@pytest.mark.slow
def test_eight_processes_write_at_once(tmp_path: Path, python) -> None:
    python.run(str(FORKS), "write", str(tmp_path / "runs"))
    store = Store(tmp_path / "runs")
    assert sorted(row.seed for row in store.rows()) == list(range(WRITERS * ROWS))
    for seed in range(WRITERS * ROWS):
        run = store.read(RunConfig(seed=seed).id)
        assert run.contents.tensors()["w"].tolist() == [float(seed)] * 4
    assert store.rebuild() == (WRITERS * ROWS, [])


@pytest.mark.slow
def test_eight_processes_begin_at_once(tmp_path: Path, python) -> None:
    """Each would make the index; for one another SQLite does not always wait by itself."""
    python.run(str(FORKS), "begin", str(tmp_path))
    for number in range(ROUNDS):
        store = Store(tmp_path / str(number))
        assert len(store.finished(map(str, range(WRITERS)))) == WRITERS


@pytest.fixture
def filled(store: Store) -> Store:
    train_stack([small(epochs=1), small(epochs=1, neuron="LIF")], store)
    train_stack([small(epochs=1, seed=7)], store)
    return store


def test_filters(filled: Store) -> None:
    assert len(filled.rows()) == 3 and len(filled.rows(2)) == 2
    assert filled.rows()[0].seed == 7, "newest first"
    assert {row.neuron for row in filled.rows(neuron="LIF")} == {"LIF"}
    assert len(filled.rows(neuron="UltraLIF", seed=42)) == 1
    assert filled.rows(dataset="mnist") == [] and filled.rows(status="diverged") == []
    with pytest.raises(InputError, match="cannot be filtered by"):
        filled.rows(colour="red")
    with pytest.raises(InputError, match="limit"):
        filled.rows(0)


def test_names(filled: Store) -> None:
    run = small(epochs=1).id
    assert filled.find(run[:6]) == run and filled.find(run) == run
    store, name = Store.holding(str(filled.path(run)), "elsewhere")
    assert (store.root, name) == (filled.root, run)
    assert Store.holding(run[:6], filled.root)[1] == run
    for unknown in ("zzz", "", "*", "?" * 12, "[0-9a-f]*", "'; DROP TABLE runs; --"):
        with pytest.raises(InputError, match=r"there is no run|ambiguous"):
            filled.find(unknown)
    assert len(filled.rows()) == 3


def test_a_name_does_not_lead_out_of_the_store(filled: Store, tmp_path: Path) -> None:
    (tmp_path / "result.json").touch()
    for name in ("..", ".", "/", str(tmp_path)):
        with pytest.raises(InputError):
            filled.remove(name)
    assert len(filled.rows()) == 3


def test_a_name_that_could_be_several(store: Store) -> None:
    fill(store, 100)
    first = next(c for c in "0123456789abcdef" if sum(row.id.startswith(c) for row in store.rows()) > 1)
    with pytest.raises(InputError, match="give more characters"):
        store.find(first)


def test_the_index_can_be_made_again(filled: Store) -> None:
    before = filled.rows()
    filled.index.unlink()
    assert filled.rows() == before  # whoever looks first makes it
    assert filled.rebuild() == (3, [])
    assert filled.rows() == before
    filled.index.unlink()
    assert filled.finished([row.id for row in before]) == {row.id for row in before}


def test_rebuilding_leaves_damaged_runs_out_and_says_so(filled: Store) -> None:
    (filled.path(small(epochs=1).id) / "result.json").write_text("{}")
    count, complaints = filled.rebuild()
    assert count == 2 and len(complaints) == 1 and small(epochs=1).id in complaints[0]


def test_an_index_that_is_damaged_or_of_another_version(filled: Store) -> None:
    with sqlite3.connect(filled.index) as index:
        index.execute("PRAGMA user_version = 99")
    index.close()
    with pytest.raises(JobError, match=r"version 99.*ultralif runs rebuild"):
        filled.rows()
    filled.index.write_bytes(b"this is no database, however long it may be" * 100)
    with pytest.raises(JobError, match="ultralif runs rebuild"):
        filled.rows()


def test_removing(filled: Store) -> None:
    run = filled.remove(small(epochs=1).id[:8])
    assert run == small(epochs=1).id
    assert not filled.path(run).exists() and len(filled.rows()) == 2
    with pytest.raises(InputError):
        filled.remove(run)


def test_a_store_that_was_moved(filled: Store, tmp_path: Path) -> None:
    """Paths are those of the place where the runs are now."""
    filled.root.rename(tmp_path / "elsewhere")
    moved = Store(tmp_path / "elsewhere")
    assert moved.read(small(epochs=1).id).result.path == str(moved.path(small(epochs=1).id))
    assert all(row.path.startswith(str(moved.root)) for row in moved.rows())


def test_where_runs_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ULTRALIF_RUNS", raising=False)
    assert default_runs_dir() == Path("runs")
    monkeypatch.setenv("ULTRALIF_RUNS", str(tmp_path))
    assert Store().root == tmp_path


def test_the_index_is_wal(filled: Store) -> None:
    with sqlite3.connect(filled.index) as index:
        assert index.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    index.close()
