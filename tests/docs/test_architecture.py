"""The map of the house names what exists, in the order that the import layers enforce."""

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ultralif"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_folder_and_module_named_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.(?:py|h|js))?|[a-z_]+\.py)`", PAGE))
    named -= {"src/ultralif"}
    assert len(named) > 40
    assert not [name for name in named if not ((SOURCE / name).exists() or (ROOT / name).exists())]


def test_every_folder_and_top_level_module_is_on_the_map() -> None:
    rows = "".join(re.findall(r"^\| (`[^|]+) \|[^|]+\|[^|]+\|$", PAGE, flags=re.MULTILINE))
    named = set(re.findall(r"`([a-z_]+(?:/|\.py))`", rows))
    there = {f"{path.name}/" for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    there |= {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")}
    assert named == there


def test_the_map_has_the_order_of_the_import_layers() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    rank = {name: i for i, row in enumerate(contract["layers"]) for name in re.findall(r"\w+", row)}
    rows = re.findall(r"^\| `([a-z_]+)(?:/|\.py)`", PAGE, flags=re.MULTILINE)
    assert [rank[name] for name in rows] == sorted(rank[name] for name in rows)


def test_a_change_touches_at_most_four_files() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)[1:]
    assert len(rows) >= 14
    for change, files in rows:
        assert len(re.findall(r"`[a-z_/]+\.(?:py|h|js)`", files)) <= 4, change


def test_the_list_of_files_is_that_of_their_docstrings() -> None:
    index = runpy.run_path(str(ROOT / "tools" / "file_index.py"))
    assert index["BEGIN"] + index["listing"]() + index["END"] in PAGE
    assert all(re.search(r": \S", line) for line in index["listing"]().splitlines() if line.startswith("- "))
