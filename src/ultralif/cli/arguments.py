"""The arguments of the training commands: fields of a run, options of its neuron, recipes and help."""

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

# Threads that spin while they wait slow each other down on a busy machine, up to ten times. This must be set
# before torch is imported.
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
    """The config of a run, and the options of its training."""

    run: RunConfig
    recipe: Hidden[str | None] = None
    """The recipe that the config comes from."""
    config: Path | None = None
    """A recipe, such as digits or deep, or a TOML or JSON file with fields of a run, such as a run's
    config.json. Flags override it."""
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

    @contextmanager
    def watched(self, seconds: Sequence[float], **more: Any) -> Iterator[RunOptions]:
        """Yield the options of training; Ctrl-C stops it, and its progress is shown.

        Args:
            seconds: the estimated time of each stack of runs.
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
        """Print the recipe, so that the user knows where the other fields come from."""
        if self.recipe is not None:
            echo(f"trained by the recipe {self.recipe}; flags and --config override it")


def read_arguments(
    kind: type[C],
    argv: Sequence[str],
    command: str,
    recipe: Callable[[Mapping[str, Any]], str | None] = lambda given: None,
) -> C:
    """Parse the arguments of a training command.

    Paths of data, neurons and networks of the user are registered and replaced by their names. Missing
    values come from ``--config``, then from the recipe of the model, then from ``recipe``.

    Args:
        kind: the dataclass of the command.
        argv: the arguments after the command.
        command: its name.
        recipe: returns the name of a preset, or None, for the given arguments.
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
    for name in own & flags.keys() & PRESETS.get(preset or "", {}).keys():  # a sweep has lists
        given.setdefault(name, (PRESETS[preset or ""][name],))
    if code is not None:
        run = run.with_(model=register_model(code, run))
        if preset is None and file is None and "encoding" not in changes:
            from ultralif.training.networks import default_encoding

            run = run.with_(encoding=default_encoding(run.model))  # as ul.train
    return kind(run=run, recipe=preset, **given)


def _register(given: dict[str, Any], flags: Mapping[str, Flag]) -> None:
    """Register the user's own neurons and data; put their names in place of their paths."""
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
    """Return the options of all neurons, those of the first neuron that has them."""
    from ultralif.nn import NEURONS

    known: dict[str, Flag] = {}
    for neuron in NEURONS:
        known = neuron_flags(neuron) | known
    return known


def _read_options(words: Sequence[str], flags: Mapping[str, Flag], command: str) -> dict[str, Any]:
    """Return the options of neurons among the words that belong to no other flag."""
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
    """Print the flags in groups: those that people set, or all of them; and the options of a given neuron."""
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
    echo("--help-all shows every flag; the options of a neuron: ultralif neurons LIF")


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
    """Warn about runs whose neurons or networks have changed code."""
    for row in rows:
        if "code_sha256" in row.environment:
            from ultralif.training.networks import warn_of_code

            warn_of_code(row)


def read_config(path: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the config of a run from a TOML or JSON file, with other values for some of its fields."""
    changes = changes or {}
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
    if "schema" in data:
        return RunConfig.from_dict(data).with_(**changes)
    return RunConfig(**{**data, **changes})
