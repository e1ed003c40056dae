"""Sliders: one drawing per position, and films of reconstructions."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

from torch import Tensor, uint8
from torchvision.io import encode_png

WIDTH, HEIGHT = 640, 230
SIDE, GAP = 128, 29
"""Size of a picture and the distance between two, of `WIDTH`."""

Position = tuple[str, str, str]
"""A position of a slider: the label of its control, the drawing, and the drawing in words."""


def slider(
    control: str, positions: Sequence[Position], message: str, start: int = 0
) -> str:
    """Return a slider as HTML, on paper and without scripts a figure with the drawing at its start."""
    drawn = "".join(
        f'<div class="frame" data-at="{at}"{"" if i == start else " hidden"}>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">{drawing}</svg>'
        f'<p class="words"><b>{escape(control)} {at}:</b> {escape(words)}.</p></div>'
        for i, (at, drawing, words) in enumerate(positions)
    )
    return (
        f'<figure class="drawing slider"><label class="control" hidden>{escape(control)} '
        f'<input type="range" min="0" max="{len(positions) - 1}" value="{start}" step="1"/></label>'
        f'<div class="frames">{drawn}</div><figcaption>{escape(message)}</figcaption></figure>'
    )


def picture(image: Tensor, place: int, above: str, below: str) -> str:
    """Return an image ``[3, H, W]`` in [0, 1] as the picture at a place of a drawing, with words above and below."""
    pixels = (255 * image.clamp(0, 1)).round().to(uint8).cpu()
    png = base64.b64encode(bytes(encode_png(pixels).tolist())).decode()
    x = 20 + place * (SIDE + GAP)
    words = "".join(
        f'<text x="{x + SIDE / 2:.0f}" y="{y}" text-anchor="middle">{escape(text)}</text>'
        for y, text in ((20, above), (180, below))
    )
    size = f'width="{SIDE}" height="{SIDE}"'
    href = f'href="data:image/png;base64,{png}"'
    return f'<image class="pixels" x="{x}" y="30" {size} {href}/>{words}'


def film(original: Tensor, snapshots: Mapping[int, Tensor], message: str) -> str:
    """Return a slider over iterations: the original ``[3, H, W]``, and beside it reconstructions, with their PSNR.

    `snapshots` are those of an `Inversion` of one image from several starts, ``[starts, 1, 3, H, W]`` by iteration.
    """
    positions: list[Position] = []
    for iteration, stored in snapshots.items():
        images = stored[:, 0]
        errors = [(image.clamp(0, 1) - original).square().mean() for image in images]
        decibels = [f"{-10 * float(error.log10()):.1f} dB" for error in errors]
        drawing = picture(original, 0, "original", "")
        for k, (image, below) in enumerate(zip(images, decibels, strict=True), 1):
            drawing += picture(image, k, f"start {k}", below)
        positions.append((str(iteration), drawing, f"PSNR {', '.join(decibels)}"))
    return slider("Iteration", positions, message)
