"""Repair markup of the theme and of docutils that screen readers stumble over."""

from typing import Any

from sphinx.application import Sphinx

MENDS = (
    # a list has list items; docutils gives its citations a role that newer browsers do not know
    ('role="doc-biblioentry"', 'role="listitem"'),
)


def mend(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Replace roles in a page's body."""
    for before, after in MENDS:
        context["body"] = context.get("body", "").replace(before, after)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
