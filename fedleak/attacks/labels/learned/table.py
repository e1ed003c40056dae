"""Per-sample parts of the head's gradient: errors, inputs, and what a tied embedding adds."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.inputs import require_classes
from fedleak.attacks.labels.learned import simulated
from fedleak.data import Images
from fedleak.models import as_inputs, batch_dependent, embedding_gradients, head, head_pass
from fedleak.models.inputs import forward
from fedleak.models.passes import add_rows

CHECKED, MAX_DIFFERENCE, MAX_CHANGE = 8, 0.05, 1e-3
"""Number of samples whose mean gradient is compared with the model's own; largest difference, relative to its norm;
largest change of a probability between two passes."""


class HeadTable(NamedTuple):
    """The head's gradient of single samples, ``errors inputs'`` and, with a tied embedding, rows that are added."""

    inputs: Tensor
    """The head's inputs, with a 1 for the bias if it is shared, ``[N, d]``, double."""
    errors: Tensor
    """``p - y``, ``[N, n]``."""
    labels: Tensor
    """``[N]``"""
    tokens: Tensor
    """Rows of the head's weight to which the sample's words add, as the words' embedding; ``[N, L]``, L may be 0."""
    embedded: Tensor
    """What they add, ``[N, L, d]``, in the model's dtype."""

    def take(self, index: Tensor) -> "HeadTable":
        """Return the table of the samples at `index`, ``[M]``."""
        return HeadTable(*(part[index] for part in self))

    def joined(self, other: "HeadTable") -> "HeadTable":
        """Return the table of these samples and of those of another table."""
        return HeadTable(*map(torch.cat, zip(self, other, strict=True)))

    @property
    def true_probabilities(self) -> Tensor:
        """Probability of each sample's true class, ``[N]``."""
        return 1 + self.errors.gather(1, self.labels[:, None])[:, 0]

    def with_logit_shift(self, shift: float) -> "HeadTable":
        """Return the table of samples whose true class has a logit that is larger by `shift`."""
        factor = simulated.error_factor(self.true_probabilities, torch.tensor(shift))[:, None]
        return self._replace(errors=self.errors * factor, embedded=self.embedded * factor[..., None].to(self.embedded))

    def gradients(self, axes: Tensor) -> Tensor:
        """Return the products of each sample's gradient with directions of the inputs ``[d, r]``, ``[N, n * r]``."""
        products = torch.einsum("si,sj->sij", self.errors, self.inputs @ axes)
        add_rows(products, self.tokens, self.embedded_along(axes).to(products))
        return products.flatten(1)

    def embedded_along(self, axes: Tensor) -> Tensor:
        """Return the products of `embedded` with directions of the inputs ``[d, r]``, ``[N, L, r]``, in its dtype."""
        return self.embedded @ axes.to(self.embedded)


def is_faithful(table: HeadTable, model: nn.Module, images: Images) -> bool:
    """Return whether the table gives the model's own gradient of the head's weight for its first samples.

    It does not where something else than `nn.Embedding` uses the weight, too. Nothing is compared where samples depend
    on their batch, where two passes differ, as under dropout, or where the weight is no parameter that is trained.
    """
    weight = head(model).layer.weight
    if batch_dependent(model) or not (weight.requires_grad and weight.is_leaf):
        return True
    first = table.take(torch.arange(min(CHECKED, len(images)), device=table.labels.device))
    # cuDNN does not differentiate recurrent layers in evaluation mode.
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), torch.backends.cudnn.flags(enabled=False):
        logits = forward(model, as_inputs(images.x[:CHECKED], model))
        errors = logits.detach().softmax(1) - nn.functional.one_hot(first.labels, logits.shape[1])
        if (errors - first.errors).abs().max() > MAX_CHANGE:
            return True
        (actual,) = torch.autograd.grad(nn.functional.cross_entropy(logits, first.labels), weight)
    axes = torch.eye(table.inputs.shape[1], weight.shape[1], dtype=table.inputs.dtype, device=table.inputs.device)
    difference = first.gradients(axes).mean(0).view(weight.shape) - actual
    return bool(difference.norm() <= MAX_DIFFERENCE * actual.double().norm())


def make_table(model: nn.Module, images: Images | HeadTable, bias: bool) -> HeadTable:
    """Run images through a model and return the table; `bias` appends a 1 to the inputs. A table is returned as it is.

    Raises `ValueError` if the images lack a class of the model, or have others, or if the head's inputs or the
    probabilities are NaN or infinite.
    """
    if isinstance(images, HeadTable):
        return images
    require_classes(images, head(model).layer.out_features)
    x = as_inputs(images.x, model)
    passed = head_pass(model, x)
    if not (torch.isfinite(passed.inputs).all() and torch.isfinite(passed.probabilities).all()):
        raise ValueError("on auxiliary images the model's head sees or gives NaN or infinite values")
    inputs, labels = passed.inputs.double(), images.y.to(passed.inputs.device)
    errors = passed.probabilities.double() - nn.functional.one_hot(labels, passed.probabilities.shape[1])
    tokens, embedded = embedding_gradients(model, x, labels)
    inputs = nn.functional.pad(inputs, (0, int(bias)), value=1.0)
    embedded = nn.functional.pad(embedded, (0, int(bias)))
    return HeadTable(inputs, errors, labels, tokens, embedded)
