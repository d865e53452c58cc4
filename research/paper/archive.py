"""Results files: gzipped JSON lines, one run and its config per line, readable without a store."""

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ultralif.errors import InputError
from ultralif.training import Result

__all__ = ["Archive", "read", "write"]

MOST_BYTES = 1 << 28
"""The maximum unpacked size of a results file (256 MiB)."""
TIMING = "timing"
"""The id of the row with training-step times; see research/studies/overhead.py."""


class BadResult(InputError):
    """A file is not a valid results file."""


class Archive(NamedTuple):
    """The runs in a results file."""

    results: list[Result]
    step_ms: dict[str, dict[str, float]]
    """Milliseconds per training step, by setting and neuron."""


def write(
    path: Path, results: Iterable[Result], step_ms: Mapping[str, Mapping[str, float]] | None = None
) -> int:
    """Write runs to one compact file, one per line, and return their number."""
    rows = [_row(result) for result in results]
    count = len(rows)
    if step_ms:
        rows.append({"id": TIMING, "step_ms": step_ms})
    short = [{**_rounded(row), **({"config": row["config"]} if "config" in row else {})} for row in rows]
    lines = sorted(json.dumps(row, separators=(",", ":"), sort_keys=True) for row in short)
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    return count


def read(path: Path) -> Archive:
    """Read a file written by `write`."""
    found = Archive([], {})
    try:
        text = _unpacked(path)
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            source = f"row {number} of {path}"
            row = _parsed(line, source)
            if not isinstance(row, dict):
                raise BadResult(f"{source} is not the result of a run, but {type(row).__name__}")
            if row.get("id") == TIMING:
                found.step_ms.update(_timing(row, source))
            else:
                found.results.append(_result(row, source))
    except BadResult as error:
        raise InputError(
            f"{error}; a results file must be gzipped JSON lines, as written by research.paper.archive.write"
        ) from error
    return found


def _unpacked(path: Path) -> str:
    """Return the text of a gzip file that is not too large."""
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
    except gzip.BadGzipFile as error:
        raise BadResult(f"{path} is not a gzip file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadResult(f"{path} cannot be read ({error})") from error
    if len(content) > MOST_BYTES:
        raise BadResult(f"{path} unpacks to more than {MOST_BYTES:,} bytes")
    return content.decode()


def _parsed(line: str, source: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadResult(f"{source} is not valid JSON ({error})") from error


def _row(result: Result) -> dict[str, Any]:
    """Convert a result to a row; missing values are None."""
    operations = {mode: one.operations for mode, one in result.by_mode.items() if one.operations}
    return {
        **{name: getattr(result, name) for name in ("id", "mode", "status", "epochs", "seconds", "stacked")},
        "config": dict(result.config),
        "accuracy": result.accuracy,
        "validation": result.validation,
        "spike_rate": result.spike_rate,
        "macs": {mode: round(one.macs) for mode, one in operations.items()},
        "acs": {mode: round(one.acs) for mode, one in operations.items()},
        "constants": asdict(result.constants),
        "by_epoch": asdict(result.by_epoch),
        **({"hits": result.hits} if result.hits else {}),
    }


def _result(row: dict[str, Any], source: str) -> Result:
    config = row.get("config")
    if not isinstance(config, dict):
        raise BadResult(f"{source} has no config")
    if not isinstance(row.get("accuracy"), dict) or not isinstance(row.get("spike_rate"), dict):
        raise BadResult(f"{source} is not the result of a run: accuracy and spike_rate are missing")
    if missing := [name for name in _NAMED if name not in config]:
        raise BadResult(f"the config of {source} has no {', '.join(missing)}")
    named = {name: config[name] for name in _NAMED}
    macs, acs = row.get("macs"), row.get("acs")
    operations = {}
    if isinstance(macs, dict) and isinstance(acs, dict):
        operations = {mode: {"macs": macs[mode], "acs": acs[mode]} for mode in macs.keys() & acs.keys()}
    data = {**named, **row, "config": config, "energy": {"operations": operations}}
    return Result.from_dict(data, source).with_sops()


_NAMED = ("dataset", "neuron", "timesteps", "seed", "sparsity")
"""Config fields that a result also stores separately."""


def _timing(row: Mapping[str, Any], source: str) -> dict[str, dict[str, float]]:
    step_ms = row.get("step_ms")
    if not isinstance(step_ms, dict) or not all(
        isinstance(times, dict) and all(isinstance(ms, int | float) for ms in times.values())
        for times in step_ms.values()
    ):
        raise BadResult(f"{source} does not contain milliseconds by setting and neuron")
    return step_ms


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: _rounded(entry) for name, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value
