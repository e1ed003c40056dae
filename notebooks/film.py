"""Sliders: one drawing per position, and films of reconstructions."""

import base64
from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from fedleak.metrics import psnr
from torch import Tensor, uint8
from torchvision.io import encode_png

WIDTH, HEIGHT = 640, 230
SIDE, GAP = 128, 29
"""Size of a picture and the distance between two, of `WIDTH`."""


class Frame(NamedTuple):
    """One position of a slider: the label of its control, the drawing, and the drawing in words."""

    at: str
    drawing: str
    words: str


class Slider(NamedTuple):
    """A slider: the name of its control, its message, and a drawing for each place; it starts at the first."""

    control: str
    message: str
    frames: list[Frame]

    def html(self) -> str:
        """Return it as HTML, on paper and without scripts a figure with the drawing at its start."""
        drawn = "".join(
            f'<div class="frame" data-at="{frame.at}"{" hidden" if i else ""}>'
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(frame.words)}">{frame.drawing}</svg>'
            f'<p class="words"><b>{escape(self.control)} {frame.at}:</b> {escape(frame.words)}.</p></div>'
            for i, frame in enumerate(self.frames)
        )
        return (
            f'<figure class="drawing slider"><label class="control" hidden>{escape(self.control)} '
            f'<input type="range" min="0" max="{len(self.frames) - 1}" value="0" step="1"/></label>'
            f'<div class="frames">{drawn}</div><figcaption>{escape(self.message)}</figcaption></figure>'
        )


def text(x: float, y: float, words: object, anchor: str = "middle") -> str:
    """Return a piece of text in a drawing."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(str(words))}</text>'


def picture(image: Tensor, place: int, above: str, below: str) -> str:
    """Return an image ``[3, H, W]`` in [0, 1] as the picture at a place of a drawing, with words above and below."""
    pixels = (255 * image.clamp(0, 1)).round().to(uint8).cpu()
    png = base64.b64encode(bytes(encode_png(pixels).tolist())).decode()
    x = 20 + place * (SIDE + GAP)
    size = f'width="{SIDE}" height="{SIDE}"'
    href = f'href="data:image/png;base64,{png}"'
    drawn = f'<image class="pixels" x="{x}" y="30" {size} {href}/>'
    return drawn + text(x + SIDE / 2, 20, above) + text(x + SIDE / 2, 180, below)


def film(original: Tensor, snapshots: Mapping[int, Tensor], message: str) -> str:
    """Return a slider over iterations: the original ``[3, H, W]``, and beside it reconstructions, with their PSNR.

    `snapshots` are those of an `Inversion` of one image from several starts, ``[starts, 1, 3, H, W]`` by iteration.
    """
    frames = []
    for iteration, stored in snapshots.items():
        images = stored[:, 0].clamp(0, 1)
        decibels = [
            f"{value:.1f} dB" for value in psnr(images, original.expand_as(images))
        ]
        drawing = picture(original, 0, "original", "")
        for k, (image, below) in enumerate(zip(images, decibels, strict=True), 1):
            drawing += picture(image, k, f"start {k}", below)
        frames.append(Frame(str(iteration), drawing, f"PSNR {', '.join(decibels)}"))
    return Slider("Iteration", message, frames).html()
