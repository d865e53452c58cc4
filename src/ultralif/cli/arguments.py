"""The arguments of the training commands: fields of a run, options of its neuron, recipes and help."""

import inspect
import os
import shutil
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from ultralif.cli.output import echo, say
from ultralif.cli.parse import Hidden, describe_flags, parse
from ultralif.cli.sources import is_code, is_path, register_dataset, register_model, register_neuron
from ultralif.errors import InputError
from ultralif.files import BadFile, parse_json, read_text
from ultralif.names import ELSEWHERE, similar
from ultralif.training.config import PRESETS, RunConfig, example, known_options, recipe_of
from ultralif.training.progress import Progress, RunOptions

__all__ = ["GROUPS", "Common", "read_arguments", "read_config", "warn_of_batch"]

C = TypeVar("C", bound="Common")

# Threads that spin while they wait slow each other down on a busy machine, up to ten times. This must be set
# before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

GROUPS: dict[str, tuple[str, ...]] = {
    "data": ("dataset", "timesteps", "encoding", "augment", "validation", "data-dir"),
    "network": ("neuron", "neurons", "model", "hidden", "width", "mode", "readout"),
    "training": (
        *("config", "epochs", "batch-size", "learning-rate", "schedule", "warmup-epochs", "optimizer"),
        *("weight-decay", "label-smoothing", "loss", "sparsity", "hard-share", "precision", "seed", "seeds"),
        *("device", "ray"),
    ),
    "output": ("runs-dir", "tensorboard", "dry-run", "quiet", "json"),
}
"""The flags that ``--help`` shows; ``--help-all`` also shows the others."""


@dataclass(frozen=True, kw_only=True)
class Common(RunConfig):
    """The fields of a run, and the options of its training."""

    neuron_options: Hidden[Mapping[str, Any]] = field(default_factory=dict)
    recipe: Hidden[str | None] = None
    """The recipe that the defaults come from."""
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

    @classmethod
    def with_defaults(cls, values: Mapping[str, Any], source: str) -> Self:
        """Return the arguments with the fields of a config as defaults.

        Args:
            values: the fields.
            source: the recipe or file that the fields come from.
        """
        return cls(**values)

    def run(self) -> RunConfig:
        """Return only the fields of the run."""
        return RunConfig(**_fields(self))

    def print_recipe(self) -> None:
        """Print the recipe, so that the user knows where the other fields come from."""
        if self.recipe is not None:
            echo(f"trained by the recipe {self.recipe}; flags and --config override it")

    def options(self, report: Callable[[Progress], None], stopping: Callable[[], int]) -> RunOptions:
        """Return the options of training."""
        return RunOptions(
            device=self.device,
            data_dir=self.data_dir,
            report=report,
            stopping=stopping,
            checkpoint_seconds=self.checkpoint_seconds,
        )


class Word(NamedTuple):
    """A flag with the values after it, or a word without a flag."""

    flag: str
    """The flag's name with underscores, without ``--`` and ``no-``; empty for a word without a flag."""
    values: tuple[str, ...]
    is_no: bool
    written: tuple[str, ...]
    """As the user wrote it."""


def read_arguments(
    kind: type[C],
    argv: Sequence[str],
    command: str,
    recipe: Callable[[set[str]], str | None] = lambda flags: None,
) -> C:
    """Parse the arguments of a training command.

    Paths of data, neurons and networks of the user are registered and replaced by their names. Defaults come
    from ``--config``, else from the recipe of the model, else from ``recipe``.

    Args:
        kind: the dataclass of the command.
        argv: the arguments after the command.
        command: its name.
        recipe: returns the name of a preset, or None, given the names of the flags that were passed.
    """
    words = _split(argv)
    given = {word.flag for word in words}
    if given & {"h", "help", "help_all"}:
        _print_help(kind, words, command)
        raise SystemExit(0)
    words, model = _register_paths(words)
    own = {name.replace("-", "_") for name in describe_flags(kind)}
    rest, options = _take_options(words, own)
    trained = recipe_of(_last(words, "model") or "mlp", _last(words, "dataset") or RunConfig.dataset)
    chosen = _last(words, "config") or trained or recipe(given)
    default = None if chosen is None else kind.with_defaults(read_config(Path(chosen)), chosen)
    found = parse(kind, rest, command, default)
    used = chosen if chosen in PRESETS else None
    found = replace(found, neuron_options={**found.neuron_options, **options}, recipe=used)
    if model is None:
        return found
    found = replace(found, model=register_model(model, found))
    if chosen is not None or "encoding" in given:
        return found
    from ultralif.training.networks import default_encoding

    return replace(found, encoding=default_encoding(found.model))  # as ul.train


def _split(argv: Sequence[str]) -> list[Word]:
    """Group the arguments: each flag with the values after it.

    Example:
        >>> [(word.flag, word.values) for word in _split(["--eps=1", "--no-learn-eps", "--hidden", "8", "4"])]
        [('eps', ('1',)), ('learn_eps', ()), ('hidden', ('8', '4'))]
    """
    groups: list[list[str]] = []
    for word in argv:
        if groups and not word.startswith("--") and word != "-h":
            groups[-1].append(word)
        else:
            groups.append([word])
    return [_word(*group) for group in groups]


def _word(first: str, *values: str) -> Word:
    if not first.startswith("-"):
        return Word("", (first, *values), False, (first, *values))
    flag, joined, value = first.partition("=")
    name = flag.lstrip("-").replace("-", "_")
    everything = (value, *values) if joined else values
    return Word(name.removeprefix("no_"), everything, name.startswith("no_"), (first, *values))


def _last(words: Sequence[Word], flag: str) -> str | None:
    """Return the value of a flag, or None."""
    return next((word.values[0] for word in reversed(words) if word.flag == flag and word.values), None)


def _register_paths(words: Sequence[Word]) -> tuple[list[Word], str | None]:
    """Register what the paths name; return the words with names instead, and the path of a network."""
    named: list[Word] = []
    model = None
    for word in words:
        value = word.values[0] if word.values else ""
        if word.flag == "model" and is_code(value):
            model = value
        elif word.flag in ("neuron", "neurons") and any(map(is_code, ",".join(word.values).split(","))):
            names = ",".join(word.values).split(",")
            known = ",".join(register_neuron(name) if is_code(name) else name for name in names)
            named.append(_word(f"--{word.flag}={known}"))
        elif word.flag == "dataset" and is_path(value):
            dataset = register_dataset(value)
            named.append(_word(f"--dataset={dataset}"))
            steps = _event_steps(dataset)
            if steps is not None and _last(words, "timesteps") is None:
                named.append(_word(f"--timesteps={steps}"))
        else:
            named.append(word)
    return named, model


def _event_steps(dataset: str) -> int | None:
    """Return the time steps of events; None for images."""
    from ultralif.data import DATASETS

    spec = DATASETS.get(dataset)
    return spec.timesteps if spec is not None and spec.is_events else None


_SWITCH = {"True": True, "False": False, "None": None}
_SWITCHES = {each.name for each in fields(RunConfig) if each.type == bool | None}
"""Fields that are true, false or None."""


def _take_options(words: Sequence[Word], own: set[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments of the command itself, and the options of the neuron.

    Args:
        words: the arguments.
        own: names of the command's own flags.

    Example:
        >>> _take_options(_split(["--eps", "0.5", "--no-augment", "--no-learn-eps"]), {"augment"})
        (['--augment', 'False'], {'eps': 0.5, 'learn_eps': False})
    """
    known: set[str] = set()
    if any(word.flag and word.flag not in own for word in words):  # asking the neurons imports torch
        known = known_options() - own
    rest: list[str] = []
    options: dict[str, Any] = {}
    for word in words:
        if word.flag in known:
            options[word.flag] = False if word.is_no else _option(word)
            rest += word.values[1:] if not isinstance(example(word.flag), list) else ()
        elif word.flag in _SWITCHES:
            value = "False" if word.is_no else word.values[0] if word.values else "True"
            spelled = value.capitalize() if value.capitalize() in _SWITCH else value
            rest += [f"--{_flag(word.flag)}", spelled, *word.values[0 if word.is_no else 1 :]]
        elif word.flag == "ray" and not word.values:
            rest.append("--ray=local")
        else:
            _check_spelling(word, own, known)
            rest += word.written
    return rest, options


def _option(word: Word) -> Any:
    """Return the value of an option, in the type of its default."""
    flag, default = word.written[0].partition("=")[0], example(word.flag)
    if isinstance(default, list):
        return [_number(flag, part) for value in word.values for part in value.split(",") if part]
    if not word.values:
        if isinstance(default, float | str):
            raise InputError(f"{flag} needs a value")
        return True
    value = word.values[0]
    switch = value.capitalize()
    if isinstance(default, bool):
        if switch not in _SWITCH:
            raise InputError(f"{flag} must be one of {', '.join(_SWITCH)}, got {value!r}")
        return _SWITCH[switch]
    if switch == "None" or (default is None and switch in _SWITCH):
        return _SWITCH[switch]
    if default is None:
        try:
            return float(value)
        except ValueError:
            return value
    return value if isinstance(default, str) else _number(flag, value)


def _number(flag: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{flag} takes a number, got {value!r}") from None


def _check_spelling(word: Word, own: set[str], known: set[str]) -> None:
    """Refuse an unknown flag that resembles an option, or is another library's name for one."""
    if not word.flag or word.flag in own:
        return
    flag = word.written[0].partition("=")[0]
    if word.flag in ELSEWHERE:
        ours, remark = ELSEWHERE[word.flag]
        raise InputError(f"{flag} is called --{_flag(ours)} here{': ' if remark else ''}{remark}")
    near = similar(word.flag, [*own, *known])
    if near is not None and near in known:
        raise InputError(f"{flag} is not known; did you mean --{_flag(near)}?")


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _print_help(kind: type[Common], words: Sequence[Word], command: str) -> None:
    """Print the flags in groups: those that people set, or all of them; and the options of a given neuron."""
    known = describe_flags(kind)
    groups = {title: [name for name in names if name in known] for title, names in GROUPS.items()}
    shown = {name for names in groups.values() for name in names}
    everything = any(word.flag == "help_all" for word in words)
    if everything:
        groups["rarely needed"] = [name for name in known if name not in shown]
    rows: list[tuple[str, str]] = []
    for title, names in groups.items():
        rows.append((f"{title}:", ""))
        rows += [(f"  {known[name].usage}", known[name].text(everything)) for name in names]
    rows.append(("  --help, --help-all", "Show this help, or every flag."))
    neuron = _last(_register_paths(words)[0], "neuron")
    if neuron is not None:
        from ultralif.cli.neurons import neuron_options

        rows.append((f"options of {neuron}:", ""))
        rows += [
            (f"  --{_flag(one.name)}", f"{one.meaning} (default: {one.default})")
            for one in neuron_options(neuron)
        ]
    else:
        rows += [("a neuron's options:", ""), (f"  ultralif {command} --neuron LIF --help", "")]
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 110)
    echo(f"usage: ultralif {command} [--flag value ...]")
    echo()
    for line in (inspect.getdoc(kind) or "").splitlines():
        echo(line)
    column = 30
    for usage, text in rows:
        if not usage.startswith(" "):
            echo()
        lines = textwrap.wrap(text, width - column - 1) or [""]
        if len(usage) > column:
            echo(usage)
            usage = ""
        for line in lines if text else [""]:
            echo(f"{usage:{column}} {line}".rstrip())
            usage = ""


def warn_of_batch(config: RunConfig) -> None:
    """Warn if a batch is larger than the training set."""
    from ultralif.data.table import DATASETS

    spec = DATASETS.get(config.dataset)
    if spec is not None and 0 < spec.sizes[0] < config.batch_size:
        say(
            f"batch size {config.batch_size:,} is larger than the training set of {config.dataset}, "
            f"{spec.sizes[0]:,} samples: an epoch is a single step; choose a smaller --batch-size"
        )


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
    run = RunConfig.from_dict(data)
    # A flag may choose another neuron, which does not take the unchanged options of this one.
    return _fields(run) | {
        "neuron_options": run.changed_options() if "schema" in data else run.neuron_options
    }


def _fields(run: RunConfig) -> dict[str, Any]:
    return {each.name: getattr(run, each.name) for each in fields(RunConfig)}
