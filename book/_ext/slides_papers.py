"""The drawings of the papers' sliders."""

import math

import torch
from slides import FLOOR, Frame, Slider, chart, pairs, text
from torch import Tensor

from fedleak import data
from fedleak.attacks.labels import confidence, gdbr, lia_sa, llg, rlu
from fedleak.attacks.labels.counts import round_to_total, solve
from fedleak.data import Images, compose, draw
from fedleak.federated import Update, fedavg, fedsgd
from fedleak.federated.aggregation import FixedPoint, plain_sum
from fedleak.metrics import counts
from fedleak.models import build, head_pass

SHOWN = 2
"""Seed of the batch that is shown: one on which LLG is as good as on the mean, 0.91 (7 of 8)."""
TWO_STEPS = 0
"""Seed of the client whose update is taken apart by RLU."""


def unbalanced(images: Images, size: int, seed: int) -> Images:
    """Return a batch in which half of the labels are of one class."""
    generator = torch.Generator().manual_seed(seed)
    labels = compose("unbalanced", size, images.n_classes, 1, generator)
    return images.take(draw(images, labels, generator)[0])


def row_sums() -> Slider:
    """LLG: the row sums of one batch of eight, from which one label's impact after the other is taken off."""
    images, size = data.load("mnist5k"), 8
    model, drawn = build("cnn", images.shape, images.n_classes, seed=0), unbalanced(images, size, SHOWN)
    g, truth = llg.class_gradients(fedsgd(model, drawn.x, drawn.y), model), counts(drawn.y, images.n_classes)
    impact, most = llg.gradient_impact(g, size), float(g.abs().max())
    negative = [int(i) for i in g.argsort() if g[i] < 0]
    step = 10 ** math.floor(math.log10(most))
    ticks = [k * step for k in range(-int(most / step), int(most / step) + 1, max(1, int(most / step / 2)))]
    words = f"{len(negative)} row sums of the client's update are negative"
    recovered, label, frames = torch.zeros_like(truth), -1, []
    for k in range(size + 1):
        if k:
            first = k <= len(negative)
            label = negative[k - 1] if first else int(g.argmin())
            g[label] -= impact
            recovered[label] += 1
            words = f"label {label} is recovered: its sum is {'negative' if first else 'the smallest'}"
        kinds = ("hit" if i == label else "miss" if value < 0 else "truth" for i, value in enumerate(g))
        drawing = chart("row sum", g, kinds, ticks, most, samples=("count", recovered.tolist()))
        frames.append(Frame(str(k), drawing, words))
    right = int(torch.minimum(recovered, truth).sum())
    message = (
        "In an untrained CNN's update, each label that LLG counts (green) raises its sum by one impact;"
        f" {right} of {size} are right."
    )
    return Slider("Labels recovered", message, frames)


def system() -> Slider:
    """RLU: one client's update as a sum of columns of A, a sample at a time."""
    images, test, batch, steps, lr = data.load("mnist5k"), data.load("mnist5k", "test"), 4, 2, 0.1
    model = build("lenet", images.shape, images.n_classes, seed=0)
    index = torch.randint(len(images), (steps, batch), generator=torch.Generator().manual_seed(TWO_STEPS))
    update = fedavg(model, images.x[index], images.y[index], lr, share="delta")
    truth = counts(images.y[index].flatten(), images.n_classes)
    ends = [confidence.logits_of(head_pass(label, test.x), label) for label in (model, update.model(model))]
    matrix = sum(confidence.coefficients(confidence.erroneous_confidence(z, test.y)) for z in ends) / 2
    sent = rlu.observe(update, model, None, None).target
    recovered = round_to_total(solve(matrix, sent, update.samples), update.samples)
    order = [i for i, k in enumerate(recovered.tolist()) for _ in range(k)]
    taken = torch.nn.functional.one_hot(torch.tensor(order), len(sent)).cumsum(0)
    taken = torch.cat([torch.zeros_like(taken[:1]), taken])
    sums = taken.double() @ matrix.T
    most = 1.1 * float(torch.cat([sums, sent[None]]).abs().max())
    ticks, words, frames = range(-int(most), int(most) + 1), "no sample yet; the marks are the client's update", []
    for k, values in enumerate(sums):
        if k:
            off = float((values - sent).abs().max())
            words = f"after a sample of class {order[k - 1]} the bars differ from the marks by at most {off:.1f}"
        kinds = ("hit" if k and i == order[k - 1] else "truth" for i in range(len(sent)))
        drawing = chart("push on the bias", values, kinds, ticks, most, sent, ("samples", taken[k].tolist()))
        frames.append(Frame(str(k), drawing, words))
    right = int(torch.minimum(recovered, truth).sum())
    message = (
        "RLU looks for samples whose columns (bars) add up to the client's update (dotted marks). In this update of"
        f" an untrained LeNet, {right} of {len(order)} labels are right."
    )
    return Slider("Samples", message, frames)


def angles() -> Slider:
    """LIA-SA: two clients' counts out of the rounded sum of their gradients, by the angle between their embeddings."""
    classes, batch, frames = 10, 64, []
    generator = torch.Generator().manual_seed(0)
    truth = counts(torch.randint(classes, (2, batch), generator=generator), classes)
    basis = torch.linalg.qr(torch.randn(50, 2, generator=generator, dtype=torch.float64)).Q.T
    even = torch.full((2, classes), 1 / classes, dtype=torch.float64)
    bias, rounding = even - truth / batch, FixedPoint(bits=9, bound=1.0)
    largest = int(bias.sign().sum(0).abs().mul(bias.abs().amin(0)).argmax())  # a class whose two parts add up
    first, second = (150 * bias[:, largest].abs() / bias[:, largest].abs().sum()).tolist()
    for degrees in (90, 45, 30, 20, 15, 10, 7, 5, 3, 1):
        angle = math.radians(degrees)
        x, y = math.cos(angle), math.sin(angle)
        embeddings = torch.stack([basis[0], x * basis[0] + y * basis[1]])
        gradients = [{"weight": b[:, None] * e, "bias": b} for b, e in zip(bias, embeddings, strict=True)]
        total = plain_sum([Update(gradient, "gradient", batch) for gradient in gradients], rounding)
        solved = lia_sa.disaggregate(embeddings, total.tensors["weight"].double(), total.tensors["bias"].double())
        recovered = lia_sa.counts(even, solved, batch).round().clamp(0, batch).long()
        condition = lia_sa.conditioning_of(embeddings).condition
        right = int((recovered == truth).sum())
        parts = [
            f'<path class="axis" d="M20 {FLOOR - 10}h170M20 {FLOOR - 10}l{160 * x:.1f} {-160 * y:.1f}"/>',
            f'<path class="line line-1" d="M20 {FLOOR - 10}h{first:.1f}"/>',
            f'<path class="line line-2" d="M{20 + first:.1f} {FLOOR - 10}l{second * x:.1f} {-second * y:.1f}"/>',
            text(24 + first + second * x, FLOOR - 6 - second * y, "● sum", "start"),
            text(10, FLOOR + 17, "two fixed directions,", "start"),
            text(10, FLOOR + 34, f"condition {condition:,.0f}", "start"),
            text(432, 20, "client 1: true / recovered count"),
            *pairs(recovered[0], truth[0], 230, 410, 1.2 * float(truth[0].max())),
        ]
        words = f"condition number {condition:,.0f}, {right} of {2 * classes} counts right"
        frames.append(Frame(f"{degrees}°", "".join(parts), words))
    message = (
        "The sum of the two vectors is rounded, here to 9 bits. The smaller the angle between the two directions that"
        " the server fixed, the more this rounding changes the two recovered lengths (blue, green)."
    )
    return Slider("Angle between the clients' features", message, frames)


def gradients(name: str, values: Tensor, truth: Tensor | None) -> str:
    """Return bars of a gradient's entries on a scale of their own, the true ones as lines across them."""
    most = float((values if truth is None else torch.cat([values, truth])).abs().max())
    kinds = ["truth" if truth is None else "hit"] * len(values)
    return chart(name, values, kinds, (most, 0, -most), most, truth)


def bridged() -> Slider:
    """GDBR: a gradient on its way down to the shared layers, and up again to the withheld ones."""
    images, aux, size = data.load("mnist5k"), data.load("mnist5k", "test"), 16
    model = build("lenet", images.shape, images.n_classes, seed=0, init="positive")
    drawn = unbalanced(images, size, seed=0)
    truth, bridge = counts(drawn.y, images.n_classes), gdbr.Bridge(model)
    features, (first, last) = bridge.observe(aux), bridge.links
    head_inputs: list[Tensor] = []
    hook = last.layer.register_forward_pre_hook(lambda _, inputs: head_inputs.append(inputs[0]))
    outputs = model(drawn.x)
    hook.remove()
    loss = torch.nn.functional.cross_entropy(outputs, drawn.y)
    withheld, below, shared = (
        gradient.double() for gradient in torch.autograd.grad(loss, [outputs, head_inputs[0], first.layer.weight])
    )
    withheld, below = withheld.sum(0), below.sum(0)
    start = bridge.first_step(shared, features)
    arrived = bridge.cross(features).matrix @ start
    recovered = round_to_total(size * (features.probabilities - arrived), size)

    def off(values: Tensor, true: Tensor) -> str:
        return f"off by at most {float((values - true).abs().max() / true.abs().max()):.1%} of the largest entry"

    right = int(torch.minimum(recovered, truth).sum())
    negative = ", ".join(str(int(i)) for i in (withheld < 0).nonzero())
    named = int(outputs.softmax(1).mean(0).argmax())
    secret = f"this gradient is withheld, because it reveals the labels {negative}; the network predicts {named}"
    product = "their product, from shared rows and known weights"
    steps = [
        ("1, client", "at the outputs", withheld, None, secret),
        ("2, client", "one layer below", below, None, f"the known last layer spreads it over {len(below)} features"),
        ("3, shared", "gradient times feature", start * features.outputs, None, product),
        ("4, server", "one layer below", start, below, f"divided by other images' mean features: {off(start, below)}"),
        ("5, server", "at the outputs", arrived, withheld, f"the last layer crossed: {off(arrived, withheld)}"),
    ]
    frames = [Frame(at, gradients(name, values, true), words) for at, name, values, true, words in steps]
    drawing = text(10, 14, "true / recovered count", "start")
    drawing += "".join(pairs(recovered, truth, 70, 560, 1.2 * float(truth.max())))
    frames.append(Frame("6, server", drawing, f"minus the mean softmax, then times −{size}: {right} of {size} labels"))
    message = (
        "Steps 1 to 5 show gradients of an untrained LeNet: the true ones in grey, the server's estimates in green "
        "with the true values as lines. Step 6 shows the counts that follow, beside the true ones."
    )
    return Slider("Step", message, frames)
