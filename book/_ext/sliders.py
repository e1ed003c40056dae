"""Compute the chapters' sliders before Sphinx reads the pages: one drawing per position.

All drawings of a slider are in its page, and `sliders.js` shows one of them. On paper, and where no script runs, a
figure is what is left: the drawing that the slider starts with, or on paper all of them.
"""

from collections.abc import Callable
from pathlib import Path

from generated import GENERATED, up_to_date
from pictures import raw
from slides import Slider
from slides_arena import answers, fits
from slides_papers import angles, bridged, row_sums, system

from fedleak_book import paths

SLIDERS: dict[str, Callable[[], Slider]] = {
    "llg": row_sums,
    "rlu": system,
    "lia_sa": angles,
    "gdbr": bridged,
    "arena": answers,
    "learned": fits,
}


def fragment(slider: Slider) -> str:
    """Return a slider as a part of a Markdown page."""
    return raw(slider.html())


def fragments() -> dict[str, str]:
    """Return the fragments whose sources have changed."""
    sources = [*Path(__file__).parent.glob("slide*.py"), *(paths.root() / "fedleak").rglob("*.py")]
    sources += (paths.root() / "notebooks" / "arena").glob("experiments*.py")
    old = [name for name in SLIDERS if not up_to_date(GENERATED / f"slider-{name}.md", *sources)]
    return {f"slider-{name}": fragment(SLIDERS[name]()) for name in old}
