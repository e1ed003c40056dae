"""What the server sees of one client: an `Update`, read the same way whatever the client shared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedleak.errors import WithheldParameter


@dataclass(frozen=True)
class Update:
    """One client's contribution to a round, as the server receives it.

    Parameters
    ----------
    tensors
        Parameter name to tensor, each of the parameter's own shape. A withheld parameter is absent.
    kind
        ``"gradient"``: the mean gradient over a batch, summed over the local steps.
        ``"delta"``: the weights after the local steps minus those before.
    samples
        Number of training samples behind the update, over all steps (the papers' ``|D|``).
    steps
        Number of local optimisation steps, 1 for FedSGD.
    lr
        The client's learning rate; needed to read a ``"delta"``.

    Raises
    ------
    ValueError
        For an unknown kind, counts below 1, samples that the steps do not divide, or a missing or
        non-positive learning rate.
    """

    tensors: Mapping[str, Tensor]
    kind: Literal["gradient", "delta"]
    samples: int
    steps: int = 1
    lr: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("gradient", "delta"):
            raise ValueError(f"kind is 'gradient' or 'delta', not {self.kind!r}")
        if self.steps < 1 or self.samples < 1:
            raise ValueError(f"samples and steps are at least 1, got {self.samples} and {self.steps}")
        if self.samples % self.steps:
            raise ValueError(f"{self.samples} samples do not divide into {self.steps} equal local batches")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"the learning rate is positive, got {self.lr}")
        if self.kind == "delta" and self.lr is None:
            raise ValueError("an update of kind 'delta' is read with the client's learning rate: pass lr")

    @property
    def batch_size(self) -> int:
        """Samples per local step, B."""
        return self.samples // self.steps

    def gradient(self, name: str) -> Tensor:
        """Return the mean gradient of one local step for parameter `name`, in the parameter's shape.

        Raises
        ------
        WithheldParameter
            If the client did not share it.
        """
        if name not in self.tensors:
            raise WithheldParameter(name, sorted(self.tensors))
        if self.kind == "gradient":
            return self.tensors[name] / self.steps
        assert self.lr is not None
        return self.tensors[name] / (-self.lr * self.steps)

    def without(self, *names: str) -> "Update":
        """Return the same update with the named parameters withheld.

        Raises
        ------
        WithheldParameter
            If one of them is not shared in the first place.
        """
        for name in names:
            if name not in self.tensors:
                raise WithheldParameter(name, sorted(self.tensors))
        return self.replace({k: v for k, v in self.tensors.items() if k not in names})

    def replace(self, tensors: Mapping[str, Tensor]) -> "Update":
        """Return an update of the same kind, samples and steps with other tensors: what a defence makes."""
        return Update(tensors, self.kind, self.samples, self.steps, self.lr)

    def to(self, device: str | torch.device) -> "Update":
        """Return the update on `device`."""
        return self.replace({k: v.to(device) for k, v in self.tensors.items()})
