"""Show docstring formulas as MathML, which browsers render without scripts, fonts or network."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig

INLINE = r":math:`([^`]+)`"
DISPLAY = re.compile(r"^( *)\.\. math:: *(.*)$")


class Display(Preprocessor):
    """Replace ``.. math::`` blocks, of one line or with indented lines below."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines with formulas in place of their source."""
        return list(self._replaced(iter(lines)))

    def _replaced(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            found = DISPLAY.match(line)
            if not found:
                yield line
                continue
            formula, after = [found[2]], ""
            for after in lines:
                if not after.startswith(found[1] + " "):
                    break
                formula.append(after.strip())
            drawn = f'<div class="formula">{convert(" ".join(formula), display="block")}</div>'
            yield from ("", self.md.htmlStash.store(drawn), "", after)


class Inline(InlineProcessor):
    """Replace a formula in a sentence, written as ``:math:`` and its source in backticks."""

    def handleMatch(self, match: re.Match[str], data: str) -> tuple[Element | str, int, int]:
        """Return the formula and its position."""
        return self.md.htmlStash.store(convert(match[1])), match.start(0), match.end(0)


class Formulas(Extension):
    """Both kinds of formula."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register them, before backticks become code."""
        md.preprocessors.register(Display(md), "math-display", 28)
        md.inlinePatterns.register(Inline(INLINE, md), "math-inline", 195)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add formulas to the Markdown of pages and docstrings."""
    config.markdown_extensions.append(Formulas())
    return config
