"""Try the attack, on the front page: forty digits to fill a batch with, and LLG on its gradient, in the browser.

The gradient of a batch is a mean over its samples, and the row sums of the last layer's are in closed form (LLG's Eqs.
9 and 14). The page therefore holds each digit's softmax and its sum of the last layer's inputs, and no model.
"""

import base64
import io
import json
from html import escape
from typing import Any

import torch
from matplotlib import image
from pictures import raw
from torch import Tensor, nn

from fedleak import data, intervals, metrics
from fedleak.attacks.labels import llg
from fedleak.models import HeadPass, build, head_pass
from fedleak_book.evidence.results import Number
from notebooks.show import prose

EACH = 4
"""Digits of each class."""
MOST = 12
"""Samples of a batch, at most."""
TRIED, FEW = 2000, 0.15
"""Batches behind the caption's accuracy, and the share of the digits that a batch drawn at random repeats."""
START = (16, 17, 19, 18, 8, 10, 36, 2)
"""The first batch. LLG gets one of its labels wrong, which the page explains."""


def digits() -> tuple[nn.Module, Tensor, Tensor]:
    """Return the model that is attacked, an untrained LeNet, and the digits: images ``[40, 1, 28, 28]`` and labels."""
    images = data.load("mnist5k")
    index = torch.cat([(images.y == label).nonzero()[:EACH, 0] for label in range(images.n_classes)])
    return build("lenet", images.shape, images.n_classes, seed=0).eval(), images.x[index], images.y[index]


def exported(cache: HeadPass, y: Tensor) -> list[dict[str, object]]:
    """Return the page's data of each digit: its label, softmax and sum of the last layer's inputs."""
    return [
        {"label": label, "p": [float(f"{p:.7g}") for p in softmax], "mass": float(f"{inputs.sum():.7g}")}
        for label, softmax, inputs in zip(y.tolist(), cache.probabilities.tolist(), cache.inputs, strict=True)
    ]


def accuracy(cache: HeadPass, y: Tensor) -> tuple[float, float, float]:
    """Return LLG's mean accuracy over batches of eight drawn like those of the page's button, and its 95 % interval."""
    generator = torch.Generator().manual_seed(0)
    few = torch.rand(TRIED, len(y), generator=generator) < FEW
    batch = few[few.any(1)].double().multinomial(8, replacement=True, generator=generator)
    sums, n_classes = cache.row_sums(batch, y[batch]), cache.probabilities.shape[1]
    inferred = llg.extract(sums, llg.gradient_impact(sums, 8), torch.zeros(n_classes), 8)
    values = metrics.instance_accuracy(inferred, metrics.counts(y[batch], n_classes)).tolist()
    return (sum(values) / len(values), *intervals.interval(values))


def picture(pixels: Tensor) -> str:
    """Return an image ``[1, h, w]`` as a data address."""
    stream = io.BytesIO()
    image.imsave(stream, pixels[0].numpy(), cmap="gray", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def first_batch(cache: HeadPass, y: Tensor) -> dict[str, Any]:
    """Return the numbers of the sentences on the label that LLG gets wrong in the first batch."""
    batch, n_classes = torch.tensor(START), cache.probabilities.shape[1]
    size, truth = len(batch), metrics.counts(y[batch], n_classes)
    sums = cache.row_sums(batch[None], y[batch][None])[0]
    impact = float(llg.gradient_impact(sums, size))
    inferred = llg.extract(sums[None], torch.tensor([impact]), torch.zeros(n_classes), size)[0].long()
    most, next_most = truth.argsort(descending=True)[:2].tolist()
    assert (inferred - truth)[[most, next_most]].tolist() == [1, -1], "the sentences are about another batch"
    mass = cache.inputs.sum(1)[batch] / size
    lowers = (mass * (1 - cache.probabilities[batch, y[batch]])).mean()
    raises = (mass * cache.probabilities[batch, most])[y[batch] != most].mean()
    numbers = {"impact": -impact, "lowers": lowers, "raises": raises, "sum": sums[most]}
    words = {name: f"{Number(value):.2f}" for name, value in numbers.items()}
    return words | {"takes": f"{sums[most] / impact:.1f}", "most": most, "has": int(truth[most]), "next": next_most}


def fragments() -> dict[str, Any]:
    """Return the beginning of the demo, which the page goes on with, and the numbers of the page's sentences."""
    model, x, y = digits()
    cache = head_pass(model.double(), x.double())
    choice = "".join(
        f'<button type="button" data-digit="{i}"><img alt="add a {label}" src="{picture(pixels)}"'
        ' width="28" height="28"></button>'
        for i, (label, pixels) in enumerate(zip(y.tolist(), x, strict=True))
    )
    settings = escape(json.dumps({"most": MOST, "few": FEW, "start": START, "digits": exported(cache, y)}))
    demo = raw(
        f'<figure class="drawing touch" data-settings="{settings}">'
        '<p class="control" hidden><b>1. You are the client: choose the images of your batch.</b> '
        '<button type="button" class="random">Random batch</button> <button type="button" '
        'class="clear">Clear</button></p>'
        '<div class="choice" hidden role="toolbar" aria-label="digits to choose from, with the arrow keys">'
        f"{choice}</div>"
    )
    mean, low, high = (prose(f"{share:.1%}") for share in accuracy(cache, y))
    numbers = {"tried": f"{TRIED:,}", "mean": mean, "low": low.removesuffix("\u00a0%"), "high": high}
    return {"touch": demo, "demo": first_batch(cache, y) | numbers}
