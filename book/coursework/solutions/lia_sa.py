"""Coursework 2, LIA-SA: labels through secure aggregation."""

import torch
from torch import Tensor, nn

from fedleak_book.coursework.given import manipulated_clients


def system(embeddings: Tensor) -> Tensor:
    """Return the matrix of Eq. 16, ``[m + 1, U]``, from the clients' embeddings ``[U, m]``."""
    return torch.cat([torch.ones_like(embeddings[:, :1]), embeddings], dim=1).T


def disaggregate(embeddings: Tensor, weight_sum: Tensor, bias_sum: Tensor) -> Tensor:
    """Return every client's bias gradient ``[U, n]``.

    `weight_sum` ``[n, m]`` and `bias_sum` ``[n]`` are the head's gradients, summed over the clients.
    """
    right = torch.cat([bias_sum[None], weight_sum.T])
    return torch.linalg.lstsq(system(embeddings), right, driver="gelsd").solution


def reader(embeddings: Tensor, client: int) -> Tensor:
    """Return the vector ``[m + 1]`` whose product with ``[bias sum; weight sums]`` is one client's bias gradient.

    Of all such vectors it is the one of least norm, so that noise on the sums grows least.
    """
    return torch.linalg.pinv(system(embeddings))[client]


def counts(bias_gradients: Tensor, logits: Tensor, batch_size: int) -> Tensor:
    """Return every client's label counts ``[U, n]``, integers that are not negative (Eq. 17).

    `bias_gradients` ``[U, n]`` have small errors; `logits` ``[U, n]`` are what each client's model puts out.
    """
    return (batch_size * (logits.softmax(1) - bias_gradients)).round().clamp(min=0).long()


def measure(seed: int) -> list[dict]:
    """Measure the attack with one constant a client, and with a random vector a client.

    Embeddings, head and labels are those of `fedleak_book.coursework.given.manipulated_clients`, which says what the
    network is. Every client shares one mean gradient of the head, without noise or rounding; the counts are those of
    your `disaggregate` and `counts`. Return a row for each recipe with 2, 5 and 20 clients: ``{"recipe": "constant",
    "clients": 2, "condition": …, "exact": …}``: the condition number of the system, and the share of the counts (of all
    clients and classes) that are right.
    """
    rows, batch = [], 32
    for recipe in ("constant", "vector"):
        for clients in (2, 5, 20):
            embeddings, last, labels = manipulated_clients(seed, recipe, clients)
            weight_sum, bias_sum = torch.zeros(10, 64).double(), torch.zeros(10).double()
            for embedding, y in zip(embeddings, labels, strict=True):  # the clients' gradients, by autograd
                loss = nn.functional.cross_entropy(last(embedding.expand(batch, -1)), y)
                weight, bias = torch.autograd.grad(loss, (last.weight, last.bias))
                weight_sum, bias_sum = weight_sum + weight, bias_sum + bias
            recovered = counts(disaggregate(embeddings, weight_sum, bias_sum), last(embeddings).detach(), batch)
            truth = nn.functional.one_hot(labels, 10).sum(1)
            rows.append(
                {
                    "recipe": recipe,
                    "clients": clients,
                    "condition": float(torch.linalg.cond(system(embeddings))),
                    "exact": float((recovered == truth).double().mean()),
                }
            )
    return rows
