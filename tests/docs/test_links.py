"""Links between files lead somewhere, in a checkout as on the site."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "docs", ROOT / "research")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings as GitHub and MkDocs write them, and explicit ones."""
    text = page.read_text()
    titles = re.findall(r"^#+ (.+?)(?: \{#([\w-]+)\})?$", text, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()).strip() for title, _ in titles)
    named = re.findall(r'(?:id|name)="([^"]+)"', text)
    return {re.sub(r"[ -]+", "-", title) for title in plain} | {name for _, name in titles} | set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_links_to_what_is_there(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        found = page.parent / target if target else page
        notebook = found.with_suffix(".ipynb")  # a page of the site
        assert found.exists() or (found.parent.name == "tutorials" and notebook.exists()), target
        if anchor and found.suffix == ".md" and found.exists():
            assert anchor in anchors(found), f"{target}#{anchor}"
