"""A client's part in a round, as it stands in a run's folder; see `fedleak.recording.folder`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedleak.errors import extra
from fedleak.federated.schemes import Scheme
from fedleak.federated.update import Update, plain_name
from fedleak.privacy.claim import Privacy
from fedleak.recording.gaps import describe
from fedleak.recording.states import place, read_state

with extra("recordings"):
    from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter
    from pydantic.dataclasses import dataclass

UNKNOWN = "unknown"
UNMEASURED = "nobody measured the client's training"
OTHER_STATES = "the server received another state than the client recorded"


@dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class Contribution:
    """One client's part in one round.

    Raises `ValueError` for a value of another type or out of its range.

    Parameters
    ----------
    round
        Number of the round, from 0 or 1.
    node
        Name of the client: letters, digits, ``_``, ``.`` and ``-``.
    samples, steps
        Number of training samples over all local steps, and number of steps, as in `Update`.
    lr, optimiser, momentum
        Settings of the local steps; the optimiser is ``"sgd"``, with momentum or not, ``"nag"`` (Nesterov's), or
        another name. Attacks are not reliable for another or unknown optimiser.
    batch_size, epochs
        The client's configuration; for the report alone.
    counts
        Label counts over all steps, if they are known.
    privacy
        Claimed differential privacy.
    scales, decays
        Of a measured round, by tensor: the rate of its steps as a multiple of `lr`, and the share of its weights that
        weight decay takes off. Tensors that are not in `scales` are no part of the update.
    by_batch
        The batch norms that used their batch's statistics (training mode), each by the name of a tensor in its state,
        if the client noted them; all others used running statistics.
    failed
        The first fact that does not hold of a client that trains by SGD on the mean cross-entropy of the recorded
        labels, or why that is not known; "" if it was measured. Then `lr` includes the loss's factor.
    seen_by
        Recorder: the client or the server.
    before, after
        Names of the files with the model before and after the round.
    folder
        Folder of the run, if the contribution was read from one.
    """

    round: NonNegativeInt
    node: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
    samples: PositiveInt
    steps: PositiveInt
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    optimiser: str = UNKNOWN
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    batch_size: PositiveInt | None = None
    epochs: PositiveInt | None = None
    counts: list[NonNegativeInt] | None = None
    privacy: Privacy | None = None
    scales: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = field(default_factory=dict)
    decays: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = field(default_factory=dict)
    by_batch: list[str] | None = None
    failed: str = UNMEASURED
    seen_by: Literal["client", "server"] = "client"
    before: Annotated[str, Field(pattern="^[0-9a-f]*$")] = ""
    after: Annotated[str, Field(pattern="^[0-9a-f]*$")] = ""
    folder: Path = Path()

    def __post_init__(self) -> None:
        if self.counts is not None and sum(self.counts) != self.samples:
            raise ValueError(f"counts are of {sum(self.counts)} labels, and there are {self.samples} samples")

    @property
    def is_open(self) -> bool:
        """Whether nothing speaks against SGD on the mean cross-entropy, and nobody measured it."""
        return self.failed == UNMEASURED and self.optimiser in ("sgd", "nag")

    @property
    def scheme(self) -> Scheme | None:
        """The client's training scheme for attacks; None for another one than SGD's, or if it is not known."""
        if self.failed and not self.is_open:
            return None
        plain: Any = "sgdm" if self.momentum else "fedavg"
        return Scheme("nag" if self.optimiser == "nag" else plain, self.lr, self.steps, self.momentum)

    @property
    def plain_lr(self) -> float:
        """The rate of plain SGD for the same change of the weights, if the gradient is the same in every step.

        With momentum it is `lr` times the mean of `Scheme.weights`.
        """
        return self.lr if self.scheme is None else self.lr * self.scheme.weights().mean().item()

    @property
    def path(self) -> Path:
        """The JSON file of the contribution."""
        return self.folder / f"round-{self.round:04d}" / f"{self.seen_by}-{self.node}.json"

    def states(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Read the model's states before and after; raise `ValueError` for a file that is missing or changed."""
        return self.read_before(), self.read_after()

    def read_before(self) -> dict[str, Tensor]:
        """Read the state that the client received."""
        return read_state(place(self.folder, self.before))

    def read_after(self) -> dict[str, Tensor]:
        """Read the state that the client sent."""
        return read_state(place(self.folder, self.after))

    def update(self, states: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None = None) -> Update:
        """Return the server's update, of kind ``"delta"``, converted to the rate `plain_lr` and no weight decay.

        Errors are those of `states`, which are read if they are not given, and `Update.from_states`.
        """
        before, after = states or self.states()
        with errors_named(self.path):
            update = Update.from_states(before, after, self.samples, self.steps, self.plain_lr)
        if self.failed:
            return update
        # The server's states may have the names of another wrapper than the model that the client recorded.
        scales, decays = ({plain_name(name): x for name, x in by.items()} for by in (self.scales, self.decays))
        tensors = {name: tensor for name, tensor in update.tensors.items() if plain_name(name) in scales}
        if not tensors:
            raise ValueError(f"{self.path}: its states have none of the parameters that the client trained")
        for name, tensor in tensors.items():
            if share := decays.get(plain_name(name)):
                # Decay uses the weights before each step: over a round about the mean of both states.
                weights = before[name] if self.steps == 1 else (before[name] + after[name]) / 2
                tensor = tensor + share * weights.to(tensor)
            tensors[name] = tensor / scales[plain_name(name)]
        return update.replace(tensors)

    def truth(self, n_classes: int) -> Tensor | None:
        """Return the label counts ``[n_classes]``, or None without a record; raise `ValueError` for other classes."""
        if self.counts is None:
            return None
        if any(self.counts[n_classes:]):
            raise ValueError(f"{self.path}: its labels are of {len(self.counts)} classes, the model has {n_classes}")
        return torch.tensor([*self.counts, *[0] * n_classes][:n_classes])


JSON = TypeAdapter(Contribution)


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Begin the message of a `ValueError` in the block with a file's path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {describe(error)}") from error
