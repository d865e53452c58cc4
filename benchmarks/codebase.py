"""Measure the size of the library and the depth of its calls: ``python benchmarks/codebase.py``.

Each row has a goal; a row that misses it is marked. ``--root FOLDER`` measures another checkout.
"""

import argparse
import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

GROWN = (
    "since 0.2.0 (37,868 lines), 4,600 lines for the paper and 500 of commands and report were removed, but "
    "export grew by 3,400 (C and NIR for all layers), conversion added 2,100, training and data 2,200 (any "
    "data, any task), and diagnosis 500; 12,600 lines are docstrings or blank"
)
SPLIT = (
    "each file covers one idea, so the default run, a convolutional network, imports more files; all of "
    "ours are imported within the time in the row above"
)

CALLS = """
import sys, torch, ultralif as ul
layer = ul.UltraLIF()
current = torch.randn(8, 16, 32, requires_grad=True)
for _ in range(3):
    layer(current).sum().backward()
entered = []
def note(frame, event, argument):
    if event == "call" and "/ultralif/" in frame.f_code.co_filename:
        entered.append(frame.f_code.co_name)
def count(action):
    entered.clear()
    sys.setprofile(note)
    value = action()
    sys.setprofile(None)
    return value, len(entered)
spikes, forward = count(lambda: layer(current))
import threading
threading.setprofile(note)
_, backward = count(lambda: spikes.sum().backward())
print(forward, backward)
"""

FIRST = """
import time, torch
began = time.process_time()
import ultralif as ul
ul.UltraLIF
imported = time.process_time()
layer = ul.UltraLIF()
current = torch.randn(4, 8, 16)
made = time.process_time()
layer(current)
print(imported - began, time.process_time() - made)
"""

LOADED = """
import contextlib, io, sys
from ultralif.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main({arguments!r})
ours = [name for name in sys.modules if name == "ultralif" or name.startswith("ultralif.")]
print(len(ours), int("torch" in sys.modules))
"""

PUBLIC = """
import inspect, ultralif as ul
names = [name for name in dir(ul) if not name.startswith("_")]
modules = [name for name in names if inspect.ismodule(getattr(ul, name))]
print(len(names) - len(modules), len(modules))
"""


class Row(NamedTuple):
    """A measured number and its goal."""

    what: str
    value: float
    goal: float
    why: str = ""
    """Why the goal is missed."""

    def __str__(self) -> str:
        mark = "" if self.value <= self.goal else f"  MISSED: {self.why}" if self.why else "  MISSED"
        return f"{self.what:58} {self.value:>9,g}   goal {self.goal:>7,g}{mark}"


def run(root: Path, script: str, best_of: int = 1) -> list[float]:
    """Run a script on a checkout's library; return the minimum of each number in its last line."""
    environment = {"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    found = []
    for _ in range(best_of):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        found.append([float(number) for number in done.stdout.splitlines()[-1].split()])
    return [min(numbers) for numbers in zip(*found, strict=True)]


def sizes(root: Path) -> tuple[int, int]:
    """Return the lines of Python and C in the package, and the number of Python files."""
    files = [path for path in (root / "src/ultralif").rglob("*") if path.suffix in (".py", ".c", ".h")]
    lines = sum(len(path.read_text().splitlines()) for path in files)
    return lines, sum(path.suffix == ".py" for path in files)


def shared_names(root: Path) -> int:
    """Return how many class names are used by more than one class."""
    names = Counter(
        node.name
        for folder in ("src", "research")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    return sum(count > 1 for count in names.values())


def uses_of_any(root: Path) -> int:
    """Return how often the package's annotations use ``Any``."""
    texts = (path.read_text() for path in (root / "src/ultralif").rglob("*.py"))
    return sum(len(re.findall(r"\bAny\b", text)) for text in texts)


def help_of_train(root: Path) -> tuple[int, int]:
    """Return the number of lines and of flags in ``ultralif train --help``."""
    script = "import sys; from ultralif.cli import main; sys.exit(main(['train', '--help']))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(root / "src"), "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    flags = re.findall(r"^[\s│|]*(?:-\w, )?(--[a-z][\w-]*)", done.stdout, flags=re.MULTILINE)
    return len(done.stdout.splitlines()), len(set(flags))


def keywords(root: Path) -> int:
    """Return the largest number of keyword arguments of any built-in neuron."""
    script = (
        "import inspect, ultralif as ul; "
        "print(max(len(inspect.signature(neuron).parameters) for neuron in ul.NEURONS.values()))"
    )
    return int(run(root, script)[0])


def pages(root: Path) -> int:
    """Return the number of pages in the site's navigation; the measurements count as one."""
    text = (root / "mkdocs.yml").read_text().partition("\nnav:")[2]
    text = re.split(r"\n(?=\S)", text)[0]
    return len(re.findall(r"[\w/-]+\.(?:md|ipynb)\s*$", text, flags=re.MULTILINE))


def measure(root: Path) -> list[Row]:
    """Return every row of the table."""
    lines, files = sizes(root)
    help_lines, flags = help_of_train(root)
    forward, backward = run(root, CALLS)
    imported, first = run(root, FIRST, best_of=5)
    with TemporaryDirectory() as runs:  # an empty store: a finished run would not be trained again
        train = ["train", "--epochs", "1", "--timesteps", "2", "--quiet", "--runs-dir", runs]
        (training, _) = run(root, LOADED.format(arguments=train))
        listing = run(root, LOADED.format(arguments=["runs", "list", "--runs-dir", runs]))
    names, _ = run(root, PUBLIC)
    return [
        Row("lines of Python and C in the package", lines, 31_000, GROWN),
        Row("Python files in the package", files, 200),
        Row("`Any` in the package", uses_of_any(root), 677),
        Row("class names used twice", shared_names(root), 0),
        Row("keyword arguments of the neuron with the most", keywords(root), 18),
        Row("lines of `ultralif train --help`", help_lines, 75),
        Row("flags in it", flags, 45),
        Row("our functions in a repeated CPU layer call, forward", forward, 12),
        Row("the same, backward", backward, 8),
        Row("seconds of CPU for `import ultralif` after torch", imported, 0.15),
        Row("seconds of CPU for the first forward pass", first, 0.05),
        Row("our modules that `ultralif train` loads", training, 65, SPLIT),
        Row("torch is loaded by `ultralif runs list`", listing[1], 0),
        Row("public names at the top level", names, 36),
        Row("pages in the navigation", pages(root), 25),
    ]


def main() -> int:
    """Print the table; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    rows = measure(parser.parse_args().root.resolve())
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    print(f"{project['name']}, {sys.version.split()[0]} on {sys.platform}")
    for row in rows:
        print(row)
    return int(any(row.value > row.goal for row in rows))


if __name__ == "__main__":
    sys.exit(main())
