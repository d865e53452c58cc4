"""The folder of one run: config, parameters, history and result, written and read with every byte checked."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ultralif.errors import InputError
from ultralif.files import BadFile, visible
from ultralif.training.checkpoint import Contents, Damaged, read_folder, write_folder
from ultralif.training.config import RunConfig, check_schema, document_id
from ultralif.training.result import Result

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Finished", "Run", "is_id", "load_run", "plain", "write_run"]


class Finished(NamedTuple):
    """A run that is ready to be written."""

    config: RunConfig
    tensors: "Mapping[str, Tensor]"
    result: Result
    history: Sequence[Mapping[str, Any]]


class Run(NamedTuple):
    """A run as it was written."""

    config: RunConfig
    contents: Contents
    result: Result
    history: list[dict[str, Any]]


def write_run(folder: Path, run: Finished, aside: Path | None = None) -> Result:
    """Write the folder of a finished run, and return its result, completed from its history.

    Args:
        folder: its place.
        run: the run.
        aside: the folder in which it is prepared, on the same disk.
    """
    result = run.result.with_history(run.history)
    stored = {name: value for name, value in result.to_dict().items() if name != "config"}
    documents = {"config": run.config.to_dict(), "result": plain(stored), "history": plain(run.history)}
    write_folder(folder, "model", run.tensors, documents, aside)
    return result


def load_run(folder: Path) -> tuple[Contents, Result, list[dict[str, Any]]]:
    """Return the files, the result and the history of a run; the folder's name is that of its config."""
    name = folder.name
    contents = read_folder(folder)
    documents = contents.documents
    config, history = documents.get("config"), documents.get("history")
    if not isinstance(config, dict) or document_id(config) != name:
        raise Damaged(
            f"{folder} does not hold the run that its name says; it was renamed or changed, and is not used"
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
    """Tell whether a text has the form of a run's name."""
    return re.fullmatch("[0-9a-f]{12}", name) is not None


def plain(value: Any) -> Any:
    """Return a document as JSON stores it; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
