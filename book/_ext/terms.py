"""Explain terms where a chapter first uses them: a tooltip with the glossary's definition."""

import re
from functools import cache

from docutils import nodes
from sphinx.application import Sphinx

from fedleak_book import paths

SOURCE = re.compile(r" ?\(?\{(?:cite:p|doc|ref)\}`[^`<]*`\)?")
"""A reference that is nothing but its target."""
ROLE = re.compile(r"\{[\w:]+\}`([^`<]+?)(?: ?<[^`]*>)?`|\\(.)|[*`]")
"""A reference with words of its own, or a mark of Markdown."""


@cache
def definitions() -> dict[str, str]:
    """Return the glossary's definitions by term, those of several names under each.

    An ordinary word, such as *cell*, is left out: it may mean something else where it stands.
    """
    found: dict[str, str] = {}
    text = (paths.root() / "book" / "glossary.md").read_text(encoding="utf-8").partition(":::{glossary}\n")[2]
    for entry in text.partition("\n:::")[0].split("\n\n"):
        lines = entry.strip("\n").split("\n")
        meaning = " ".join(line.strip() for line in lines if line.startswith(" "))
        meaning = ROLE.sub(lambda match: match[1] or match[2] or "", SOURCE.sub("", meaning))
        names = [line for line in lines if line and not line.startswith(" ")]
        found |= {name: meaning for name in names if re.search(r"[ -]|[A-Z].*[A-Z]", name) and meaning}
    return found


def explain(doctree: nodes.document, terms: dict[str, str]) -> int:
    """Wrap the first use of each term in a page's paragraphs; return how many were found."""
    left, count = dict(terms), 0
    for paragraph in doctree.findall(nodes.paragraph):
        for text in [node for node in paragraph.children if isinstance(node, nodes.Text)]:
            rest, parts = str(text), []
            while left and (match := _pattern(tuple(left)).search(rest)):
                name = next(name for name in left if name.lower() == match[0].lower())
                parts += [nodes.Text(rest[: match.start()])]
                parts += [nodes.abbreviation("", match[0], explanation=left[name], classes=["term"])]
                rest, count = rest[match.end() :], count + 1
                left = {other: meaning for other, meaning in left.items() if meaning != left[name]}
            if parts:
                paragraph.replace(text, [*parts, nodes.Text(rest)])
    return count


@cache
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b", re.I)


def in_chapters(_: Sphinx, doctree: nodes.document, page: str) -> None:
    """Explain the terms of a chapter."""
    if page.startswith("notebooks/"):
        explain(doctree, definitions())


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("doctree-resolved", in_chapters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
