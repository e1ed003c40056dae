"""Compute the chapters' sliders before Sphinx reads the pages: one drawing per position.

All drawings of a slider are in its page, and `sliders.js` shows one of them. On paper, and where no script runs, a
figure is what is left: the drawing that the slider starts with, or on paper all of them.
"""

from collections.abc import Callable

from pictures import raw
from slides import Slider
from slides_arena import answers, fits
from slides_papers import angles, bridged, row_sums, system

SLIDERS: dict[str, Callable[[], Slider]] = {
    "llg": row_sums,
    "rlu": system,
    "lia_sa": angles,
    "gdbr": bridged,
    "arena": answers,
    "learned": fits,
}


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    return {f"slider-{name}": raw(make().html()) for name, make in SLIDERS.items()}
