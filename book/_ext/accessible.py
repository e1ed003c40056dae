"""Mend HTML of the theme, of docutils and of Jupyter Book: roles that screen readers misread, an unused script."""

from typing import Any

from sphinx.application import Sphinx


def mend(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Make a bibliography's entries list items; docutils gives them a role that newer browsers do not know."""
    context["body"] = context.get("body", "").replace('role="doc-biblioentry"', 'role="listitem"')


def unplug_thebe(app: Sphinx, config: object) -> None:
    """Leave out Thebe, which Jupyter Book always adds: its script stands twice on a page, an error in the console."""
    for event in ("env-before-read-docs", "doctree-resolved"):
        listeners = app.events.listeners[event]
        listeners[:] = [one for one in listeners if one.handler.__module__ != "sphinx_thebe"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("config-inited", unplug_thebe)
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
