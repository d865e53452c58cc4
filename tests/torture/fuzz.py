"""Fuzzed commands, and run folders with hostile contents and right manifests.

A command may do its work or refuse it in one line; a traceback, a crash or a minute of silence is a bug.
"""

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from torture.warm import Child, Row, lanes, run
from ultralif.cli import COMMANDS, main

HANG = 60.0
CHUNK = 200
"""Cases of one child: a fork for each would take longer than most of them."""

WORDS = (
    *(
        "",
        "0",
        "1",
        "2",
        "3",
        "-1",
        "0.5",
        "-0.5",
        "nan",
        "inf",
        "1e308",
        "1e-320",
        "99999999999",
        "2e9",
        "x",
    ),
    *(
        str(2**63),
        str(-(2**63) - 1),
        "None",
        "True",
        "LIF",
        "ultradlif",
        "all",
        "hard",
        "digits",
        "mnist",
        "c",
    ),
    *("2-3-2", "2-0-2", "9-9", "1,2", "1,,2", ",", "1 2", "../..", "/", "/dev/null", "/etc/passwd", "a\0b"),
    *("\x1b[2J", "\udcff", "\u202e", "é" * 300, "--", "-", "--help", "=", "{}", "%s", "paper", "😀"),
    "'; DROP TABLE runs; --",
)
SMALL = {
    "train": ["--epochs", "1", "--timesteps", "1", "--hidden", "4", "--batch-size", "600", "--quiet"],
    "sweep": ["--epochs", "1", "--timesteps", "1", "--hidden", "4", "--neurons", "LIF", "--quiet"],
    "bench": ["--timesteps", "1", "--batch", "2", "--features", "4"],
}
"""Words that come first, so that what is right takes a moment; words after them override them."""
LONG = {"--epochs", "--seeds", "--theory", "--only", "--ray", "--repeats", "--cpus", "--device", "--segments"}
"""Flags that are left out: whatever makes a right command take minutes."""


def vocabulary() -> dict[str, list[str]]:
    """Return the flags of every command and action, as their help lists them."""
    found: dict[str, list[str]] = {}
    for command in COMMANDS:
        actions = import_module(f"ultralif.cli.{command}").COMMAND
        for action in actions if isinstance(actions, dict) else ("",):
            text = io.StringIO()
            with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
                main([word for word in (command, action, "--help") if word])
            flags = re.findall(r"(?m)^\W*(--[a-z][\w-]*)", text.getvalue())
            found[f"{command} {action}".strip()] = [flag for flag in flags if flag not in LONG]
    return found


def invented(flags: dict[str, list[str]], runs: list[str], rng: random.Random) -> list[str]:
    """Return the words of a command that is nearly right, or not at all."""
    command = rng.choice([name for name in flags if name not in ("completion", "data get")])
    words = [*command.split(), *SMALL.get(command, [])]
    if rng.random() < 0.7 and not SMALL.get(command):
        words.append(rng.choice((*runs, "2-3-2", *WORDS)))
    for _ in range(rng.randrange(4)):
        words.append(rng.choice((*flags[command], *flags[command], "--nonsense")))
        words += [rng.choice((*WORDS, *runs)) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    if rng.random() < 0.05:
        rng.shuffle(words)
    return words


def said_by(words: list[str]) -> str | None:
    """Run a command in this process and return what is wrong with its end, if anything is."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as left:
            code = int(left.code or 0)
    text = out.getvalue() + err.getvalue()
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if code == 2 and not err.getvalue().splitlines()[-1].startswith("ultralif: "):
        return "a refusal that is not one line"
    if re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e]", text) and "--help" not in words:
        return "control characters"
    return None


def said_by_process(words: list[str]) -> str | None:
    """Run a command as a process of its own and return what is wrong with its end, if anything is."""
    if any("\0" in word for word in words):  # which no process can be given
        return said_by(words)
    given = [word.encode("utf-8", "surrogateescape") for word in words]
    done = subprocess.run([sys.executable, "-m", "ultralif", *given], capture_output=True, timeout=HANG)
    err = done.stderr.decode("utf-8", "replace")
    if "Traceback" in err:
        return f"a traceback: {err.strip().splitlines()[-1][:200]}"
    return None if done.returncode in (0, 1, 2) else f"exit code {done.returncode}"


def in_children(cases: list[Callable[[], str | None]], names: list[str]) -> tuple[list[str], float]:
    """Do the cases in children, many in each, and return the complaints and the slowest time."""
    bad: list[str] = []
    slowest = 0.0
    for start in range(0, len(cases), CHUNK):
        pending = list(range(start, min(start + CHUNK, len(cases))))
        while pending:
            reading, writing = os.pipe()

            def work(pending: tuple[int, ...] = tuple(pending), writing: int = writing) -> None:
                for i in pending:
                    os.write(writing, f"{i} {time.monotonic()} {cases[i]() or ''}\n".encode())

            os.set_blocking(reading, False)
            child, began = Child(work), time.monotonic()
            os.close(writing)
            lines, ended = _followed(child, reading, began)
            for line in lines:
                number, _, complaint = line.split(" ", 2)
                pending.remove(int(number))
                bad += [f"{names[int(number)]}: {complaint}"] if complaint else []
            times = [began, *(float(line.split(" ", 2)[1]) for line in lines)]
            slowest = max([slowest, *(b - a for a, b in pairwise(times))])
            if ended is not None and pending:  # the first that is left is to blame
                bad.append(f"{names[pending.pop(0)]}: {ended}")
                slowest = max(slowest, HANG) if ended == "hangs" else slowest
    return bad, slowest


def _followed(child: Child, reading: int, began: float) -> tuple[list[str], str | None]:
    """Read what a child reports, until it ends or says nothing for too long."""
    text, last = b"", began
    while True:
        with contextlib.suppress(BlockingIOError):
            part = os.read(reading, 1 << 16)
            text, last = text + part, time.monotonic()
            if not part:
                break
        if time.monotonic() - last > HANG:
            child.kill()
            break
        time.sleep(0.002)
    hung = time.monotonic() - last > HANG
    ended = child.wait()
    os.close(reading)
    why = None
    if hung:
        why = "hangs"
    elif ended.code:
        why = (ended.message.strip().splitlines() or [f"signal {-ended.code}"])[-1][:200]
    return text.decode("utf-8", "replace").splitlines(), why


def inventions(runs: Path, rng: random.Random, count: int) -> list[list[str]]:
    """Return fuzzed commands; some of them name the run in a folder."""
    (run,) = [path.name for path in runs.glob("[0-9a-f]*") if path.is_dir()]
    flags = vocabulary()
    return [invented(flags, [run, run[:4], f"{runs.name}/{run}"], rng) for _ in range(count)]


def commands(base: Path, rng: random.Random, count: int, processes: int) -> Row:
    """Call thousands of fuzzed commands, one in a hundred as a process of its own."""
    folder = base / "fuzzed"
    shutil.copytree(base / "training", folder / "runs")
    os.environ["ULTRALIF_RUNS"] = str(folder / "runs")
    before = Path.cwd()
    os.chdir(folder)
    words = inventions(folder / "runs", rng, count)
    try:
        load_all(words[:200])
        calls = [said_by if i % 100 else said_by_process for i in range(count)]
        cases = [lambda call=call, given=given: call(given) for call, given in zip(calls, words, strict=True)]
        bad, slowest = shared(cases, [repr(given) for given in words], processes)
    finally:
        os.chdir(before)
        del os.environ["ULTRALIF_RUNS"]
    size = f"{count:,}, {calls.count(said_by_process):,} of them as processes of their own"
    return _row("fuzzed commands", size, bad, slowest)


def load_all(words: list[list[str]]) -> None:
    """Import what some commands import, so that no child has to."""
    before = set(sys.modules)

    def imported() -> str:
        for given in words:
            said_by(given)
        return json.dumps(sorted(set(sys.modules) - before))

    found = run(imported)
    assert found.code == 0, found.message
    for name in json.loads(found.message):
        with contextlib.suppress(Exception):  # what is there only after another, or is no module of a file
            import_module(name)


def shared(
    cases: list[Callable[[], str | None]], names: list[str], processes: int
) -> tuple[list[str], float]:
    """Do the cases in some processes side by side, and return the complaints and the slowest time."""
    parts = lanes(lambda i: in_children(cases[i::processes], names[i::processes]), processes)
    return [line for bad, _ in parts for line in bad], max(slowest for _, slowest in parts)


def _row(name: str, size: str, bad: list[str], slowest: float) -> Row:
    for line in bad:
        print(f"    {name}: {line}", file=sys.stderr)
    bar = f"done or refused in a line: 0 tracebacks, 0 crashes, 0 beyond {HANG:.0f} s"
    found = f"{len(bad)} bad, slowest {slowest:.1f} s" + "".join(f"; {line[:200]}" for line in bad[:3])
    return Row(name, size, bar, found, not bad and slowest < HANG)


VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1,
        10**400,
        1.5,
        -0.0,
        float("nan"),
        float("inf"),
        1e308,
        "",
        "x",
        "LIF",
        "hard",
        "done",
    ),
    *("\x1b[31m\u202e", "../../x", "a" * 100_000, [], [1], [[]], {}, {"a": 1}, [None] * 50),
)


def altered(document: Any, rng: random.Random) -> Any:
    """Change a JSON document in one place: another value, one more, or one less."""
    if isinstance(document, dict) and document and rng.random() < 0.9:
        key = rng.choice(sorted(document))
        match rng.randrange(5):
            case 0:
                return {k: v for k, v in document.items() if k != key}
            case 1:
                return {**document, rng.choice(("x", "id", "\x1b]0;x\x07", "eps")): rng.choice(VALUES)}
            case _:
                return {**document, key: altered(document[key], rng)}
    if isinstance(document, list) and document and rng.random() < 0.7:
        at = rng.randrange(len(document))
        return [*document[:at], altered(document[at], rng), *document[at + 1 :]]
    return rng.choice(VALUES)


def hostile_run(sound: Path, folder: Path, rng: random.Random) -> None:
    """Copy a run and change its contents so that its manifest fits them."""
    shutil.copytree(sound, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    name = rng.choice(sorted(path.name for path in folder.iterdir()))
    path = folder / name
    kind = rng.random()
    if kind < 0.1:
        path.unlink()
        match rng.randrange(4):
            case 0:
                os.mkfifo(path)
            case 1:
                path.symlink_to("/dev/zero")
            case 2:
                path.mkdir()
            case 3:
                path.symlink_to("/etc/passwd")
        return
    if name == "manifest.json":
        path.write_text(json.dumps(altered(manifest, rng)))
        return
    if name.endswith(".json"):
        path.write_text(json.dumps(altered(json.loads(path.read_text()), rng)))
    else:
        data = bytearray(path.read_bytes())
        size = int.from_bytes(data[:8], "little")
        try:
            header = json.loads(data[8 : 8 + size])
            text = json.dumps(altered(header, rng)).encode()
            data[:] = len(text).to_bytes(8, "little") + text + data[8 + size :]
        except ValueError:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    _sign(folder, manifest)


def _sign(folder: Path, manifest: Any) -> None:
    """Write the digests and sizes that the files now have, wherever the manifest has them."""

    def signed(value: Any, name: str | None) -> Any:
        if isinstance(value, dict):
            return {
                key: signed(part, key if (folder / key).is_file() else name) for key, part in value.items()
            }
        if name is None:
            return value
        content = (folder / name).read_bytes()
        if isinstance(value, str) and re.fullmatch(r"(sha256:)?[0-9a-f]{64}", value):
            return value[:-64] + sha256(content).hexdigest()
        return len(content) if isinstance(value, int) and not isinstance(value, bool) else value

    (folder / "manifest.json").write_text(json.dumps(signed(manifest, None)))


def tasks(place: Path, run: str, config: str) -> list[list[str]]:
    """Return the commands that read a run; CONFIG is the hostile one's."""
    return [
        ["runs", "rebuild"],
        ["runs", "list"],
        ["runs", "show", run],
        ["runs", "compare", run, run],
        ["runs", "export", "--to", "markdown"],
        ["eval", run],
        ["export", run, "--to", "nir", "--out", str(place / "out")],
        ["analyze", "volume", run],
        ["report", "--inside", "0", "--out", str(place / "page.html")],
        ["train", "--config", config, "--quiet"],
        ["train", "--config", "CONFIG", "--epochs", "1", "--quiet", "--dry-run"],
    ]


def on_hostile_run(sound: Path, place: Path, seed: int) -> str | None:
    """Let a command work on a store in which a run is hostile, and return what is wrong with its end.

    Args:
        sound: the folder of a run in a store.
        place: a folder for the store and what the command writes; it is emptied.
        seed: draws the damage and the command.
    """
    rng, store = random.Random(seed), place / "store"  # noqa: S311 (it draws damage, not secrets)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(sound.parent, store, ignore=shutil.ignore_patterns(sound.name))
    hostile_run(sound, store / sound.name, rng)
    words = rng.choice(tasks(place, sound.name, str(sound / "config.json")))
    words = [str(store / sound.name / "config.json") if word == "CONFIG" else word for word in words]
    first = said_by(["runs", "rebuild", "--runs-dir", str(store)]) if rng.random() < 0.5 else None
    more = [] if "--dry-run" in words else ["--runs-dir", str(store)]
    found = first or said_by([*words, *more])
    return found and f"{words[:2]}: {found}"


def run_folders(base: Path, rng: random.Random, count: int, processes: int) -> Row:
    """Let commands work on thousands of hostile runs."""
    (sound,) = [path for path in (base / "training").glob("[0-9a-f]*") if path.is_dir()]
    seeds = [rng.randrange(1 << 40) for _ in range(count)]

    def case(seed: int) -> str | None:
        return on_hostile_run(sound, base / f"hostile-runs-{os.getppid()}", seed)

    load_all([[*words, "--runs-dir", str(sound.parent)] for words in tasks(base / "loaded", sound.name, "")])
    cases = [lambda seed=seed: case(seed) for seed in seeds]
    bad, slowest = shared(cases, [f"seed {seed}" for seed in seeds], processes)
    return _row("hostile run folders", f"{count:,}", bad, slowest)
