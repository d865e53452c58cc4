"""Sample the project's sentences, so that a reader can mark those that no native engineer would write.

python tools/sentences.py                # 100 sentences, seed 0
python tools/sentences.py 50 --seed 3 --only docstrings messages
"""

import argparse
import ast
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("docstrings", "comments", "messages", "pages")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(])")


def prose(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without code, tables, headings and list markup."""
    text = re.sub(r"```.*?```|<!--.*?-->|\$\$.*?\$\$", "\n\n", text, flags=re.DOTALL)
    kept = []
    for line in text.splitlines():
        bare = line.strip()
        code = bare.startswith((">>>", "...", "|", "#", "![", "<", ".. ", ":::", "---"))
        bullet = re.match(r"(?:[-*]|\d+\.) |[A-Za-z_]+: |(?:Args|Example|Returns|Raises):$", bare)
        kept.append("" if code else ("\n" if bullet else "") + bare)
    for paragraph in re.split(r"\n\s*\n", "\n".join(kept)):
        for sentence in SENTENCE.split(" ".join(paragraph.split())):
            words = sentence.split()
            if len(words) >= 4 and sum(word.strip(",.;:()").isalpha() for word in words) >= 0.6 * len(words):
                yield sentence


def strings(node: ast.AST) -> Iterator[str]:
    """Yield the texts inside a node, with braces in place of inserted values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def of_module(path: Path) -> Iterator[tuple[str, str]]:
    """Yield kind and sentence for the docstrings, comments and messages of a module."""
    source = path.read_text(encoding="utf-8")
    documented = set()
    for node in ast.walk(tree := ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                documented.add(each.value)
    for constant in documented:
        if isinstance(constant.value, str):
            yield from (("docstrings", sentence) for sentence in prose(constant.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            for text in strings(node):
                yield from (("messages", sentence) for sentence in prose(text))
    for comment in re.findall(r"#[ ]([A-Za-z].*)$", source, flags=re.MULTILINE):
        yield from (("comments", sentence) for sentence in prose(comment))


def of_page(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a page, or of the text of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    yield from (("pages", sentence) for sentence in prose(text))


def collect(kinds: set[str]) -> list[tuple[str, str, str]]:
    """Return the file, kind and text of every sentence, ordered by file."""
    modules = sorted((ROOT / "src").rglob("*.py"))
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    for folder in ("docs", "research"):
        pages += sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".ipynb"))
    found = [(path, *pair) for path in modules for pair in of_module(path)]
    found += [(path, *pair) for path in pages for pair in of_page(path)]
    named = {(str(path.relative_to(ROOT)), kind, sentence) for path, kind, sentence in found if kind in kinds}
    return sorted(named)


def main() -> None:
    """Print a numbered sample, with the file of each sentence."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("count", nargs="?", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    given = parser.parse_args()
    every = collect(set(given.only))
    for number, (path, kind, sentence) in enumerate(
        random.Random(given.seed).sample(every, min(given.count, len(every))),  # noqa: S311
        1,
    ):
        print(f"{number:3} {path} ({kind[:-1]})\n    {sentence}")
    print(f"\n{len(every):,} sentences in all")


if __name__ == "__main__":
    main()
