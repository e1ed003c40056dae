"""Compute what the chapters' sliders show, before Sphinx reads the pages: one drawing for each place of the slider.

All drawings of a slider are in its page, and `sliders.js` shows one of them. On paper, and where no script runs, a
figure is what is left: the drawing that the slider starts with, or on paper all of them.
"""

import math
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from generated import up_to_date
from pictures import raw
from render import keep, number
from sphinx.application import Sphinx
from torch import Tensor

from fedleak import data
from fedleak.attacks.labels import confidence, lia_sa, llg, rlu
from fedleak.attacks.labels.counts import solve, whole_counts
from fedleak.data import compose, draw
from fedleak.experiments import records
from fedleak.federated import fedavg, fedsgd
from fedleak.metrics import counts
from fedleak.models import build, head_pass

WIDTH, HEIGHT, FLOOR = 640, 230, 190
SHOWN = 2
"""Seed of the batch that is shown: one on which LLG is as good as on the mean, 0.91 (7 of 8)."""
TWO_STEPS = 0
"""Seed of the client whose update is taken apart by RLU."""


class Frame(NamedTuple):
    """One place of a slider: what its control says, the drawing, and the drawing in words."""

    at: str
    drawing: str
    words: str


class Slider(NamedTuple):
    """A slider: the name of its control, the place where it starts, its message, and a drawing for each place."""

    control: str
    start: int
    message: str
    frames: list[Frame]


def text(x: float, y: float, words: object, anchor: str = "middle") -> str:
    """Return a piece of text in a drawing."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(str(words))}</text>'


def bar(x: float, base: float, height: float, width: float, kind: str) -> str:
    """Return a bar that rises from its base, or hangs below it where the height is negative."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{base - max(height, 0):.1f}" width="{width:.1f}"'
        f' height="{abs(height):.1f}"/>'
    )


def rule(y: float, left: float = 30, right: float = WIDTH - 10) -> str:
    """Return a horizontal line."""
    return f'<path class="axis" d="M{left:.0f} {y:.1f}H{right:.0f}"/>'


def pairs(found: Tensor, truth: Tensor, left: float, width: float, most: float) -> Iterable[str]:
    """Yield two bars a class, true count and found count, each with its number."""
    step = width / len(truth)
    for i, (one, other) in enumerate(zip(truth.tolist(), found.tolist(), strict=True)):
        x = left + i * step
        for k, (value, kind) in enumerate(((one, "truth"), (other, "hit" if one == other else "miss"))):
            yield bar(x + k * step * 0.4, FLOOR, 120 * min(value / most, 1), step * 0.36, kind)
        yield text(x + step * 0.4, FLOOR + 17, i)
        if step > 40:
            yield text(x + step * 0.4, FLOOR + 34, f"{one} / {other}")


def row_sums() -> Slider:
    """LLG: the row sums of one batch of eight, from which one label's impact after the other is taken off."""
    images = data.load("mnist5k")
    model, size = build("cnn", images.shape, images.n_classes, seed=0), 8
    generator = torch.Generator().manual_seed(SHOWN)
    labels = compose("unbalanced", size, images.n_classes, 1, generator)[0]
    drawn = images.take(draw(images, labels[None], generator)[0])
    update = fedsgd(model, drawn.x, drawn.y)
    g, truth = llg.class_gradients(update, model), counts(labels, images.n_classes)
    impact = llg.gradient_impact(g, size)
    negative = [int(i) for i in g.argsort() if g[i] < 0]
    most, named, frames = g.abs().max(), [], []

    def drawing(taken: int | None) -> str:
        parts = [text(64, height(y) + 4, f"{y:+g}".replace("-", "−"), "end") for y in ticks]
        parts += [
            f'<path class="axis" d="M70 {height(y):.1f}h{WIDTH - 80}" opacity="{1 if y == 0 else 0.25}"/>'
            for y in ticks
        ]
        parts.append(text(10, 14, "row sum", "start"))
        for i, value in enumerate(g.tolist()):
            kind = "hit" if i == taken else "miss" if value < 0 else "truth"
            parts.append(bar(86 + i * 54, height(0), height(0) - height(value), 34, kind))
            parts.append(text(103 + i * 54, FLOOR + 16, i))
            parts.append(text(103 + i * 54, FLOOR + 34, "●" * named.count(i)))
        return "".join([*parts, text(10, FLOOR + 16, "class", "start"), text(10, FLOOR + 34, "named", "start")])

    step = 10 ** math.floor(math.log10(most))
    ticks = [k * step for k in range(-int(most / step), int(most / step) + 1, max(1, int(most / step / 2)))]

    def height(y: float) -> float:
        return 100 - 80 * y / float(most)

    frames.append(Frame("0", drawing(None), f"the row sums that the client sent; {len(negative)} are negative"))
    for k in range(size):
        first = k < len(negative)
        one = negative[k] if first else int(g.argmin())
        g = g - impact * (torch.arange(len(g)) == one)
        named.append(one)
        why = "its sum is negative" if first else "its sum is the smallest"
        frames.append(
            Frame(str(k + 1), drawing(one), f"label {one} is named, since {why}, and one impact is taken off")
        )
    found = torch.bincount(torch.tensor(named), minlength=len(g))
    right = int(torch.minimum(found, truth).sum())
    shown = ", ".join(map(str, sorted(labels.tolist())))
    message = (
        "Orange: negative sums, whose labels are in the batch. Green: the label that is named at this step, off whose"
        f" sum one sample's impact, {number(float(impact))}, is taken. Grey: the others. In the batch were {shown}:"
        f" {right} of {size} are named rightly. (An untrained CNN on digits.)"
    )
    return Slider("Labels named", 0, message, frames)


def system() -> Slider:
    """RLU: one client's update as a sum of columns of A, a sample at a time."""
    images, test, batch, steps, lr = data.load("mnist5k"), data.load("mnist5k", "test"), 4, 2, 0.1
    model = build("lenet", images.shape, images.n_classes, seed=0)
    index = torch.randint(len(images), (steps, batch), generator=torch.Generator().manual_seed(TWO_STEPS))
    update = fedavg(model, images.x[index], images.y[index], lr, share="delta")
    truth = counts(images.y[index].flatten(), images.n_classes)
    ends = [confidence.logits_of(head_pass(one, test.x), one) for one in (model, update.model(model))]
    matrix = sum(confidence.coefficients(confidence.erroneous_confidence(z, test.y)) for z in ends) / 2
    sent = rlu.observe(update, model, None, None).target
    found = whole_counts(solve(matrix, sent, update.samples), update.samples)
    most, own = 1.15 * float(sent.abs().max()), float(matrix.diag().mean())

    def height(y: float) -> float:
        return 100 - 80 * y / most

    def drawing(taken: list[int]) -> str:
        n = torch.bincount(torch.tensor(taken, dtype=torch.long), minlength=len(sent)).double()
        parts = [text(10, 14, "push on the bias", "start")]
        for y in range(-int(most), int(most) + 1):
            parts.append(text(64, height(y) + 4, f"{y:+d}".replace("-", "−") if y else "0", "end"))
            parts.append(f'<path class="axis" d="M70 {height(y):.1f}h{WIDTH - 80}" opacity="{0.25 if y else 1}"/>')
        for i, (value, goal) in enumerate(zip((matrix @ n).tolist(), sent.tolist(), strict=True)):
            kind = "hit" if taken and i == taken[-1] else "truth"
            parts.append(bar(86 + i * 54, height(0), height(0) - height(value), 34, kind))
            parts.append(f'<path class="line line-3" d="M{82 + i * 54} {height(goal):.1f}h42"/>')
            parts.append(text(103 + i * 54, FLOOR + 16, i))
            parts.append(text(103 + i * 54, FLOOR + 34, "●" * int(n[i])))
        return "".join([*parts, text(10, FLOOR + 16, "class", "start"), text(10, FLOOR + 34, "samples", "start")])

    order = [i for i, k in enumerate(found.tolist()) for _ in range(k)]
    frames = [Frame("0", drawing([]), "no sample yet: all bars are zero, the marks are what the client's update shows")]
    for k, one in enumerate(order):
        off = (matrix @ torch.bincount(torch.tensor(order[: k + 1]), minlength=len(sent)).double() - sent).abs().max()
        words = f"a sample of class {one} is added; the bars are off the marks by {float(off):.1f} at most"
        frames.append(Frame(str(k + 1), drawing(order[: k + 1]), words))
    right = int(torch.minimum(found, truth).sum())
    message = (
        f"Dotted marks: the update of the head's bias, times B/η. Bars: A n, the sum over the samples so far. Each"
        f" pushes the bias of its own class up by about {own:.1f}, and all others a little down (green: the last one's"
        f" class). RLU finds the samples whose bars meet the marks, all at once: {right} of {len(order)} are right. (An"
        f" untrained LeNet-5 on digits, two local steps of four samples at the rate {lr:g}.)"
    )
    return Slider("Samples", len(order) // 2, message, frames)


def angles() -> Slider:
    """LIA-SA: two clients' counts out of the sum of their gradients, by the angle between their embeddings."""
    classes, batch, frames = 10, 64, []
    generator = torch.Generator().manual_seed(0)
    truth = counts(torch.randint(classes, (2, batch), generator=generator), classes)
    basis = torch.linalg.qr(torch.randn(50, 2, generator=generator, dtype=torch.float64)).Q.T
    even = torch.full((2, classes), 1 / classes, dtype=torch.float64)
    for degrees in (90, 10, 1, 1e-1, 1e-2, 1e-4, 1e-5, 3e-6, 1e-6, 1e-7):
        angle = math.radians(degrees)
        second = math.cos(angle) * basis[0] + math.sin(angle) * basis[1]
        embeddings = torch.stack([basis[0], second])
        bias = even - truth / batch
        sent_bias = bias.float().sum(0).double()  # the clients compute in single precision
        sent = sum((b[:, None] * e).float() for b, e in zip(bias, embeddings, strict=True)).double()
        real = lia_sa.counts(even, lia_sa.disaggregate(embeddings, sent, sent_bias), batch)
        found = real.round().clamp(0, batch).long()
        condition = lia_sa.conditioning_of(embeddings).condition
        right = int((found == truth).sum())
        tip = (60 + 100 * math.cos(angle), FLOOR - 40 - 100 * math.sin(angle))
        parts = [
            f'<path class="line line-0" d="M60 {FLOOR - 40}H160"/>',
            f'<path class="line line-3" d="M60 {FLOOR - 40}L{tip[0]:.1f} {tip[1]:.1f}"/>',
            text(110, FLOOR - 12, "the two embeddings"),
            text(110, FLOOR + 17, f"condition {condition:,.0f}"),
            text(432, 20, "client 1: true count / found"),
            *pairs(found[0], truth[0], 230, 410, 1.2 * float(truth[0].max())),
        ]
        words = f"condition number {condition:,.0f}, {right} of {2 * classes} counts of the two clients right"
        frames.append(Frame(f"{np.format_float_positional(degrees, trim='-')}°", "".join(parts), words))
    message = (
        "The closer the embeddings of two clients lie together, the larger the condition number, and the more it makes"
        " of the rounding of single precision. (Two clients, 64 labels of ten classes each, one draw.)"
    )
    return Slider("Angle between the embeddings", 2, message, frames)


def units() -> Slider:
    """GDBR: counts behind a crossing, by its condition, with errors of single units and with a common one."""
    classes, hidden, batch, frames = 10, 64, 64, []
    generator = torch.Generator().manual_seed(0)
    truth = counts(torch.randint(classes, (batch,), generator=generator), classes)
    error = 1 + 0.05 * torch.randn(hidden, generator=generator, dtype=torch.float64)
    left, right = (
        torch.linalg.qr(torch.randn(n, classes, generator=generator, dtype=torch.float64)).Q for n in (classes, hidden)
    )
    gradient = 1 / classes - truth.double() / batch
    for power in (0, 0.5, 1, 1.5, 2, 3, 4):
        matrix = left @ torch.diag(torch.logspace(0, -power, classes, dtype=torch.float64)) @ right.T
        arrived = matrix.T @ gradient
        found = [
            whole_counts(
                batch * (1 / classes - torch.linalg.lstsq(matrix.T, (arrived * e)[:, None]).solution[:, 0]), batch
            )
            for e in (error, error[0])
        ]
        share = [int(torch.minimum(f, truth).sum()) for f in found]
        parts = [text(160, 20, "single units wrong by 5 %"), text(480, 20, "all units wrong by the same")]
        parts += [
            part for k, f in enumerate(found) for part in pairs(f, truth, 10 + 325 * k, 305, 1.2 * float(truth.max()))
        ]
        words = f"{share[0]} of {batch} labels with errors of single units, {share[1]} with a common error"
        frames.append(Frame(number(float(10**power)), "".join(parts), words))
    message = (
        "The crossing multiplies what differs from unit to unit by up to its condition number. An error that all units"
        " share passes unharmed: this is what one vector is for. (A random crossing from 64 units to ten classes,"
        " 64 labels, one draw.)"
    )
    return Slider("Condition number of the crossing", 3, message, frames)


def iterations() -> Slider:
    """AGIC: one image on its way, by attack and iteration, from the record of the pictures."""
    found = records.recorded("agic", "frames")
    assert found is not None
    frames, side = [], 128
    for iteration, rows in found[0].set_index("method").groupby("iteration"):
        rows = rows.loc[["DLG-Adam", "InvG", "AGIC"]]  # in every frame in the same places
        shown = {"original": rows["original"].iloc[0], **rows["picture"]}
        decibels = {method: f"{psnr:.1f} dB" for method, psnr in rows["psnr"].items()}
        parts = []
        for i, (name, png) in enumerate(shown.items()):
            x = 20 + i * (side + 29)
            parts.append(
                f'<image class="pixels" x="{x}" y="30" width="{side}" height="{side}"'
                f' href="data:image/png;base64,{png}"/>'
            )
            parts.append(text(x + side / 2, 20, name) + text(x + side / 2, 180, decibels.get(name, "")))
        words = "PSNR " + ", ".join(f"{name} {value}" for name, value in decibels.items())
        frames.append(Frame(str(iteration), "".join(parts), words))
    message = (
        "An attack that is ahead early need not be ahead later. (One patch of a photograph, 16 × 16 pixels, alone in"
        " its batch; an untrained ResNet20-4, steady rate. Recorded.)"
    )
    return Slider("Iteration", 4, message, frames)


SLIDERS: dict[str, Callable[[], Slider]] = {
    "llg": row_sums,
    "rlu": system,
    "lia_sa": angles,
    "gdbr": units,
    "agic": iterations,
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


def write(app: Sphinx) -> None:
    """Write the fragments whose sources have changed."""
    folder = Path(app.srcdir) / "book" / "_generated"
    sources = [Path(__file__), *Path(data.__file__).parents[1].rglob("*.py")]
    old = [name for name in SLIDERS if not up_to_date(folder / f"slider-{name}.md", *sources)]
    keep(app, {f"slider-{name}": fragment(SLIDERS[name]()) for name in old})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
