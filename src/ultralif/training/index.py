"""The table of an index of runs in SQLite: made, checked and brought up to date. `Store` alone uses it."""

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ultralif.errors import JobError
from ultralif.training.folders import plain
from ultralif.training.result import Result

__all__ = ["as_row", "connect", "insert", "literal", "prepare"]

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
"""Bytes that a row may have."""
PATIENCE = 60.0
"""Seconds to wait for other processes."""


def connect(path: Path) -> sqlite3.Connection:
    """Open an index; only its owner can read it. In a read-only folder it is opened for reading."""
    if os.access(path.parent, os.W_OK):
        _create_file(path)
        index = sqlite3.connect(path, timeout=PATIENCE)
    else:
        index = sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)
    index.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    return index


def _create_file(path: Path) -> None:
    """Make the file: SQLite would let others read it, and make tables in whatever a link leads to."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
    except OSError as error:
        raise JobError(
            f"{path} cannot be used ({error.strerror}); it should be a regular file that you may write. "
            "Remove it, and make it again from the runs with: ultralif runs rebuild"
        ) from error


def prepare(index: sqlite3.Connection, path: Path) -> None:
    """Make the table if the file is new; refuse one of another version."""
    (version,) = index.execute("PRAGMA user_version").fetchone()
    if version == 0:
        _create(index)
    elif version != VERSION:
        raise JobError(
            f"{path} has the version {version} and this ultralif reads {VERSION}; move it away, and make it "
            "again from the runs with: ultralif runs rebuild"
        )
    # A file that holds anything but the table, such as a view or a trigger of that name, is refused.
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' LIMIT 20"
    if set(index.execute(query)) != _schema():
        raise JobError(
            f"{path} is not an index of runs; delete it, and make it again from the runs with: ultralif runs "
            "rebuild"
        )


@cache
def _schema() -> frozenset[tuple[str, ...]]:
    """Return kinds, names and definitions in an index of this version."""
    with contextlib.closing(sqlite3.connect(":memory:")) as index:
        index.executescript(_TABLE)
        query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        return frozenset(index.execute(query))


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


def insert(index: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows, or replace those of the same names."""
    index.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def as_row(result: Result) -> tuple[Any, ...]:
    """Return the row of a run."""
    names = ("id", "finished", "status", "dataset", "neuron", "timesteps", "seed", "sparsity")
    return (*(getattr(result, name) for name in names), json.dumps(plain(result.to_dict())))


def literal(text: str) -> str:
    """Escape the characters that have a meaning in GLOB patterns."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)
