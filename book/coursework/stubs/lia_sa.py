"""Coursework 2, LIA-SA: labels through secure aggregation."""

from torch import Tensor


def system(embeddings: Tensor) -> Tensor:
    """Return the matrix of Eq. 16, ``[m + 1, U]``, from the clients' embeddings ``[U, m]``."""
    raise NotImplementedError


def disaggregate(embeddings: Tensor, weight_sum: Tensor, bias_sum: Tensor) -> Tensor:
    """Return every client's bias gradient ``[U, n]``.

    `weight_sum` ``[n, m]`` and `bias_sum` ``[n]`` are the head's gradients, summed over the clients.
    """
    raise NotImplementedError


def reader(embeddings: Tensor, client: int) -> Tensor:
    """Return the vector ``[m + 1]`` whose product with ``[bias sum; weight sums]`` is one client's bias gradient.

    Of all such vectors it is the one of least norm, so that noise on the sums grows least.
    """
    raise NotImplementedError


def counts(bias_gradients: Tensor, logits: Tensor, batch_size: int) -> Tensor:
    """Return every client's label counts ``[U, n]``, integers that are not negative (Eq. 17).

    `bias_gradients` ``[U, n]`` have small errors; `logits` ``[U, n]`` are what each client's model puts out.
    """
    raise NotImplementedError


def measure(seed: int) -> list[dict]:
    """Measure the attack with one constant a client, and with a random vector a client.

    Embeddings, head and labels are those of `fedleak_book.coursework.given.manipulated_clients`, which says what the
    network is. Every client shares one mean gradient of the head, without noise or rounding; the counts are those of
    your `disaggregate` and `counts`. Return a row for each recipe with 2, 5 and 20 clients: ``{"recipe": "constant",
    "clients": 2, "condition": …, "exact": …}``: the condition number of the system, and the share of the counts (of all
    clients and classes) that are right.
    """
    raise NotImplementedError
