"""All runs in one place: a folder for each, and one SQLite file that finds them.

Only this module writes runs. The folder is the truth; the index can be made again from the folders.
"""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ultralif.errors import InputError, JobError
from ultralif.training.checkpoint import read_folder, write_folder
from ultralif.training.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Store", "default_runs_dir"]

_TABLE = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, finished REAL NOT NULL, status TEXT NOT NULL,
    dataset TEXT NOT NULL, neuron TEXT NOT NULL, timesteps INTEGER NOT NULL, seed INTEGER NOT NULL,
    sparsity REAL NOT NULL, accuracy REAL, config TEXT NOT NULL, result TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_kind ON runs (dataset, neuron, timesteps, sparsity, seed);
CREATE INDEX IF NOT EXISTS by_time ON runs (finished);
PRAGMA user_version = 1;
"""
FILTERS = ("dataset", "neuron", "timesteps", "seed", "sparsity", "status")


def default_runs_dir() -> Path:
    """Return where runs go unless told otherwise: ``$ULTRALIF_RUNS`` or ``./runs``."""
    return Path(os.environ.get("ULTRALIF_RUNS", "runs"))


class Store:
    """The runs under a folder.

    Args:
        root: created, for its owner alone, when the first run is written.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_runs_dir()

    def path(self, run: str) -> Path:
        """Return the folder of a run."""
        return self.root / run

    def checkpoints(self, stack: str) -> Path:
        """Return where the checkpoints of a stack go while it is trained."""
        return self.root / ".training" / stack

    def write(
        self,
        config: RunConfig,
        tensors: "Mapping[str, Tensor]",
        result: Mapping[str, Any],
        history: Sequence[Any],
    ) -> None:
        """Write a finished run, and then its row."""
        documents = {"config": config.to_dict(), "result": dict(result), "history": list(history)}
        self._prepare()
        write_folder(self.path(config.id), tensors, documents)
        self._insert(config, result)

    def read(self, run: str) -> "tuple[RunConfig, dict[str, Tensor], dict[str, Any], list[Any]]":
        """Return config, tensors, result and history of a run, every byte checked."""
        tensors, documents = read_folder(self.path(self.find(run)))
        config = RunConfig.from_dict(documents["config"])
        return config, tensors, documents["result"], documents["history"]

    def find(self, run: str) -> str:
        """Return the full name of a run from its first characters."""
        with self._index() as index:
            rows = index.execute("SELECT id FROM runs WHERE id GLOB ?", (f"{_literal(run)}*",)).fetchall()
        if len(rows) == 1 or (rows and run in {row[0] for row in rows}):
            return run if len(rows) > 1 else str(rows[0][0])
        if rows:
            raise InputError(
                f"run {run!r} could be {', '.join(sorted(row[0] for row in rows)[:5])}; say more of it"
            )
        raise InputError(f"there is no run {run!r} in {self.root}; see: ultralif runs list")

    def done(self, runs: Sequence[str]) -> set[str]:
        """Return those of the runs that are finished."""
        with self._index() as index:
            found: set[str] = set()
            for start in range(0, len(runs), 500):
                part = list(runs[start : start + 500])
                marks = ",".join("?" * len(part))
                query = f"SELECT id FROM runs WHERE status = 'done' AND id IN ({marks})"  # noqa: S608
                found.update(row[0] for row in index.execute(query, part))
        return found

    def rows(self, limit: int | None = None, **filters: Any) -> list[dict[str, Any]]:
        """Return the results of the runs that match, newest first."""
        unknown = set(filters) - set(FILTERS)
        if unknown:
            raise InputError(f"runs cannot be filtered by {sorted(unknown)}; use {', '.join(FILTERS)}")
        wanted = {name: value for name, value in filters.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        query = f"SELECT result FROM runs WHERE {where} ORDER BY finished DESC, id"  # noqa: S608
        if limit is not None:
            query += f" LIMIT {int(limit)}"
        with self._index() as index:
            return [json.loads(row[0]) for row in index.execute(query, list(wanted.values()))]

    def remove(self, run: str) -> str:
        """Delete a run, its row first, and return its full name."""
        name = self.find(run)
        with self._index() as index:
            index.execute("DELETE FROM runs WHERE id = ?", (name,))
        shutil.rmtree(self.path(name), ignore_errors=True)
        return name

    def rebuild(self) -> int:
        """Make the index again from the folders, and return how many runs it holds."""
        count = 0
        for folder in sorted(self.root.glob("[0-9a-f]" * 12)):
            _, documents = read_folder(folder)
            self._insert(RunConfig.from_dict(documents["config"]), documents["result"])
            count += 1
        return count

    def _insert(self, config: RunConfig, result: Mapping[str, Any]) -> None:
        accuracy = result.get("accuracy") or {}
        row = (
            config.id,
            result.get("finished", time.time()),
            result["status"],
            config.dataset,
            config.neuron,
            config.timesteps,
            config.seed,
            config.sparsity,
            accuracy.get("soft", accuracy.get("hard")),
            json.dumps(config.to_dict()),
            json.dumps(dict(result)),
        )
        with self._index() as index:
            index.execute(f"INSERT OR REPLACE INTO runs VALUES ({','.join('?' * len(row))})", row)  # noqa: S608

    def _prepare(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise JobError(
                f"{self.root} cannot be used for runs ({error.strerror}); choose another with --runs-dir"
            ) from error

    @contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        """Open the index for one short transaction."""
        if not (self.root / "index.sqlite").exists():
            self._prepare()
        try:
            index = sqlite3.connect(self.root / "index.sqlite", timeout=60.0)
            try:
                if index.execute("PRAGMA user_version").fetchone() == (0,):
                    index.execute("PRAGMA journal_mode = WAL")
                    index.executescript(_TABLE)
                with index:
                    yield index
            finally:
                index.close()
        except sqlite3.Error as error:
            raise JobError(
                f"{self.root / 'index.sqlite'} cannot be used ({error}); if it is damaged, delete it and "
                "make it again from the runs with: ultralif runs rebuild"
            ) from error


def _literal(text: str) -> str:
    """Take the meaning out of the characters that GLOB knows."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)
