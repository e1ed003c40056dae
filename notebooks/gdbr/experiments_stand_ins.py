"""Stand-ins for a last layer's gradient that is withheld, as GDBR gives them to its baselines (Sec. V-D 4)."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

Mode = Literal["stats", "stats (col)", "shuffle (col)", "mask"]


def stand_in(gradient: Tensor, mode: Mode, generator: torch.Generator) -> Tensor:
    """Make a gradient that has something in common with the true one, ``[..., n, m]``: a row a class.

    ``"stats"``: normal draws with the mean and deviation of all entries; ``"stats (col)"``: the same by column;
    ``"shuffle (col)"``: each column's entries in random order; ``"mask"``: half of the entries, chosen at random,
    replaced by the mean of these. Another mode is a `ValueError`.
    """

    def drawn(draw: Callable[..., Tensor]) -> Tensor:
        return draw(gradient.shape, generator=generator, dtype=gradient.dtype).to(
            gradient.device
        )

    if mode == "stats":
        return gradient.mean((-2, -1), keepdim=True) + gradient.std(
            (-2, -1), keepdim=True
        ) * drawn(torch.randn)
    if mode == "stats (col)":
        return gradient.mean(-2, keepdim=True) + gradient.std(-2, keepdim=True) * drawn(
            torch.randn
        )
    if mode == "shuffle (col)":
        return gradient.gather(-2, drawn(torch.rand).argsort(dim=-2))
    if mode == "mask":
        size = gradient.shape[-2] * gradient.shape[-1]
        order = drawn(torch.rand).flatten(-2).argsort(dim=-1).argsort(dim=-1)
        masked = (order < size // 2).view_as(gradient)
        mean = (gradient * masked).sum((-2, -1), keepdim=True) / max(size // 2, 1)
        return gradient.where(~masked, mean)
    raise ValueError(
        f"unknown stand-in {mode!r}; there are: {', '.join(get_args(Mode))}"
    )
