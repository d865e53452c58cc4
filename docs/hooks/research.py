"""Show the pages of research/ on the site, under research/, with links that work there and in a checkout."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

RESEARCH = Path(__file__).parents[2] / "research"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the front page of research/ and the pages in its docs folder."""
    readme = (RESEARCH / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "research/index.md", content=readme))
    docs = RESEARCH / "docs"
    for path in sorted(docs.rglob("*")):
        uri = f"research/{path.relative_to(docs).as_posix()}"
        if path.suffix == ".md":
            files.append(File.generated(config, uri, content=path.read_text(encoding="utf-8")))
        elif path.is_file():
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    log = "results/seed-h200.txt"
    files.append(File.generated(config, log, abs_src_path=str(RESEARCH / log)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn a checkout's links between docs/ and research/docs/ into links on the site."""
    if page.file.src_uri == "research/index.md":
        markdown = re.sub(r"(\]\([^)]*tutorials/[^)]*)\.ipynb", r"\1.md", markdown)
        return re.sub(r"\]\((\.\./)?docs/", r"](\1", markdown)
    if page.file.src_uri.startswith("research/"):
        return re.sub(r"\]\(((?:\.\./)*)\.\./docs/", r"](\1", markdown)
    markdown = re.sub(r"\]\(\.\./((?:\.\./)*)research/docs/", r"](\1research/", markdown)
    return re.sub(r"\]\(\.\./((?:\.\./)*)research/README\.md", r"](\1research/index.md", markdown)
