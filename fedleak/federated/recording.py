"""Recorded rounds in a folder: the models that each client received and sent back, and facts about its training.

A folder contains each state of the model once, named by the hash of its content, and a JSON file per client and
round::

    run/
        states/5f0c0e1c2b7a9d84.safetensors
        round-0001/client-7.json    as the client saw it, with the true labels if it gave them
        round-0001/server-7.json    as the server saw it

Each file is written atomically, the JSON last, so that an interrupted run can be read.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedleak.errors import extra, likely
from fedleak.federated.gaps import gap, list_gaps
from fedleak.federated.privacy import Privacy
from fedleak.federated.schemes import Scheme
from fedleak.federated.state_files import place, read_state, shapes, unchanged, write_state
from fedleak.federated.update import Update
from fedleak.files import write_bytes

with extra("recordings"):
    from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
    from pydantic.dataclasses import dataclass

UNKNOWN = "unknown"
ASSUMPTIONS = ("step", "loss", "labels")
"""Facts about a client that a recorder can measure (`Contribution.verified`) and an audit assumes otherwise."""
SUM = "sum"
"""Node of the sum of many clients under secure aggregation."""


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
    clients
        Number of clients in a mean that is weighted by their samples, as under secure aggregation. They train in
        parallel: `steps` are those of one client, `samples`, `batch_size` and `counts` the totals of all.
    privacy
        Claimed differential privacy.
    weight_decay
        Weight decay of the local steps.
    rates, decays
        Deviating parameters: rate of plain SGD for the same change, as `plain_lr`, and weight decay, by name.
    factor
        The steps' gradients at the head as a multiple of the mean cross-entropy's; `lr` and `rates` include it.
    loss
        Measured loss; "" without a measurement.
    verified
        Facts that a measurement on the client confirmed: the change of the weights follows SGD (``"step"``), the loss
        is the cross-entropy, up to `factor` (``"loss"``), the counts are right (``"labels"``).
    doubts
        Reasons from measurements why the update's scale is unknown, so that attacks on it are not reliable.
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
    clients: PositiveInt = 1
    privacy: Privacy | None = None
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    rates: dict[str, float] = field(default_factory=dict)
    decays: dict[str, float] = field(default_factory=dict)
    factor: float = 1.0
    loss: str = ""
    verified: list[Literal["step", "loss", "labels"]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    seen_by: Literal["client", "server"] = "client"
    before: Annotated[str, Field(pattern="^[0-9a-f]*$")] = ""
    after: Annotated[str, Field(pattern="^[0-9a-f]*$")] = ""
    folder: Path = Path()

    def __post_init__(self) -> None:
        if self.counts is not None and sum(self.counts) != self.samples:
            raise ValueError(f"counts are of {sum(self.counts)} labels, and there are {self.samples} samples")

    @property
    def scheme(self) -> Scheme | None:
        """The client's training scheme for attacks; None for other optimisers than SGD, or with doubts."""
        if self.optimiser not in ("sgd", "nag") or self.doubts:
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
        return read_state(place(self.folder, self.before)), read_state(place(self.folder, self.after))

    def update(self) -> Update:
        """Return the server's update, of kind ``"delta"``, converted to the rate `plain_lr` and no weight decay.

        Errors are those of `states` and `Update.from_states`. Parameters with the rate 0 are omitted, as their gradient
        is unknown.
        """
        before, after = self.states()
        with _errors_named(self.path):
            update = Update.from_states(before, after, self.samples, self.steps, self.plain_lr)
        tensors = {}
        for name, change in update.tensors.items():
            if rate := self.rates.get(name, self.plain_lr):
                # Decay uses the weights before each step: over a round about the mean of both states.
                weights = before[name] if self.steps == 1 else (before[name] + after[name]) / 2
                decay = rate * self.steps * self.decays.get(name, self.weight_decay)
                plain_change = change + decay * weights.to(change) if decay else change
                tensors[name] = plain_change * (self.plain_lr / rate)
        return update.replace(tensors)

    @property
    def assumed(self) -> list[str]:
        """Names of the `ASSUMPTIONS` about the client that no measurement confirmed."""
        return [what for what in ASSUMPTIONS if what not in self.verified]

    def truth(self, n_classes: int) -> Tensor | None:
        """Return the label counts ``[n_classes]``, or None without a record; raise `ValueError` for other classes."""
        if self.counts is None:
            return None
        if any(self.counts[n_classes:]):
            raise ValueError(f"{self.path}: its labels are of {len(self.counts)} classes, the model has {n_classes}")
        return torch.tensor([*self.counts, *[0] * n_classes][:n_classes])


_JSON = TypeAdapter(Contribution)


def write(folder: Path | str, part: Contribution, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Path:
    """Write a client's contribution and its model's state dicts to a run's folder; return the JSON file.

    The folder is created if it does not exist. Raises `PermissionError` if it cannot be written.
    """
    folder = Path(folder)
    part = replace(part, folder=folder, before=write_state(folder, before), after=write_state(folder, after))
    # without a line end a truncated file is no valid JSON
    write_bytes(part.path, _JSON.dump_json(part, indent=1, exclude={"folder"}))
    gap(folder, part.round, part.seen_by, part.node).unlink(missing_ok=True)
    return part.path


def read(
    folder: Path | str, *, gaps: bool = False, dropped: list[str] | None = None, missing: list[str] | None = None
) -> list[Contribution]:
    """Read a folder, check all of its files, and return the contributions, sorted by round and node.

    If both client and server recorded a contribution, the states are the server's and the facts the client's. If the
    server recorded only the sum under secure aggregation, the clients' records give its labels and are no updates. With
    `gaps`, rounds and contributions may be missing, as for a client that was not always chosen; `missing`, if given,
    receives their descriptions. `dropped`, if given, receives contributions with NaN or infinity, which are omitted.

    Raises `FileNotFoundError` if the folder does not exist; `ValueError`, which names the file, if it has no round or
    lacks one, or if a file is truncated or changed, or a state has other keys or shapes than the others, NaN or
    infinity.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    entries: dict[tuple[int, str], Contribution] = {}
    for path in sorted(folder.glob("round-*/*.json")):  # client-*.json sorts before server-*.json
        with _errors_named(path):
            entry = replace(_JSON.validate_json(path.read_bytes()), folder=folder)
            if entry.path != path:
                raise ValueError(
                    f"it is of round {entry.round} and node {entry.node!r}, and belongs to {entry.path.name}"
                )
        if gap(folder, entry.round, entry.seen_by, entry.node).is_file():
            continue  # from an earlier run; the last one could not record the round
        key = entry.round, entry.node
        entries[key] = _merge_records(entries[key], entry) if key in entries else entry
    for key in [key for key, entry in entries.items() if entry.node == SUM and entry.clients > 1]:
        clients = [entries.pop(k) for k in sorted(entries) if k[0] == key[0] and k != key]
        entries[key] = _add_labels(entries[key], clients)
    missed = list(list_gaps(folder, entries, SUM))
    if not entries:
        why = f"; {missed[0]}" if missed else ""
        raise ValueError(f"{folder} holds no recorded round (round-0001/*.json){why}")
    rounds = {number for number, _ in entries}
    missing_rounds = sorted(set(range(min(1, *rounds), max(rounds))) - rounds)
    if missing_rounds:
        more = f", and {len(missing_rounds) - 1} rounds more" * (len(missing_rounds) > 1)
        missed = [f"{folder / f'round-{missing_rounds[0]:04d}'} is missing{more}", *missed]
    if missed and not gaps:
        raise ValueError(f"{missed[0]}, and rounds up to {max(rounds)} are there; accept that with gaps=True (--gaps)")
    if missing is not None:
        missing.extend(missed)
    run: list[Contribution] = []
    scanned: dict[str, tuple[set, dict[str, str]]] = {}
    for key in sorted(entries, key=lambda key: (key[0], len(key[1]), key[1])):
        entry = entries[key]
        paths = {name: place(folder, name) for name in (entry.before, entry.after)}
        for name, path in paths.items():
            scanned[name] = scanned.get(name) or shapes(path)
        odd = {**scanned[entry.before][1], **scanned[entry.after][1]}
        changing = odd.keys() - unchanged(paths[entry.before], paths[entry.after]) if odd else set()
        if changing:
            bad = ", ".join(text for name, text in odd.items() if name in changing)
            of = next(path for name, path in paths.items() if scanned[name][1].keys() & changing)
            text = f"round {entry.round}, node {entry.node}: {bad} are NaN or infinite ({of})"
            if dropped is None:
                raise ValueError(f"{text}; leave such updates out with dropped=[] (--skip-nan)")
            dropped.append(text)
            continue
        run.append(entry)
        for name, state_path in paths.items():
            entry_shapes, (first, _) = scanned[name][0], scanned[run[0].before]
            if differing := entry_shapes ^ first:
                hint = likely(key for key, _ in entry_shapes) or likely(key for key, _ in first)
                raise ValueError(
                    f"{state_path} ({entry.path.parent.name}, {entry.node}) is of another model: it differs in "
                    f"{', '.join(sorted({repr(key) for key, _ in differing}))}{hint}"
                )
    if not run:
        raise ValueError(f"{folder}: every update holds NaN or infinity")
    return run


def _merge_records(client: Contribution, server: Contribution) -> Contribution:
    """Merge two records: the server's states and the client's facts, with the server's optimiser if it has none."""
    privacy = client.privacy or server.privacy
    is_unchanged = (client.before, client.after) == (server.before, server.after)
    merged = replace(client, before=server.before, after=server.after, seen_by="server", privacy=privacy)
    if not is_unchanged:  # the measurements on the client do not hold for the server's states
        merged = replace(merged, verified=[what for what in client.verified if what == "labels"])
    return _copy_settings(server, merged)


def _add_labels(total: Contribution, clients: Sequence[Contribution]) -> Contribution:
    """Return the sum of a round with its label counts, if all of its clients recorded theirs."""
    counts = [client.counts for client in clients if client.counts is not None]
    if len({(client.optimiser, client.lr, client.momentum) for client in clients}) == 1:
        total = _copy_settings(clients[0], total)
    totals = len(clients), len(counts), sum(client.samples for client in clients)
    if totals != (total.clients, total.clients, total.samples):
        return total
    return replace(total, counts=[sum(column) for column in zip_longest(*counts, fillvalue=0)])


def _copy_settings(source: Contribution, other: Contribution) -> Contribution:
    if other.optimiser != UNKNOWN:
        return other
    return replace(other, optimiser=source.optimiser, lr=source.lr, momentum=source.momentum)


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        faults = error.errors() if isinstance(error, ValidationError) else []
        messages = [" ".join([".".join(map(str, fault["loc"])), fault["msg"]]).strip() for fault in faults]
        raise ValueError(f"{path}: {'; '.join(messages) or error}") from error
