"""Arguments of the training commands: config fields, neuron options, recipes and help."""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ultralif.cli.neurons import neuron_flags
from ultralif.cli.output import echo, say
from ultralif.cli.parse import (
    Flag,
    Hidden,
    advised,
    asks_for_help,
    flags_of,
    print_help,
    read,
    refuse_unknown,
)
from ultralif.cli.sources import is_code, is_path, neuron_name, register_dataset, register_model
from ultralif.errors import InputError
from ultralif.files import BadFile, parse_json, read_text
from ultralif.names import ELSEWHERE
from ultralif.training.config import PRESETS, RunConfig, recipe_of
from ultralif.training.progress import RunOptions, stop_on_signals, training_progress
from ultralif.training.result import Result

__all__ = [
    "GROUPS",
    "Common",
    "option_flags",
    "read_arguments",
    "read_config",
    "warn_of_batch",
    "warn_of_changed_code",
]

C = TypeVar("C", bound="Common")

# Threads that spin while they wait slow each other down on a busy machine, by up to ten times. This must be
# set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

GROUPS: dict[str, tuple[str, ...]] = {
    "data": ("dataset", "timesteps", "encoding", "augment", "validation", "data_dir"),
    "network": ("neuron", "neurons", "model", "hidden", "width", "mode", "readout"),
    "training": (
        *("config", "epochs", "batch_size", "learning_rate", "schedule", "warmup_epochs", "optimizer"),
        *("weight_decay", "label_smoothing", "loss", "sparsity", "target_rate", "hard_share", "precision"),
        *("seed", "seeds", "device", "ray"),
    ),
    "output": ("runs_dir", "tensorboard", "dry_run", "quiet", "json"),
}
"""The flags that ``--help`` shows; ``--help-all`` also shows the others."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """A run's config and its training options."""

    run: RunConfig
    recipe: Hidden[str | None] = None
    """The recipe that the config comes from."""
    config: Path | None = None
    """A recipe, such as digits or deep, or a TOML or JSON file of config fields, such as a run's
    config.json. Flags override it."""
    runs_dir: Path | None = None
    """Runs folder; None means $ULTRALIF_RUNS or ./runs."""
    data_dir: Path | None = None
    """A folder to search first for the data."""
    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints, which limits the work lost when a process is killed."""
    dry_run: bool = False
    """Print what would be trained, its size and the estimated time, without training."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the result as one JSON document."""

    @contextmanager
    def watched(self, seconds: Sequence[float], **more: Any) -> Iterator[RunOptions]:
        """Yield the training options, with a progress display and a clean stop on Ctrl-C.

        Args:
            seconds: estimated time for each stack of runs.
            more: other options.
        """
        with (
            stop_on_signals() as stopping,
            training_progress(seconds, quiet=self.quiet or self.json) as report,
        ):
            yield RunOptions(
                device=self.device,
                data_dir=self.data_dir,
                report=report,
                stopping=stopping,
                checkpoint_seconds=self.checkpoint_seconds,
                **more,
            )

    def print_recipe(self) -> None:
        """Print the recipe, so that the user knows where the remaining settings come from."""
        if self.recipe is not None:
            echo(f"trained with the recipe {self.recipe}; flags and --config override it")


def read_arguments(
    kind: type[C],
    argv: Sequence[str],
    command: str,
    recipe: Callable[[Mapping[str, Any]], str | None] = lambda given: None,
) -> C:
    """Parse the arguments of a training command.

    The user's own data, neurons and networks are registered, and their paths are replaced by names. Missing
    values come from ``--config``, then from the model's recipe, then from ``recipe``.

    Args:
        kind: the command's dataclass.
        argv: the arguments after the command.
        command: the command's name.
        recipe: maps the given arguments to the name of a preset, or None.
    """
    flags = flags_of(kind)
    if asks_for_help(argv):
        _print_help(kind, flags, argv, command)
        raise SystemExit(0)
    with advised(command):
        given, rest = read(flags, argv)
    _register(given, flags)
    options = _read_options(rest, flags, command) if rest else {}
    file = given.get("config")
    preset = recipe_of(given.get("model", "mlp"), given.get("dataset", "digits")) or recipe(given)
    if file is not None:
        preset = str(file) if str(file) in PRESETS and not file.exists() else None
    code = given.pop("model") if is_code(given.get("model", "")) else None
    own = {each.name for each in fields(kind)}
    changes = {name: given.pop(name) for name in [*given] if name not in own} | options
    if preset is None and file is not None:
        run = read_config(file, changes)
    else:
        run = RunConfig(**{**PRESETS.get(preset or "", {}), **changes})
    for name in own & flags.keys() & PRESETS.get(preset or "", {}).keys():  # lists, in a sweep
        given.setdefault(name, (PRESETS[preset or ""][name],))
    if code is not None:
        run = run.with_(model=register_model(code, run))
        if preset is None and file is None and "encoding" not in changes:
            from ultralif.training.networks import default_encoding

            run = run.with_(encoding=default_encoding(run.model))  # as in ul.train
    return kind(run=run, recipe=preset, **given)


def _register(given: dict[str, Any], flags: Mapping[str, Flag]) -> None:
    """Register the user's own neurons and data, and replace their paths by names."""
    if "neuron" in given:
        given["neuron"] = neuron_name(given["neuron"])
    if "neurons" in given:
        given["neurons"] = tuple(map(neuron_name, given["neurons"]))
    if "dataset" in given and is_path(given["dataset"]):
        from ultralif.data import DATASETS

        given["dataset"] = register_dataset(given["dataset"])
        spec = DATASETS.get(given["dataset"])
        if spec is not None and spec.is_events:
            given.setdefault("timesteps", spec.timesteps if flags["timesteps"].size else (spec.timesteps,))


def option_flags() -> dict[str, Flag]:
    """Return the options of all neurons; a shared option is taken from the first neuron that has it."""
    from ultralif.nn import NEURONS

    known: dict[str, Flag] = {}
    for neuron in NEURONS:
        known = neuron_flags(neuron) | known
    return known


def _read_options(words: Sequence[str], flags: Mapping[str, Flag], command: str) -> dict[str, Any]:
    """Parse neuron options from the words that do not belong to any other flag."""
    known = option_flags()
    with advised(command):
        options, rest = read(known, words)
        flag = rest[0].partition("=")[0] if rest else ""
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in ELSEWHERE:
            ours, remark = ELSEWHERE[name]
            raise InputError(f"{flag} is called {known[ours].written} here{': ' if remark else ''}{remark}")
        refuse_unknown(rest, {**flags, **known})
    return options


def _print_help(kind: type[Common], flags: Mapping[str, Flag], argv: Sequence[str], command: str) -> None:
    """Print the common flags in groups, or all flags, and the options of a given neuron."""
    full = "--help-all" in argv
    groups = {title: [flags[name] for name in names if name in flags] for title, names in GROUPS.items()}
    if full:
        shown = {name for names in GROUPS.values() for name in names}
        groups["rarely needed"] = [flag for name, flag in flags.items() if name not in shown]
    known = {name: flags[name] for name in ("neuron",) if name in flags}
    given, _ = read(known, [word for word in argv if not asks_for_help([word])])
    if given:
        neuron = neuron_name(given["neuron"])
        groups[f"options of {neuron}"] = [*neuron_flags(neuron).values()]
    print_help(kind, command, groups, full)
    echo()
    echo("--help-all shows every flag; for a neuron's options: ultralif neurons LIF")


def warn_of_batch(config: RunConfig) -> None:
    """Warn if a batch is larger than the training set."""
    from ultralif.data.table import DATASETS

    spec = DATASETS.get(config.dataset)
    if spec is not None and 0 < spec.sizes[0] < config.batch_size:
        say(
            f"batch size {config.batch_size:,} is larger than the training set of {config.dataset}, "
            f"{spec.sizes[0]:,} samples: an epoch is a single step; choose a smaller --batch-size"
        )


def warn_of_changed_code(rows: Sequence[Result]) -> None:
    """Warn about runs whose neuron or network code has changed."""
    for row in rows:
        if "code_sha256" in row.environment:
            from ultralif.training.networks import warn_of_code

            warn_of_code(row)


def read_config(path: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a run's config from a TOML or JSON file, and override some of its fields."""
    changes = changes or {}
    try:
        text = read_text(path, 1 << 20)
    except BadFile as error:
        raise InputError(
            f"config {error}; pass a TOML or JSON file, or one of {', '.join(PRESETS)}"
        ) from error
    try:
        data = parse_json(text, f"config {path}") if path.suffix == ".json" else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"config {path} is not valid: {error}") from error
    if not isinstance(data, dict):
        raise InputError(f"config {path} must contain config fields, got {type(data).__name__}")
    if "schema" in data:
        return RunConfig.from_dict(data).with_(**changes)
    return RunConfig(**{**data, **changes})
