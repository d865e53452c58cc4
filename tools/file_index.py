"""Write the list of all files in docs/architecture.md: ``python tools/file_index.py``.

Each line is the first sentence of a file's docstring or leading comment.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- files -->\n", "<!-- end of files -->\n"
FOLDERS = ("src/ultralif", "research", "benchmarks", "tools")


def summary(path: Path) -> str:
    """Return what the first sentence of a file says about it."""
    text = path.read_text()
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        found = re.match(r"\s*(?:/\*(.*?)\*/|((?://[^\n]*\n)+))", text, re.DOTALL)
        said = next(filter(None, found.groups())) if found else ""
        said = "\n".join(re.sub(r"^[ *]*(?://)? ?", "", line) for line in said.splitlines())
    said = " ".join(said.partition("\n\n")[0].split())
    first = re.split(r"(?<=[.:]) (?=[A-Z])|: ``|: \$", said)[0].rstrip(".:")
    return first.replace("``", "`")


def files(folder: str) -> Iterator[Path]:
    """Yield the files of a folder that say what they are, folder by folder."""
    for path in sorted((ROOT / folder).rglob("*"), key=lambda path: (str(path.parent), path.name)):
        if path.suffix in (".py", ".c", ".h", ".js") and not path.name.startswith("__") and summary(path):
            yield path


def listing() -> str:
    """Return the list in Markdown, with a heading for each folder."""
    lines: list[str] = []
    last = None
    for folder in FOLDERS:
        for path in files(folder):
            if path.parent != last:
                last = path.parent
                lines.append(f"\n**{last.relative_to(ROOT)}**\n\n")
            short = path.relative_to(ROOT / "src/ultralif" if folder == FOLDERS[0] else ROOT)
            lines.append(f"- `{short}`: {summary(path)}\n")
    return "".join(lines) + "\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + listing() + END + rest.partition(END)[2])
