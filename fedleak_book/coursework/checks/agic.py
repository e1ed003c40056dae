"""Checks of the assignment on AGIC."""

import functools
from collections.abc import Iterable

import torch
from torch import Generator, Tensor, nn

from fedleak import metrics
from fedleak.attacks.images.objective import distance
from fedleak.data import load
from fedleak_book.coursework.assignment import Assignment, as_tensor, normal, same, seed_of, within
from fedleak_book.coursework.given import SIDE, local_batches, small_network, small_parameters
from fedleak_book.coursework.outcomes import Student, Trouble

ASSIGNMENT = Assignment("agic")


@ASSIGNMENT.check(1)
def mean_gradient(student: Student, generator: Generator) -> None:
    """A change of the weights is read as the mean gradient of one step."""
    delta = normal(generator, 3, 2)
    right = -delta / (0.05 * 4)
    mistakes = {
        "the sign: a step goes AGAINST the gradient": -right,
        "divide by the number of steps: this is the sum of their gradients": [right * 4, -right * 4],
        "divide by the learning rate": [right * 0.05, right * 0.05 * 0.05],
    }
    same(student("mean_gradient", delta, 0.05, 4), right, "mean_gradient", mistakes)


@ASSIGNMENT.check(1)
def layer_weights(student: Student, generator: Generator) -> None:
    """The layer weights follow Eqs. 7 and 8, with the head's at the end."""
    zeros, beta = 0.8 * normal(generator, 5).sigmoid(), 9.0
    line = torch.linspace(1, beta, 5, dtype=torch.float64)
    places = torch.arange(5, dtype=torch.float64)

    def with_head(alphas: Tensor, rises: Tensor) -> Tensor:
        return torch.cat([alphas, rises.mean()[None]])

    shifted, wide = (1 + (beta - 1) / step * places for step, places in ((4, places + 1), (5, places)))
    scaled = line / (1 - zeros)
    mistakes = {
        "the ReLU modifier 1 / (1 - p_i) is missing": with_head(line, line),
        "1 / (1 - p_i): p_i is the share of ZEROS": with_head(line / zeros, line),
        "1 OVER (1 - p_i): a layer with many zeros counts more": with_head(line * (1 - zeros), line),
        "off by one: the first convolution has weight 1": with_head(shifted / (1 - zeros), shifted),
        "off by one: the last convolution has weight beta": with_head(wide / (1 - zeros), wide),
        "the head gets the mean of the l_i, without the modifier": with_head(scaled, scaled),
        "the head's weight is missing": scaled,
    }
    hint = "l_i = 1 + (beta - 1)(i - 1)/(N - 1); alpha_i = l_i / (1 - p_i); the head gets the mean of the l_i"
    got = student("layer_weights", zeros.tolist(), beta)
    same(got, with_head(scaled, line), "layer_weights", mistakes, hint=hint)


@ASSIGNMENT.check(2)
def matching_loss(student: Student, generator: Generator) -> None:
    """The loss is one minus the cosine over all layers, with weighted inner products (Eq. 6)."""
    shapes = ((3, 2), (4,), (2, 2, 2))
    gradients, target = ([normal(generator, *shape) for shape in shapes] for _ in range(2))
    alpha, ones = torch.tensor([0.5, 3.0, 1.5], dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    right = distance("cosine", [f[None] for f in gradients], [t[None] for t in target], alpha[None])[0][0]
    dots, sizes, norms = (
        torch.stack([(a * b).sum() for a, b in zip(*pair, strict=True)])
        for pair in ((gradients, target), (gradients, gradients), (target, target))
    )

    def loss(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return 1 - (a * dots).sum() / ((b * sizes).sum() * (c * norms).sum()).sqrt()

    layers = alpha * (1 - dots / (sizes * norms).sqrt())
    roots = ((alpha * sizes).sum() * (alpha * norms).sum()).sqrt()
    mistakes = {
        "one MINUS the cosine": 1 - right,
        "the layers' weights are not used": loss(ones, ones, ones),
        "the weights belong into the two norms, too": loss(alpha, ones, ones),
        "the weights enter once: alpha, not alpha squared": loss(alpha**2, alpha**2, alpha**2),
        "ONE cosine over all layers, not a sum of cosines": layers.sum(),
        "ONE cosine over all layers, not a mean of cosines": [layers.sum() / alpha.sum(), layers.mean()],
        "take the roots of the squared norms": 1 - (1 - right) / roots,
    }
    hint = "every inner product, also those of the two norms, is a sum over layers with the weights alpha"
    same(student("matching_loss", gradients, target, alpha.tolist()), right, "matching_loss", mistakes, hint=hint)


@ASSIGNMENT.check(1)
def scale(student: Student, generator: Generator) -> None:
    """One factor for all layers brings one gradient nearest to another."""
    shapes = ((3, 2), (4,), (2, 2, 2))
    gradients = [normal(generator, *shape) for shape in shapes]
    target = [3 * g + normal(generator, *g.shape) for g in gradients]
    a, b = (torch.cat([t.flatten() for t in tensors]) for tensors in (gradients, target))
    right, each = (
        a @ b / (a @ a),
        torch.stack([(g * t).sum() / (g * g).sum() for g, t in zip(gradients, target, strict=True)]),
    )
    mistakes = {
        "this factor brings the target to the gradient: the other way round": a @ b / (b @ b),
        "the quotient of the lengths is nearest only if both point the same way": b.norm() / a.norm(),
        "this is the cosine, which no factor changes": a @ b / (a.norm() * b.norm()),
        "ONE factor for all layers, from sums over all of them": [each.mean(), each.sum()],
        "divide by the square of the gradient's length": a @ b,
    }
    hint = "minimise |c g - t|^2 over c: its derivative is 2 c g'g - 2 g't"
    same(student("scale", gradients, target), right, "scale", mistakes, hint=hint)


@ASSIGNMENT.check(1)
def total_variation(student: Student, generator: Generator) -> None:
    """Total variation is the mean absolute step in x plus that in y."""
    x = normal(generator, 2, 1, 4, 6)
    dx, dy = x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]
    across, down = dx.abs().mean(), dy.abs().mean()
    mistakes = {
        "the absolute value: steps up and down must not cancel": dx.mean() + dy.mean(),
        "absolute values, not squares": dx.square().mean() + dy.square().mean(),
        "means, not sums": dx.abs().sum() + dy.abs().sum(),
        "both directions": [across, down],
    }
    same(student("total_variation", x), across + down, "total_variation", mistakes)


def _gradient(parameters: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(nn.functional.cross_entropy(small_network(parameters, x), y), parameters))


@ASSIGNMENT.check(2)
def reconstruct(student: Student, generator: Generator) -> None:
    """A digit is reconstructed from its gradient, to 20 dB or better."""
    parameters = [p.requires_grad_() for p in small_parameters(seed_of(generator))]
    images = load("mnist5k", size=SIDE)
    place = int(torch.randint(len(images), (), generator=generator))
    image, label = images.x[place : place + 1].double(), images.y[place : place + 1]
    got = student("reconstruct", parameters, _gradient(parameters, image, label), int(label))
    got = as_tensor(got, "reconstruct")
    if got.shape != image.shape:
        raise Trouble(f"reconstruct: expected shape {list(image.shape)}", detail=f"got {list(got.shape)}")
    for pixel in (got.min(), got.max()):
        within(pixel.item(), -1e-6, 1 + 1e-6, "reconstruct's pixels", "a smaller learning rate; clamp after every step")
    hint = "create_graph=True when you take the dummy's gradient; then minimise matching_loss with Adam, 300 steps"
    within(float(metrics.psnr(got, image)), 20, 100, "reconstruct's PSNR in dB", hint)


@functools.lru_cache(maxsize=4)
def _rounds(seed: int, steps: int) -> list[tuple[float, list[tuple[Tensor, Tensor]]]]:
    """Return for each learning rate each client's change of the weights and its samples' gradient as one batch."""
    start = [p.requires_grad_() for p in small_parameters(seed)]
    x, y = local_batches(seed, steps)
    wholes = [
        _flat(_gradient(start, images.flatten(0, 1), labels.flatten())) for images, labels in zip(x, y, strict=True)
    ]
    rounds = []
    for lr in (1e-4, 1e-3, 1e-2):
        changes = []
        for images, labels in zip(x, y, strict=True):
            weights = start
            for batch, batch_labels in zip(images, labels, strict=True):
                slopes = _gradient(weights, batch, batch_labels)
                weights = [(w - lr * s).detach().requires_grad_() for w, s in zip(weights, slopes, strict=True)]
            changes.append(_flat(weights) - _flat(start))
        rounds.append((lr, [*zip(changes, wholes, strict=True)]))
    return rounds


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.detach().flatten() for t in tensors])


RIGHT = {"mean_gradient": lambda delta, lr, steps: -delta / (lr * steps)}


@ASSIGNMENT.measurement(
    2, 2, RIGHT, "float64; the gradient of the SAME samples as one batch, at the weights before the round"
)
def measure(functions: Student, seed: int) -> list[dict]:
    """The one-batch error is that of your own `mean_gradient`."""
    rows = []
    for steps in (2, 5):
        for lr, clients in _rounds(seed, steps):
            errors = []
            for change, whole in clients:
                read = functions("mean_gradient", change, lr, steps)
                errors.append(float((read - whole).norm() / whole.norm()))
            rows.append({"steps": steps, "lr": lr, "error": sum(errors) / len(errors)})
    return rows
