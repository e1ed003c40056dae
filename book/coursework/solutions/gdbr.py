"""Coursework 4, GDBR: labels from a layer below the last."""

import torch
from torch import Tensor

from fedleak import metrics
from fedleak.data import load
from fedleak.federated import fedsgd
from fedleak.models import head_pass
from fedleak_book.coursework.given import bridged_networks


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


def cross_narrow(weight: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the logits ``[n]`` from that of the last layer's inputs ``[n - 1]``.

    `weight` is ``[n, n - 1]`` and has full column rank, so that `cross` does not apply; but a gradient of logits sums
    to zero.
    """
    square = torch.cat([weight.T, torch.ones_like(weight[:, :1]).T])
    return torch.linalg.solve(square, torch.cat([gradient, torch.zeros_like(gradient[:1])]))


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

    Networks and batches are those of `fedleak_book.coursework.given.bridged_networks` for ``"positive"`` and
    ``"default"``, the auxiliary images ``load("mnist5k", "test", limit=300)`` of `fedleak.data`, in float64. The last
    two layers are ``model[9]``, followed by a ReLU, and ``model[11]``. The mean output and the mean softmax are those
    of the auxiliary images. Clamp counts at 0 and scale them to the sum B: `error` is the root of the mean square of
    what is then wrong. InsAcc (`fedleak.metrics.instance_accuracy`) is that of each count's nearest integer, whatever
    their sum is. Return ``[{"init": "positive", "InsAcc": …, "error": …}, {"init": "default", …}]``, means over the
    networks.
    """
    aux, rows, size = load("mnist5k", "test", limit=300), [], 64
    for init in ("positive", "default"):
        rates, errors = [], []
        for model, x, labels in bridged_networks(seed, init):
            features = head_pass(model, aux.x.double())
            weights = [model[9].weight.detach(), model[11].weight.detach()]
            gradient = fedsgd(model, x, labels).gradient("9.weight")
            estimate = recover(
                gradient, weights, features.inputs.mean(0).detach(), features.probabilities.mean(0).detach(), size
            )
            estimate = estimate.clamp(min=0)
            estimate, truth = estimate * size / estimate.sum(), metrics.counts(labels, 10)
            errors.append((estimate - truth).square().mean().sqrt())
            rates.append(metrics.instance_accuracy(estimate.round(), truth))
        rate, error = (float(torch.stack(values).mean()) for values in (rates, errors))
        rows.append({"init": init, "InsAcc": rate, "error": error})
    return rows
