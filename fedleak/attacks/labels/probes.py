"""LLG's probes: batches full of one label, of dummy images or of auxiliary data, and their class gradients."""

from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.models import batch_dependent, head_pass

Dummy = Literal["zeros", "ones", "random"]


def dummy_images(kind: Dummy, count: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Make LLG*'s dummy images: `count` of them with random pixels in [0, 1), or one of zeros or ones.

    One is enough for the constant ones, since a batch of equal images has the gradient of any one of them.
    """
    if kind == "random":
        return torch.rand(count, *shape, generator=generator)
    if kind not in ("zeros", "ones"):
        raise ValueError(f"aux is None, 'zeros', 'ones', 'random' or an Images, not {kind!r}")
    return torch.full((1, *shape), float(kind == "ones"))


def probe(model: nn.Module, images: Tensor, index: Tensor) -> Tensor:
    """Return the class gradients of probe batches, each full of one label, ``[run, label, class]``.

    `images` is a pool ``[N, C, H, W]``; `index` says which of them are in a run's batch of a label, ``[run, n, B]``.
    """
    labels = torch.arange(index.shape[1], device=images.device)[None, :, None].expand(index.shape)
    if not batch_dependent(model):
        distinct, place = index.unique(return_inverse=True)
        return head_pass(model, images[distinct]).row_sums(place, labels)
    own = torch.arange(index.shape[2], device=images.device)
    batches = zip(index.flatten(0, 1), labels.flatten(0, 1), strict=True)
    found = [head_pass(model, images[batch]).row_sums(own, label) for batch, label in batches]
    return torch.stack(found).unflatten(0, index.shape[:2])
