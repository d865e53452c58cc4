"""Flags that the training commands share, and files with the fields of a run."""

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from ultralif.cli.options import describe_options, split_options
from ultralif.cli.output import say
from ultralif.cli.parse import Hidden, parse
from ultralif.errors import InputError
from ultralif.files import BadFile, parse_json, read_text
from ultralif.training.config import PRESETS, RunConfig
from ultralif.training.options import Progress, RunOptions

__all__ = ["Common", "read_arguments", "read_config", "warn_of_batch"]

C = TypeVar("C", bound="Common")

# Threads that spin while they wait slow each other down on a busy machine, up to ten times. This must be set
# before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@dataclass(frozen=True, kw_only=True)
class Common(RunConfig):
    """The fields of a run, and the options of its training."""

    neuron_options: Hidden[Mapping[str, Any]] = field(default_factory=dict)
    config: Path | None = None
    """A TOML or JSON file with fields of a run, such as a run's config.json, or the name of a recipe, such as
    written or binary; flags override it."""
    runs_dir: Path | None = None
    """Folder of the runs. None: $ULTRALIF_RUNS or ./runs."""
    data_dir: Path | None = None
    """A folder to search first for the data."""
    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""
    checkpoint_seconds: float = 60.0
    """The most work, in seconds, that a killed process loses."""
    dry_run: bool = False
    """Print what would be trained, its size and the time it would take, and train nothing."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the result as one JSON document."""

    def run(self) -> RunConfig:
        """Return the fields of the run alone."""
        return RunConfig(**_fields(self))

    def options(self, report: Callable[[Progress], None], stopping: Callable[[], int]) -> RunOptions:
        """Return the options of training."""
        return RunOptions(
            device=self.device,
            data_dir=self.data_dir,
            report=report,
            stopping=stopping,
            checkpoint_seconds=self.checkpoint_seconds,
        )


def read_arguments(kind: type[C], argv: Sequence[str], command: str) -> C:
    """Parse a command's arguments; the file that ``--config`` names replaces defaults."""
    words, options = split_options(_with_values(argv), {each.name for each in fields(kind)})
    default = None
    for i, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == "--config" and (value or i + 1 < len(words)):
            default = kind(**read_config(Path(value or words[i + 1])))
    found = parse(kind, words, command, default, describe_options())
    return replace(found, neuron_options={**found.neuron_options, **options})


def warn_of_batch(config: RunConfig) -> None:
    """Warn if a batch is larger than the training set."""
    from ultralif.data.table import DATASETS

    spec = DATASETS.get(config.dataset)
    if spec is not None and config.batch_size > spec.sizes[0]:
        say(
            f"batch size {config.batch_size:,} is larger than the training set of {config.dataset}, "
            f"{spec.sizes[0]:,} samples: an epoch is a single step; choose a smaller --batch-size"
        )


_SWITCHES = {f"--{each.name.replace('_', '-')}" for each in fields(RunConfig) if each.type == bool | None}
"""Flags of fields that are true, false or None."""


def _with_values(argv: Sequence[str]) -> list[str]:
    """Write the values of switches out.

    Example:
        >>> _with_values(["--no-augment"]), _with_values(["--augment", "false"])
        (['--augment', 'False'], ['--augment', 'False'])
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
        return _fields(RunConfig(**PRESETS[str(path)]))
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
    return _fields(RunConfig.from_dict(data))


def _fields(run: RunConfig) -> dict[str, Any]:
    return {each.name: getattr(run, each.name) for each in fields(RunConfig)}
