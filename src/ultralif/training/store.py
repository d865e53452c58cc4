"""All runs in one place: a folder for each, and one SQLite file that finds them.

Only this module writes runs. The folder is the truth; the index can be made again from the folders.
"""

import json
import math
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ultralif.errors import InputError, JobError
from ultralif.training.checkpoint import Contents, Damaged, read_folder, write_folder
from ultralif.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Finished", "NoSuchRun", "Run", "Store", "default_runs_dir"]

VERSION = 1
"""Of the table below."""
_TABLE = f"""
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, finished REAL NOT NULL, status TEXT NOT NULL,
    dataset TEXT NOT NULL, neuron TEXT NOT NULL, timesteps INTEGER NOT NULL, seed INTEGER NOT NULL,
    sparsity REAL NOT NULL, result TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_kind ON runs (dataset, neuron, timesteps, sparsity, seed);
CREATE INDEX IF NOT EXISTS by_time ON runs (finished);
PRAGMA user_version = {VERSION};
"""
PATIENCE = 60.0
"""Seconds to wait for other processes."""
FILTERS = ("dataset", "neuron", "timesteps", "seed", "sparsity", "status")


def default_runs_dir() -> Path:
    """Return where runs go unless told otherwise: ``$ULTRALIF_RUNS`` or ``./runs``."""
    return Path(os.environ.get("ULTRALIF_RUNS") or "runs")


class NoSuchRun(InputError):
    """No run has this name."""


class Finished(NamedTuple):
    """A run that is ready to be written."""

    config: RunConfig
    tensors: "Mapping[str, Tensor]"
    result: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]


class Run(NamedTuple):
    """A run as it was written."""

    config: RunConfig
    contents: Contents
    result: dict[str, Any]
    history: list[dict[str, Any]]


class Store:
    """The runs under a folder.

    Args:
        root: created, for its owner alone, when the first run is written; None, see `default_runs_dir`.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_runs_dir()

    @classmethod
    def holding(cls, run: str, root: str | Path | None = None) -> "tuple[Store, str]":
        """Return the store that has a run, and the run's full name; a folder's store is the folder above it.

        Args:
            run: a run's folder, its name, or the beginning of it.
            root: where names are searched.
        """
        path = Path(run)
        store = cls(path.parent if (path / "result.json").exists() else root)
        return store, store.find(path.name)

    @property
    def index(self) -> Path:
        """The file that finds the runs."""
        return self.root / "index.sqlite"

    def path(self, run: str) -> Path:
        """Return the folder of a run."""
        return self.root / run

    def checkpoints(self, stack: str) -> Path:
        """Return where the checkpoints of a stack go while it is trained."""
        return self.root / ".training" / stack

    def write(self, runs: Iterable[Finished], aside: Path | None = None) -> None:
        """Write the folders of finished runs, and then all their rows at once.

        Args:
            runs: what a stack came to.
            aside: where folders are prepared, on the same disk.
        """
        rows = self.write_folders(runs, aside)
        with self._open() as index:
            _insert(index, rows)

    def write_folders(self, runs: Iterable[Finished], aside: Path | None = None) -> list[tuple[Any, ...]]:
        """Write the folders of finished runs, and return the rows that the index lacks."""
        rows = []
        for config, tensors, result, history in runs:
            documents = {"config": config.to_dict(), "result": _plain(result), "history": _plain(history)}
            write_folder(self.path(config.id), "model", tensors, documents, aside)
            rows.append(_row(documents["result"]))
        return rows

    def adopt(self, runs: Iterable[str]) -> bool:
        """Add the rows of runs whose folders another process wrote; False, and none, unless all are whole."""
        try:
            rows = [_row(read_folder(self.path(run)).documents["result"]) for run in runs]
        except Damaged:
            return False
        with self._open() as index:
            _insert(index, rows)
        return True

    def read(self, run: str) -> Run:
        """Return a run, every byte of it checked."""
        name = self.find(run)
        contents = read_folder(self.path(name))
        config = RunConfig.from_dict(contents.documents["config"])
        result = {**contents.documents["result"], "path": str(self.path(name))}
        return Run(config, contents, result, contents.documents["history"])

    def find(self, run: str) -> str:
        """Return the full name of a run from its first characters."""
        name = Path(run).name
        if re.fullmatch("[0-9a-f]{12}", name) and (self.path(name) / "result.json").exists():
            return name
        query = "SELECT id FROM runs WHERE id GLOB ? ORDER BY id LIMIT 6"
        rows = [row[0] for row in self._select(query, (f"{_literal(name)}*",))] if name else []
        if len(rows) == 1 or name in rows:
            return str(rows[0])
        if rows:
            raise InputError(f"run {run!r} could be {', '.join(rows[:5])}; say more of it")
        raise NoSuchRun(f"there is no run {run!r} in {self.root}; see: ultralif runs list")

    def finished(self, runs: Iterable[str]) -> set[str]:
        """Return those of the runs that are here; those that diverged would do so again."""
        query = "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?))"
        return {row[0] for row in self._select(query, (json.dumps(list(runs)),))}

    def rows(
        self, limit: int | None = None, *, runs: Iterable[str] | None = None, **filters: Any
    ) -> list[dict[str, Any]]:
        """Return the results of the runs that match, newest first.

        Args:
            limit: at most so many.
            runs: only those of these names.
            filters: their ``dataset``, ``neuron``, ``timesteps``, ``seed``, ``sparsity`` or ``status``.
        """
        unknown = set(filters) - set(FILTERS)
        if unknown:
            raise InputError(f"runs cannot be filtered by {sorted(unknown)}; use {', '.join(FILTERS)}")
        if limit is not None and limit < 1:
            raise InputError(f"limit must be at least 1, got {limit}")
        wanted = {f"{name} = ?": value for name, value in filters.items() if value is not None}
        if runs is not None:
            wanted["id IN (SELECT value FROM json_each(?))"] = json.dumps(list(runs))
        where = " AND ".join(wanted) or "1"
        query = f"SELECT id, result FROM runs WHERE {where} ORDER BY finished DESC, id LIMIT ?"  # noqa: S608
        found = self._select(query, (*wanted.values(), -1 if limit is None else limit))
        try:
            return [{**json.loads(result), "path": str(self.path(run))} for run, result in found]
        except (TypeError, ValueError, RecursionError) as error:
            raise self._damaged(error) from error

    def remove(self, run: str) -> str:
        """Delete a run, its row first, and return its full name."""
        name = self.find(run)
        with self._open() as index:
            index.execute("DELETE FROM runs WHERE id = ?", (name,))
        try:
            shutil.rmtree(self.path(name))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise JobError(f"{self.path(name)} could not be deleted ({error.strerror})") from error
        return name

    def rebuild(self) -> tuple[int, list[str]]:
        """Make the index again from the folders; return how many runs it holds, and which are damaged."""
        if not self.root.is_dir():
            return 0, []
        rows, complaints = self._from_folders()
        with self._open() as index:
            index.execute("DELETE FROM runs")
            _insert(index, rows)
        return len(rows), complaints

    def _from_folders(self) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows that the folders make, and what is wrong with others."""
        rows, complaints = [], []
        for folder in sorted(self.root.glob("[0-9a-f]" * 12)):
            try:
                rows.append(_row({**read_folder(folder).documents["result"], "id": folder.name}))
            except JobError as error:
                complaints.append(str(error))
            except (KeyError, TypeError):
                complaints.append(f"{folder} is not the folder of a run; it is not used")
        return rows, complaints

    def _select(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return rows; a store that nobody has written to has none."""
        if not self.index.exists() and not self._is_lost():
            return []
        with self._open() as index:
            return index.execute(query, values).fetchall()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the index for one short transaction."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise JobError(
                f"{self.root} cannot be used for runs ({error.strerror}); choose another with --runs-dir"
            ) from error
        lost = self._is_lost()
        try:
            index = self._connect()
            try:
                _prepare(index, self.index)
                with index:
                    if lost:
                        _insert(index, self._from_folders()[0])
                    yield index
            finally:
                index.close()
        except sqlite3.OperationalError as error:
            raise JobError(
                f"{self.index} cannot be used ({error}); make room, or choose another folder with --runs-dir"
            ) from error
        except (sqlite3.DatabaseError, UnicodeError, OverflowError) as error:
            raise self._damaged(error) from error

    def _is_lost(self) -> bool:
        """Tell whether there are runs, but no index."""
        return not self.index.exists() and any(self.root.glob("[0-9a-f]" * 12 + "/result.json"))

    def _damaged(self, error: Exception) -> JobError:
        return JobError(
            f"{self.index} is damaged ({error}); delete it, and make it again from the runs with: ultralif "
            "runs rebuild"
        )

    def _connect(self) -> sqlite3.Connection:
        if os.access(self.root, os.W_OK):
            return sqlite3.connect(self.index, timeout=PATIENCE)
        return sqlite3.connect(
            f"{self.index.resolve().as_uri()}?immutable=1", uri=True
        )  # to read what is there


def _prepare(index: sqlite3.Connection, path: Path) -> None:
    """Make the table if the file is new; refuse one of another version."""
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version == 0:
        _create(index)
    elif version != VERSION:
        raise JobError(
            f"{path} has the version {version} and this ultralif reads {VERSION}; move it away, and make it "
            "again from the runs with: ultralif runs rebuild"
        )


def _create(index: sqlite3.Connection) -> None:
    """Make the table; SQLite does not wait by itself for another process that does the same."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            index.execute("PRAGMA journal_mode = WAL")
            index.executescript(_TABLE)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _row(result: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("id", "finished", "status", "dataset", "neuron", "timesteps", "seed", "sparsity")
    return (*(result[name] for name in names), json.dumps(result))


def _insert(index: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    index.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _plain(value: Any) -> Any:
    """Return a document as JSON has it, which knows neither NaN nor infinity."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _literal(text: str) -> str:
    """Take the meaning out of the characters that GLOB knows."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)
