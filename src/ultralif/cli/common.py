"""What the commands that train have in common: their flags, and a file of a run's fields."""

import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ultralif.cli.parse import parse
from ultralif.errors import InputError
from ultralif.files import BadFile, parse_json, read_text
from ultralif.training.config import PRESETS, RunConfig
from ultralif.training.options import Progress, RunOptions

__all__ = ["Common", "read_arguments", "read_config"]

C = TypeVar("C", bound="Common")

# Threads that wait by spinning stand in each other's way on a busy machine, and steps take ten times as long.
# It must be said before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@dataclass(frozen=True, kw_only=True)
class Common(RunConfig):
    """The fields of a run, and how it is trained."""

    config: Path | None = None
    """A TOML or JSON file with fields of a run, such as a run's config.json, or the recipe paper or binary;
    flags override it."""
    runs_dir: Path | None = None
    """Where runs are kept. None: $ULTRALIF_RUNS or ./runs."""
    data_dir: Path | None = None
    """A folder to search first for the data."""
    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""
    checkpoint_seconds: float = 60.0
    """How much work may be lost if the process is killed."""
    dry_run: bool = False
    """Print what would be trained, its size and the time it would take, and train nothing."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the result as one JSON document."""

    def run(self) -> RunConfig:
        """Return the fields of the run alone."""
        return RunConfig(**{field.name: getattr(self, field.name) for field in fields(RunConfig)})

    def options(self, report: Callable[[Progress], None], stopping: Callable[[], int]) -> RunOptions:
        """Return where and how it is trained."""
        return RunOptions(
            device=self.device,
            data_dir=self.data_dir,
            report=report,
            stopping=stopping,
            checkpoint_seconds=self.checkpoint_seconds,
        )


def read_arguments(kind: type[C], argv: Sequence[str], command: str) -> C:
    """Parse a command's arguments; the file that ``--config`` names goes before the defaults."""
    argv = _with_values(argv)
    for i, word in enumerate(argv):
        name, _, value = word.partition("=")
        if name == "--config" and (value or i + 1 < len(argv)):
            return parse(kind, argv, command, kind(**read_config(Path(value or argv[i + 1]))))
    return parse(kind, argv, command)


_SWITCHES = {f"--{field.name.replace('_', '-')}" for field in fields(RunConfig) if field.type == bool | None}
"""Flags of fields that are true, false or None."""


def _with_values(argv: Sequence[str]) -> list[str]:
    """Write the values of switches out.

    Example:
        >>> _with_values(["--learn-eps", "--no-learn-leak", "--augment", "false"])
        ['--learn-eps', 'True', '--learn-leak', 'False', '--augment', 'False']
    """
    words: list[str] = []
    for i, word in enumerate(argv):
        plain = word.replace("--no-", "--", 1)
        if word in _SWITCHES and (i + 1 == len(argv) or argv[i + 1].startswith("-")):
            words += [word, "True"]
        elif plain != word and plain in _SWITCHES:
            words += [plain, "False"]
        elif words and words[-1] in _SWITCHES and word.capitalize() in ("True", "False", "None"):
            words.append(word.capitalize())
        else:
            words.append(word)
    return words


def read_config(path: Path) -> dict[str, Any]:
    """Return the fields of a run from a TOML or JSON file, or of a named recipe, checked."""
    if str(path) in PRESETS and not path.exists():
        return PRESETS[str(path)]
    try:
        text = read_text(path, 1 << 20)
    except BadFile as error:
        raise InputError(
            f"config {error}; give a TOML or JSON file, or one of {', '.join(PRESETS)}"
        ) from error
    try:
        data = parse_json(text, f"config {path}") if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"config {path} is not valid: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"config {path} must hold fields of a run, got {type(data).__name__}")
    run = RunConfig.from_dict(data)
    return {field.name: getattr(run, field.name) for field in fields(RunConfig)}
