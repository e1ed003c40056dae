"""Figures of executed chapters on other pages: what comes back, on the front page, and the map of attacks."""

import json

from fragments import GENERATED

from fedleak_book import paths

FIGURES = {
    "what-comes-back": ("agic", "threats", "the chapter on images <agic-what-comes-back>"),
    "map-of-attacks": ("arena", "ladder", "the arena <fig-arena-ladder>"),
}
"""The chapter, the name of its cell, and the link, by the name of the fragment."""


def shown(name: str) -> str:
    """Return a figure as a fragment; its picture lies beside it. Raises `FileNotFoundError` before the execution."""
    chapter, cell_id, link = FIGURES[name]
    cells = json.loads(paths.executed_notebook(chapter).read_text(encoding="utf-8"))["cells"]
    cell = next((cell for cell in cells if cell.get("id") == cell_id), {"outputs": []})
    data = [output.get("data", {}) for output in cell["outputs"]]
    images = [one["image/svg+xml"] for one in data if "image/svg+xml" in one]
    if not images:
        raise FileNotFoundError(f"{chapter} has not been executed since it has {cell_id!r}; run `fedleak book`")
    look = cell["metadata"]["mystnb"]
    picture = GENERATED / f"{name}.svg"
    picture.write_text("".join(images[0]), encoding="utf-8")
    options = [f":alt: {look['image']['alt']}", f":class: {look['image'].get('classes', 'two-panels')}"]
    caption = f"{look['figure']['caption']} From {{ref}}`{link}`."
    return "\n".join([f":::{{figure}} /book/_generated/{picture.name}", *options, "", caption, ":::", ""])


def fragments() -> dict[str, str]:
    """Return the figures by name."""
    return {name: shown(name) for name in FIGURES}
