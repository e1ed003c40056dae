"""Coursework 1, LLG: labels from the signs and sizes of gradients."""

from torch import Tensor


def class_gradients(logits: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the row sums g ``[n]`` of the head's mean gradient.

    `logits` are ``[B, n]``, `inputs` of the head ``[B, m]``, `labels` ``[B]``. Use no autograd.
    """
    raise NotImplementedError


def impact(row_sums: Tensor, samples: int) -> float:
    """Return the impact m of Eq. 18, but with the exact factor of A.3, from g ``[n]`` and the number of samples |D|."""
    raise NotImplementedError


def first_labels(row_sums: Tensor, samples: int) -> Tensor:
    """Return the counts ``[n]``, 0 or 1, that step 1 may give if the inputs of the head can be negative.

    Behind a tanh more row sums can be negative than there are samples. Then the most negative ones are counted, one
    label each and `samples` in all.
    """
    raise NotImplementedError


def extract(row_sums: Tensor, impact: float, offset: Tensor, samples: int) -> Tensor:
    """Return the label counts ``[n]``, integers, by Algorithm 1, step 1 as in `first_labels`; change no argument."""
    raise NotImplementedError


def measure(seed: int) -> list[dict]:
    """Measure LLG and the random guess on 10 fresh CNNs, for B = 2, 8, 32 and 128.

    Return a row for each batch size: ``{"batch_size": 2, "LLG": …, "guess": …}``, both mean success rates (ASR, which
    `fedleak.metrics.attack_success_rate` computes from counts). Networks, unbalanced batches and guesses are those of
    `fedleak_book.coursework.given.llg_trials`, the update is that of one step (`fedleak.federated.fedsgd`). LLG is your
    `impact` and `extract` on the row sums of the head's weight gradient (`fedleak.models.head`), with no offset:
    neither LLG* nor LLG+.
    """
    raise NotImplementedError
