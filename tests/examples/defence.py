"""A defence to start from: what is shared keeps its signs and loses its sizes."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from fedleak.federated.defences import Defence, Stacked, register


@dataclass
class Signs:
    """Share the sign of every entry, times `size`. Raises `ValueError` if `size` is not positive."""

    size: float

    def __post_init__(self) -> None:
        if not self.size > 0:
            raise ValueError(f"size is positive, got {self.size}")

    def __call__(self, updates: Mapping[str, Tensor], clients: Tensor) -> Stacked:
        """Return the signs of the K clients' tensors ``[K, ...]``."""
        return {name: self.size * tensor.sign() for name, tensor in updates.items()}


@register("signs", strengths=(0.01,), says=lambda size: f"signs alone, ± {size:g}")
def _signs(strength: float, model: nn.Module, clients: int, seed: int) -> Defence:
    return Signs(strength)
