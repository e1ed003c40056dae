"""Coursework 4, GDBR: labels from a layer below the last."""

import torch
from torch import Tensor

from fedleak import metrics
from fedleak.data import compose, draw, load
from fedleak.federated import fedsgd
from fedleak.models import build, head_pass, without_biases


def output_gradient(weight_gradient: Tensor, weight: Tensor, mean_output: Tensor) -> Tensor:
    """Return the mean gradient of a layer's outputs ``[k]`` from that of its weights (Eq. 17).

    `weight_gradient` and `weight` are ``[k, m]``, `mean_output` ``[k]``; where it is zero, the mean of the
    non-zero ones takes its place.
    """
    filled = torch.where(mean_output == 0, mean_output[mean_output != 0].mean(), mean_output)
    return (weight_gradient * weight).sum(1) / filled


def cross(weight: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of a layer's outputs ``[n]`` from that of its inputs ``[k]`` (Eq. 9).

    `weight` is ``[n, k]`` and has full row rank.
    """
    return torch.linalg.solve(weight @ weight.T, weight @ gradient)


def label_counts(probabilities: Tensor, logit_gradient: Tensor, batch_size: int) -> Tensor:
    """Return the counts ``[n]``, not rounded, from mean softmax and mean logit gradient, both ``[n]`` (Eq. 21)."""
    return batch_size * (probabilities - logit_gradient)


def recover(
    weight_gradient: Tensor, weights: list[Tensor], mean_output: Tensor, probabilities: Tensor, batch_size: int
) -> Tensor:
    """Return the counts ``[n]``, not rounded, from the gradient of ``weights[0]``.

    `weights` are those of the layers from there to the last, in this order.
    """
    gradient = output_gradient(weight_gradient, weights[0], mean_output)
    for weight in weights[1:]:
        gradient = cross(weight, gradient)
    return label_counts(probabilities, gradient, batch_size)


def measure(seed: int) -> list[dict]:
    """Attack 10 LeNets without biases of either initialisation from the layer below the last; B = 64.

    Use unbalanced batches of the digits (``load("mnist5k")``), 300 of the split "test" as auxiliary images, and
    `build` with ``init="positive"`` or ``"default"``. The last two layers are ``model[9]``, followed by a ReLU, and
    ``model[11]``; `fedleak.models.without_biases` takes the biases away. Every network has its own seed and batch,
    which follow from `seed`, and computes in float64. The mean output and the mean softmax are those of the auxiliary
    images. Clamp counts at 0, scale them to the sum B, and round each to the nearest integer, whatever their sum is
    then. InsAcc is `fedleak.metrics.instance_accuracy`. Return
    ``[{"init": "positive", "InsAcc": …}, {"init": "default", "InsAcc": …}]``, means of the instance accuracy.
    """
    images, aux, rows, size = load("mnist5k"), load("mnist5k", "test", limit=300), [], 64
    for init in ("positive", "default"):
        rates = []
        for trial in range(10):
            generator = torch.Generator().manual_seed(100 * seed + trial)
            labels = compose("unbalanced", size, 10, 1, generator)[0]
            model = without_biases(build("lenet", images.shape, 10, seed=100 * seed + trial, init=init)).double()
            x = images.x[draw(images, labels[None], generator)[0]].double()
            seen = head_pass(model, aux.x.double())
            weights = [model[9].weight.detach(), model[11].weight.detach()]
            gradient = fedsgd(model, x, labels).gradient("9.weight")
            found = recover(gradient, weights, seen.inputs.mean(0).detach(), seen.probabilities.mean(0).detach(), size)
            found = found.clamp(min=0)
            found = (found * size / found.sum()).round()
            rates.append(metrics.instance_accuracy(found, metrics.counts(labels, 10)))
        rows.append({"init": init, "InsAcc": float(torch.stack(rates).mean())})
    return rows
