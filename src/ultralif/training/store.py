"""`Store`: a folder for each run, and one SQLite file that indexes them.

Only `Store` writes runs. The folders contain everything; the index can be rebuilt from them.
"""

import contextlib
import json
import math
import os
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ultralif.errors import InputError, JobError
from ultralif.files import BadFile, parse_json, visible
from ultralif.training.checkpoint import Contents, Damaged, newest, read_folder, write_folder
from ultralif.training.config import RunConfig, check_schema, document_id, known_neurons
from ultralif.training.result import Result

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "TRAINING",
    "Busy",
    "Finished",
    "NoSuchRun",
    "Run",
    "Store",
    "as_row",
    "connect",
    "default_runs_dir",
    "insert",
    "is_id",
    "literal",
    "load_run",
    "locked",
    "plain",
    "prepare",
    "write_run",
]


if sys.platform != "win32":
    import fcntl


class Busy(JobError):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock, and remove the file at the end; a crash also releases the lock.

    Windows has no such locks, so two processes there can train the same runs.
    """
    with _taken(path) as file:
        try:
            yield
        finally:
            if sys.platform == "win32":  # an open file cannot be removed there
                file.close()
            path.unlink(missing_ok=True)


def _taken(path: Path) -> IO[str]:
    """Open and lock the file, or raise an error that names the process holding the lock."""
    while True:
        file = _opened(path)
        try:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):
                os.truncate(file.fileno(), 0)
                os.write(file.fileno(), str(os.getpid()).encode())
                return file
        except BlockingIOError:
            file.seek(0)
            owner = file.read() or "?"
            file.close()
            raise Busy(f"process {owner} is already training this; wait until it ends") from None
        except OSError as error:
            file.close()
            raise _unusable(path, error) from error
        file.close()


def _opened(path: Path) -> IO[str]:
    try:
        for folder in (path.parent.parent, path.parent):  # only their owner can read them
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)  # truncated below
        return os.fdopen(os.open(path, flags, 0o600), "a+")
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> JobError:
    return JobError(
        f"{path.parent} cannot be used for checkpoints ({error.strerror}); choose another folder with "
        "--runs-dir"
    )


def _is_at(file: IO[str], path: Path) -> bool:
    """Return whether a file still has its name; its last owner may have removed it after we opened it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class Finished(NamedTuple):
    """A run that is ready to write."""

    config: RunConfig
    tensors: "Mapping[str, Tensor]"
    result: Result
    history: Sequence[Mapping[str, Any]]


class Run(NamedTuple):
    """A run as read from its folder."""

    config: RunConfig
    contents: Contents
    result: Result
    history: list[dict[str, Any]]


def write_run(folder: Path, run: Finished, aside: Path | None = None) -> Result:
    """Write a finished run's folder, and return its result, completed from its history.

    Args:
        folder: the folder to write.
        run: the run.
        aside: the folder in which the new one is prepared, on the same disk.
    """
    result = run.result.with_history(run.history)
    stored = {name: value for name, value in result.to_dict().items() if name != "config"}
    documents = {"config": run.config.to_dict(), "result": plain(stored), "history": plain(run.history)}
    write_folder(folder, "model", run.tensors, documents, aside)
    return result


def load_run(folder: Path) -> tuple[Contents, Result, list[dict[str, Any]]]:
    """Return a run's files, result and history; its folder must be named after its config."""
    name = folder.name
    contents = read_folder(folder)
    documents = contents.documents
    config, history = documents.get("config"), documents.get("history")
    if not isinstance(config, dict) or document_id(config) != name:
        raise Damaged(
            f"{folder} does not contain the run that it is named after; it was renamed or changed, and is "
            "not used"
        )
    try:
        check_schema(config)
    except InputError as error:
        raise Damaged(f"{folder} is not used: {error}") from error
    if not isinstance(history, list) or not all(isinstance(epoch, dict) for epoch in history):
        raise Damaged(f"{folder}/history.json is not a list of epochs; it is not used")
    try:
        result = Result.from_dict(documents.get("result"), f"{folder}/result.json")
    except BadFile as error:
        raise Damaged(f"{error}; it is not used") from error
    if result.id != name:
        raise Damaged(f"{folder}/result.json belongs to run {visible(result.id)}; it is not used")
    result = replace(result, config=config, path=str(folder)).with_history(history)
    return contents, result, history


def is_id(name: str) -> bool:
    """Return whether a string is a valid run name."""
    return re.fullmatch("[0-9a-f]{12}", name) is not None


def plain(value: Any) -> Any:
    """Return a document in JSON form; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


VERSION = 3
"""Version of the table below."""
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
MOST_BYTES = 1 << 26
"""Maximum size of a row in bytes."""
PATIENCE = 60.0
"""Seconds to wait for other processes."""


def connect(path: Path) -> sqlite3.Connection:
    """Open an index that only its owner can read; in a read-only folder, open it read-only."""
    if os.access(path.parent, os.W_OK):
        _create_file(path)
        index = sqlite3.connect(path, timeout=PATIENCE)
    else:
        index = sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)
    index.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    return index


def _create_file(path: Path) -> None:
    """Create the file ourselves, because SQLite would make it readable by others and would follow a link."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    except OSError as error:
        raise JobError(
            f"{path} cannot be used ({error.strerror}); it must be a regular file that you can write to. "
            "Remove it, then rebuild it from the runs with: ultralif runs rebuild"
        ) from error


def prepare(index: sqlite3.Connection, path: Path) -> None:
    """Create the table if the file is new; reject any other version."""
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version == 0:
        _create(index)
    elif version != VERSION:
        raise JobError(
            f"{path} has version {version}, but this ultralif reads version {VERSION}; move it away, then "
            "rebuild it with: ultralif runs rebuild"
        )
    # Refuse a file that contains anything but the table, such as a view or a trigger of that name.
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' LIMIT 20"
    if set(index.execute(query)) != _schema():
        raise JobError(
            f"{path} is not an index of runs; delete it, then rebuild it with: ultralif runs rebuild"
        )


@cache
def _schema() -> frozenset[tuple[str, ...]]:
    """Return the types, names and definitions of everything in an index of this version."""
    with contextlib.closing(sqlite3.connect(":memory:")) as index:
        index.executescript(_TABLE)
        query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        return frozenset(index.execute(query))


def _create(index: sqlite3.Connection) -> None:
    """Create the table; wait for any other process that creates it, because SQLite itself does not."""
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


def insert(index: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows, replacing those with the same names."""
    index.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def as_row(result: Result) -> tuple[Any, ...]:
    """Return a run's row."""
    names = ("id", "finished", "status", "dataset", "neuron", "timesteps", "seed", "sparsity")
    return (*(getattr(result, name) for name in names), json.dumps(plain(result.to_dict())))


def literal(text: str) -> str:
    """Escape the characters that are special in GLOB patterns."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


TRAINING = ".training"
NAMED = "id IN (SELECT value FROM json_each(?))"
"""SQL condition that a run's name is in a JSON list."""
FILTERS = ("dataset", "neuron", "timesteps", "seed", "sparsity", "status")


def default_runs_dir() -> Path:
    """Return the default folder for runs: ``$ULTRALIF_RUNS`` or ``./runs``."""
    return Path(os.environ.get("ULTRALIF_RUNS") or "runs")


class NoSuchRun(InputError):
    """No run has this name."""


def _ignore(complaint: str) -> None:
    """Ignore a message."""


class Store:
    """The runs in a folder.

    Args:
        root: the folder, which is created when the first run is written, and which only its owner can read;
            None means `default_runs_dir`.

    Example:
        >>> import tempfile
        >>> Store(tempfile.mkdtemp()).rows()
        []
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_runs_dir()

    @classmethod
    def holding(cls, run: str, root: str | Path | None = None) -> "tuple[Store, str]":
        """Return the store that contains a run, and the run's full name; a folder's store is its parent.

        Args:
            run: a run's folder, its name, or the first characters of its name.
            root: the folder in which names are looked up.
        """
        path = Path(run)
        store = cls(path.parent if (path / "result.json").exists() else root)
        return store, store.find(path.name)

    @property
    def index(self) -> Path:
        """The SQLite file that indexes the runs."""
        return self.root / "index.sqlite"

    def path(self, run: str) -> Path:
        """Return a run's folder, which is inside the store."""
        if not is_id(run):
            raise InputError(
                f"{visible(run)!r} is not the name of a run, which has 12 digits from 0-9 and a-f"
            )
        return self.root / run

    def checkpoints(self, stack: str) -> Path:
        """Return the folder that holds a stack's checkpoints during training."""
        if not is_id(stack):
            raise InputError(
                f"{visible(stack)!r} is not the name of a stack, which has 12 digits from 0-9 and a-f"
            )
        return self.root / TRAINING / stack

    def prepare(self) -> None:
        """Create the index if there is none.

        Without an index, every folder counts as a finished run. So the index is created before the first
        folder, and a stack with only some of its folders is resumed and finished as a whole.
        """
        with self._open():
            pass

    def write(self, runs: Iterable[Finished], aside: Path | None = None) -> None:
        """Write the folders of finished runs, and then all their rows at once.

        Args:
            runs: the finished runs of a stack.
            aside: the folder in which they are prepared, on the same disk.
        """
        self.prepare()
        rows = self.write_folders(runs, aside)
        with self._open() as index:
            if not index.in_transaction:
                index.execute("BEGIN IMMEDIATE")  # `remove` deletes a row and its folder under the same lock
            insert(index, [row for row in rows if self.path(row[0]).exists()])

    def write_folders(self, runs: Iterable[Finished], aside: Path | None = None) -> list[tuple[Any, ...]]:
        """Write the folders of finished runs, and return the rows to add to the index."""
        rows = []
        for run in runs:
            result = write_run(self.path(run.config.id), run, aside)
            rows.append(as_row(result))
        return rows

    def adopt(self, runs: Iterable[str]) -> bool:
        """Add the rows of runs that another process wrote; if one is damaged, add none and return False."""
        try:
            rows = [self._row_of(run) for run in runs]
        except Damaged:
            return False
        with self._open() as index:
            insert(index, rows)
        return True

    def read(self, run: str) -> Run:
        """Return a run after checking every byte of it."""
        name = self.find(run)
        contents, result, history = load_run(self.path(name))
        if result.neuron not in known_neurons():
            raise InputError(
                f"neuron {visible(result.neuron)!r} of run {name} is not known here; register it with "
                "ultralif.register, or pass it on the command line as --neuron file.py:Class"
            )
        return Run(RunConfig.from_dict(contents.documents["config"]), contents, result, history)

    def read_result(self, run: str) -> tuple[Result, list[dict[str, Any]]]:
        """Return a run's result and history; its neuron need not be known here."""
        _, result, history = load_run(self.path(self.find(run)))
        return result, history

    def _row_of(self, name: str) -> tuple[Any, ...]:
        _, result, _ = load_run(self.path(name))
        return as_row(result)

    def find(self, run: str) -> str:
        """Return the full name of a run from its first characters."""
        name = Path(run).name
        if is_id(name) and (self.path(name) / "result.json").exists():
            return name
        query = "SELECT id FROM runs WHERE id GLOB ? ORDER BY id LIMIT 6"
        found = self._select(query, (f"{literal(name)}*",)) if name else []
        rows = [row[0] for row in found if is_id(row[0])]
        if len(rows) == 1 or name in rows:
            return name if name in rows else str(rows[0])
        if rows:
            raise InputError(f"{run!r} is ambiguous: {', '.join(rows[:5])}; give more characters")
        raise NoSuchRun(f"there is no run {run!r} in {self.root}; see: ultralif runs list")

    def finished(self, runs: Iterable[str]) -> set[str]:
        """Return which of these runs are stored, including diverged ones."""
        wanted = set(runs)
        rows = self._select(f"SELECT id FROM runs WHERE {NAMED}", (json.dumps(list(wanted)),))  # noqa: S608
        return wanted.intersection(row[0] for row in rows)

    def rows(
        self,
        limit: int | None = None,
        *,
        runs: Iterable[str] | None = None,
        complain: Callable[[str], None] = _ignore,
        **filters: Any,
    ) -> list[Result]:
        """Return the results of the matching runs, newest first; accepts the arguments of `each`."""
        return list(self.each(limit, runs=runs, complain=complain, **filters))

    def each(
        self,
        limit: int | None = None,
        *,
        runs: Iterable[str] | None = None,
        complain: Callable[[str], None] = _ignore,
        **filters: Any,
    ) -> Iterator[Result]:
        """Yield the results of the matching runs, newest first.

        Args:
            limit: the maximum number of results.
            runs: only runs with these names.
            complain: called with a message about each run that cannot be read and is skipped.
            filters: the ``dataset``, ``neuron``, ``timesteps``, ``seed``, ``sparsity`` or ``status``.
        """
        for run, text in self._matching("id, result", limit, runs, filters):
            try:
                source = f"the row of run {visible(str(run))} in {self.index}"
                result = Result.from_dict(parse_json(text, source), source)
                yield replace(result, id=run, path=str(self.path(run)))
            except (InputError, TypeError) as error:
                complain(f"skipped: {error}; rebuild the index with: ultralif runs rebuild")

    def names(self, **filters: Any) -> list[str]:
        """Return the names of the matching runs, newest first; accepts the filters of `each`."""
        return [row[0] for row in self._matching("id", None, None, filters)]

    def _matching(
        self, columns: str, limit: int | None, runs: Iterable[str] | None, filters: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        unknown = set(filters) - set(FILTERS)
        if unknown:
            raise InputError(f"runs cannot be filtered by {sorted(unknown)}; use {', '.join(FILTERS)}")
        if limit is not None and limit < 1:
            raise InputError(f"limit must be at least 1, got {limit}")
        given = {name: value for name, value in filters.items() if value is not None}
        conditions, values = [f"{name} = ?" for name in given], list(given.values())
        if runs is not None:
            conditions.append(NAMED)
            values.append(json.dumps(list(runs)))
        where = " AND ".join(conditions) or "1"
        query = f"SELECT {columns} FROM runs WHERE {where} ORDER BY finished DESC, id LIMIT ?"  # noqa: S608
        return self._select(query, (*values, -1 if limit is None else limit))

    def remove(self, run: str) -> str:
        """Delete a run, its row first, and return its full name."""
        name = self.find(run)
        folder = self.path(name)
        away = folder.with_name(f".{name}.{os.getpid()}.removed")
        try:
            with self._open() as index:
                index.execute("DELETE FROM runs WHERE id = ?", (name,))
                with contextlib.suppress(FileNotFoundError):  # one rename, so no reader sees part of it
                    folder.rename(away)
            shutil.rmtree(away)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise JobError(f"{folder} could not be deleted ({error.strerror})") from error
        return name

    def rebuild(self) -> tuple[int, list[str]]:
        """Rebuild the index from the folders; return the number of runs, and the errors of damaged ones."""
        if not self.root.is_dir():
            return 0, []
        rows, complaints = self._from_folders(self._names())
        with self._open() as index:
            if not index.in_transaction:
                index.execute("BEGIN IMMEDIATE")  # no other process writes rows until this ends
            names = self._names()
            later, more = self._from_folders(names - rows.keys() - complaints.keys())
            kept = [row for name, row in {**rows, **later}.items() if name in names]
            index.execute("DELETE FROM runs")
            insert(index, kept)
        self._remove_checkpoints()
        return len(kept), [*complaints.values(), *more.values()]

    def unfinished(self) -> list[Path]:
        """Return the checkpoint folders of stacks that were interrupted or are being trained."""
        return sorted((self.root / TRAINING).glob("[0-9a-f]" * 12))

    def _remove_checkpoints(self) -> None:
        """Remove checkpoints of finished stacks, left behind if training was killed at its very end."""
        for folder in self.unfinished():
            with contextlib.suppress(JobError), locked(folder.with_suffix(".lock")):  # or it is being trained
                found, _ = newest(folder)
                position = found.documents.get("position") if found else None
                runs = position.get("runs") if isinstance(position, dict) else None
                if isinstance(runs, list) and runs and self.finished(runs) >= set(runs):
                    shutil.rmtree(folder, ignore_errors=True)

    def _names(self) -> set[str]:
        """Return the names of the folders that may be runs."""
        return {folder.name for folder in self.root.glob("[0-9a-f]" * 12)}

    def _from_folders(self, names: Iterable[str]) -> tuple[dict[str, tuple[Any, ...]], dict[str, str]]:
        """Return the rows of undamaged folders, and the errors of the others, both by name."""
        rows, complaints = {}, {}
        for name in sorted(names):
            try:
                rows[name] = self._row_of(name)
            except JobError as error:
                complaints[name] = str(error)
        return rows, complaints

    def _select(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return a query's rows; a store with neither an index nor runs has none."""
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
            index = connect(self.index)
            try:
                prepare(index, self.index)
                with index:
                    if lost:
                        insert(index, list(self._from_folders(self._names())[0].values()))
                    yield index
            finally:
                index.close()
        except sqlite3.OperationalError as error:
            raise JobError(
                f"{self.index} cannot be used ({error}); free some space, or choose another folder with "
                "--runs-dir"
            ) from error
        except (sqlite3.DatabaseError, UnicodeError, OverflowError) as error:
            raise JobError(
                f"{self.index} is damaged ({error}); delete it, then rebuild it with: ultralif runs rebuild"
            ) from error

    def _is_lost(self) -> bool:
        """Return whether there are runs but no index."""
        return not self.index.exists() and any(self.root.glob("[0-9a-f]" * 12 + "/result.json"))
