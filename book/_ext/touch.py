"""An attack to touch, for the front page: forty digits to fill a batch with, and LLG on its gradient, in the browser.

The gradient of a batch is a mean over its samples, and the row sums of the last layer's are in closed form (LLG's Eqs.
9 and 14): of each digit the page therefore holds its softmax and the sum of its inputs of the last layer, and no model.
"""

import base64
import io
import json
from html import escape
from pathlib import Path

import torch
from generated import up_to_date
from matplotlib import image
from pictures import raw
from render import keep
from sphinx.application import Sphinx
from torch import Tensor, nn

from fedleak import data, metrics
from fedleak.attacks.labels import llg
from fedleak.models import HeadPass, build, head_pass

EACH = 4
"""Digits of each class."""
MOST = 12
"""Samples of a batch, at most."""
TRIED, FEW = 2000, 0.15
"""Batches behind the caption's share, and the share of the digits that a batch drawn at random has."""
START = (16, 17, 19, 18, 8, 10, 36, 2)


def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """Return the model that is attacked, an untrained LeNet, and the digits: images ``[40, 1, 28, 28]`` and labels."""
    images = data.load("mnist5k")
    index = torch.cat([(images.y == label).nonzero()[:EACH, 0] for label in range(images.n_classes)])
    return build("lenet", images.shape, images.n_classes, seed=0).eval(), images.x[index], images.y[index]


def exported(seen: HeadPass, y: Tensor) -> list[dict[str, object]]:
    """Return what the page holds of each digit: its label, softmax and sum of the last layer's inputs."""
    return [
        {"label": label, "p": [float(f"{p:.7g}") for p in softmax], "mass": float(f"{inputs.sum():.7g}")}
        for label, softmax, inputs in zip(y.tolist(), seen.probabilities.tolist(), seen.inputs, strict=True)
    ]


def share(seen: HeadPass, y: Tensor) -> float:
    """Return the share of labels that LLG names, over batches of eight drawn like those of the page's button."""
    generator = torch.Generator().manual_seed(0)
    few = torch.rand(TRIED, len(y), generator=generator) < FEW
    batch = few[few.any(1)].double().multinomial(8, replacement=True, generator=generator)
    sums, n = seen.row_sums(batch, y[batch]), seen.probabilities.shape[1]
    named = llg.extract(sums, llg.gradient_impact(sums, 8), torch.zeros(n), 8)
    return float(metrics.instance_accuracy(named, metrics.counts(y[batch], n)).mean())


def picture(pixels: Tensor) -> str:
    """Return an image ``[1, h, w]`` as a data address."""
    stream = io.BytesIO()
    image.imsave(stream, pixels[0].numpy(), cmap="gray", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def fragment() -> str:
    """Return the attack as a part of a Markdown page."""
    model, x, y = digits()
    seen = head_pass(model.double(), x.double())
    choice = "".join(
        f'<button type="button" data-digit="{i}"><img alt="add a {label}" src="{picture(pixels)}"'
        ' width="28" height="28"></button>'
        for i, (label, pixels) in enumerate(zip(y.tolist(), x, strict=True))
    )
    held = escape(json.dumps({"most": MOST, "few": FEW, "start": START, "digits": exported(seen, y)}), quote=True)
    return raw(
        f'<figure class="drawing touch" data-held="{held}">'
        '<p class="control" hidden><b>1. You are the client: choose the images of your batch.</b> '
        '<button type="button" class="random">at random</button> <button type="button" class="clear">none</button></p>'
        f'<div class="choice" hidden role="group" aria-label="digits to choose from">{choice}</div>'
        '<p><b>Your batch</b>, which stays on your device. <span class="control" hidden>Choose one to take it out.'
        '</span></p><div class="batch" role="group" aria-label="your batch"></div>'
        "<p><b>2. This is all that the server sees:</b> a sum for each class, of the last layer's gradient.</p>"
        '<svg viewBox="0 0 440 226" role="img"></svg>'
        '<p><label class="control" hidden><b>3. You are the server: name the labels.</b> '
        '<input type="range" min="0" step="1"> <output></output></label></p>'
        '<p class="told" aria-live="polite"><noscript>This figure needs JavaScript.</noscript></p>'
        "<figcaption>Outlines: the sums that were sent. Filled: what is left of them, one sample's worth taken off for"
        " each label that is named; orange is negative. The network is an untrained LeNet, the attack LLG; all is"
        f" computed in this page. Of {TRIED:,} batches that the button draws LLG names {share(seen, y):.0%} of the"
        " labels."
        "</figcaption></figure>"
    )


def write(app: Sphinx) -> None:
    """Write the fragment, when its sources have changed."""
    folder = Path(app.srcdir) / "book" / "_generated"
    sources = [Path(__file__), *(Path(data.__file__).parents[1] / "models").glob("*.py")]
    if not up_to_date(folder / "touch.md", *sources):
        keep(app, {"touch": fragment()})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
