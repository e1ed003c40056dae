"""Compute the chapters' sliders before Sphinx reads the pages: one drawing per position.

All drawings of a slider are in its page, and `sliders.js` shows one of them. On paper, and where no script runs, a
figure is what is left: the drawing that the slider starts with, or on paper all of them.
"""

from collections.abc import Callable
from html import escape
from pathlib import Path

from generated import GENERATED, up_to_date
from pictures import raw
from slides import HEIGHT, WIDTH, Slider
from slides_arena import answers, fits
from slides_papers import angles, bridged, iterations, row_sums, system

from fedleak_book import paths

SLIDERS: dict[str, Callable[[], Slider]] = {
    "llg": row_sums,
    "rlu": system,
    "lia_sa": angles,
    "gdbr": bridged,
    "agic": iterations,
    "arena": answers,
    "learned": fits,
}


def fragment(slider: Slider) -> str:
    """Return a slider as a part of a Markdown page."""
    drawn = "".join(
        f'<div class="frame" data-at="{frame.at}"{"" if i == slider.start else " hidden"}>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(frame.words)}">{frame.drawing}</svg>'
        f'<p class="words"><b>{escape(slider.control)} {frame.at}:</b> {escape(frame.words)}.</p></div>'
        for i, frame in enumerate(slider.frames)
    )
    return raw(
        f'<figure class="drawing slider"><label class="control" hidden>{escape(slider.control)} '
        f'<input type="range" min="0" max="{len(slider.frames) - 1}" value="{slider.start}" step="1"/></label>'
        f'<div class="frames">{drawn}</div><figcaption>{escape(slider.message)}</figcaption></figure>'
    )


def fragments() -> dict[str, str]:
    """Return the fragments whose sources have changed."""
    sources = [*Path(__file__).parent.glob("slide*.py"), *(paths.root() / "fedleak").rglob("*.py")]
    sources += (paths.root() / "notebooks" / "arena").glob("experiments*.py")
    old = [name for name in SLIDERS if not up_to_date(GENERATED / f"slider-{name}.md", *sources)]
    return {f"slider-{name}": fragment(SLIDERS[name]()) for name in old}
