"""Rounds that really ran, in a folder: what each client was sent, what it sent back, and what it was made from.

A folder holds the states of the model, each once, under the hash of its content, and a JSON file for every client of
every round::

    run/
        states/5f0c0e1c2b7a9d84.safetensors
        round-0001/client-7.json    as the client saw it, with the true labels if it told them
        round-0001/server-7.json    as the server saw it

Every file is there whole or not at all, and its JSON comes last. A run that was interrupted can be read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from logging import Logger
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedleak.errors import extra
from fedleak.federated.privacy import Privacy
from fedleak.federated.schemes import Scheme
from fedleak.federated.state_files import read_state, shapes, write_state
from fedleak.federated.update import Update
from fedleak.files import write_bytes

with extra("recordings"):
    from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
    from pydantic.dataclasses import dataclass

UNKNOWN = "unknown"
SUM = "sum"
"""Node of what the server sees of many clients under secure aggregation."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class Contribution:
    """One client's part in one round.

    Raises `ValueError` for a value of another type or out of its range.

    Parameters
    ----------
    round
        Its number, from 0 or 1.
    node
        The client's name: letters, digits, ``_``, ``.`` and ``-``.
    samples, steps
        Training samples over all local steps, and how many steps there were, as in `Update`.
    lr, optimiser, momentum
        Of the local steps: ``"sgd"``, with momentum or not, ``"nag"`` (Nesterov's), or another name. What attacks say
        of another, or where nobody told, is not relied on.
    batch_size, epochs
        As the client was told; for the report alone.
    counts
        How often each label occurred in all steps, if it is known.
    clients
        How many clients' mean it is, weighted by their samples, as secure aggregation gives it. They train in parallel:
        `steps` are those of one, and `samples`, `batch_size` and `counts` those of all together.
    privacy
        By what it is said to be differentially private.
    seen_by
        Who recorded it: the client, or the server.
    before, after
        Names of the files with the model as it came and as it went.
    folder
        The run's folder, where it was read from one.
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
    seen_by: Literal["client", "server"] = "client"
    before: Annotated[str, Field(pattern="^[0-9a-f]*$")] = ""
    after: Annotated[str, Field(pattern="^[0-9a-f]*$")] = ""
    folder: Path = Path()

    def __post_init__(self) -> None:
        if self.counts is not None and sum(self.counts) != self.samples:
            raise ValueError(f"counts are of {sum(self.counts)} labels, and there are {self.samples} samples")

    @property
    def scheme(self) -> Scheme | None:
        """How the client trained, for attacks that take it; None for an optimiser that is no kind of SGD."""
        if self.optimiser not in ("sgd", "nag"):
            return None
        name: Any = "nag" if self.optimiser == "nag" else "sgdm" if self.momentum else "fedavg"
        return Scheme(name, self.lr, self.steps, self.momentum)

    @property
    def plain_lr(self) -> float:
        """The rate at which plain SGD, with the same gradient in every step, makes the same change of the weights.

        Momentum makes it larger than `lr`: by the mean of rho in `Scheme.weights`.
        """
        return self.lr if self.scheme is None else self.lr * self.scheme.weights().mean().item()

    @property
    def path(self) -> Path:
        """Its JSON file."""
        return self.folder / f"round-{self.round:04d}" / f"{self.seen_by}-{self.node}.json"

    def states(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the model's state before and after.

        Raises `ValueError` if a file is missing, or is not what was written: the message names it.
        """
        folder = self.folder / "states"
        before, after = (read_state(folder / f"{name}.safetensors") for name in (self.before, self.after))
        return before, after

    def update(self) -> Update:
        """Return what the server sees, an `Update` of kind ``"delta"``.

        Raises `ValueError` as for `states` and `Update.from_states`; the message names the file.
        """
        before, after = self.states()
        with _naming(self.path):
            return Update.from_states(before, after, self.samples, self.steps, self.plain_lr)

    def truth(self, n_classes: int) -> Tensor | None:
        """Return the true label counts ``[n_classes]``; None if they were not recorded.

        Raises `ValueError` if there are labels of other classes; the message names the file.
        """
        if self.counts is None:
            return None
        if any(self.counts[n_classes:]):
            raise ValueError(f"{self.path}: its labels are of {len(self.counts)} classes, the model has {n_classes}")
        return torch.tensor([*self.counts, *[0] * n_classes][:n_classes])


_JSON = TypeAdapter(Contribution)


def write(folder: Path | str, part: Contribution, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Path:
    """Add a client's part in a round to a folder, which is made if it is not there; return the JSON file.

    Raises `PermissionError` if the folder cannot be written.

    Parameters
    ----------
    folder
        The run's folder.
    part
        What is known of it.
    before, after
        State dicts of the model.
    """
    folder = Path(folder)
    part = replace(part, folder=folder, before=write_state(folder, before), after=write_state(folder, after))
    write_bytes(part.path, _JSON.dump_json(part, indent=1, exclude={"folder"}))  # no line end: cut, it is no JSON
    return part.path


def keep(
    folder: Path | str,
    facts: Mapping[str, Any],
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    *,
    round: int,
    node: str,
    seen_by: Any,
    examples: int | list[int],
    log: Logger,
) -> None:
    """Write what a federation's platform shows of a contribution, or say in the log why there is none.

    Nobody's training ends for want of a record.

    Parameters
    ----------
    folder
        The run's folder.
    facts
        What was told of it: fields of `Contribution`, and ``labels`` of the samples of one epoch, integers ``[N]``.
        Samples and steps follow from `examples` (or the labels), ``batch_size`` and ``epochs`` (one, if not told).
    before, after
        State dicts of the model.
    round, node, seen_by
        As in `Contribution`.
    examples
        The number of examples that the client says it has, 0 if it does not say; or those of many clients, whose mean
        it is.
    log
        Of the platform's module.
    """
    try:
        if not after or before.keys() != after.keys():
            raise ValueError("what came back is no state of the model that was sent (masked by SecAgg+?)")
        if "lr" not in facts:
            raise ValueError("nobody told the learning rate: pass lr=... or note(..., lr=...)")
        if "optimiser" not in facts:
            log.warning(
                "nobody told the optimiser of round %s, node %s: pass optimiser='sgd' or note(..., optimiser=...); "
                "without, no audit relies on what attacks say",
                round,
                node,
            )
        write(folder, _contribution(dict(facts), examples, round, node, seen_by), before, after)
    except (ValueError, TypeError, OSError) as error:
        log.warning("nothing recorded of round %s, node %s: %s", round, node, error)


def _contribution(
    facts: dict[str, Any], examples: int | list[int], server_round: int, node: str, seen_by: Any
) -> Contribution:
    epochs, size = facts.setdefault("epochs", 1), facts.get("batch_size")
    if "labels" in facts:
        labels = torch.as_tensor(facts.pop("labels"))
        facts["counts"] = (labels.bincount() * epochs).tolist()
        examples = examples or len(labels)
    each = examples if isinstance(examples, list) else [examples]
    weighted = sum(n * math.ceil(n / (size or max(n, 1))) for n in each) / max(sum(each), 1)
    counted = {"samples": sum(each) * epochs, "steps": max(round(epochs * weighted), 1), "clients": len(each)}
    if len(each) > 1 and size:
        facts["batch_size"] = size * len(each)
    return Contribution(round=server_round, node=node, seen_by=seen_by, **{**counted, **facts})


def read(folder: Path | str, *, gaps: bool = False, dropped: list[str] | None = None) -> list[Contribution]:
    """Read a folder and check every file of it; return the contributions by round and node.

    What both client and server recorded is taken as the server saw it, with what the client told. In a round in which
    the server saw only the sum under secure aggregation, the clients' records tell its labels, and are no updates.
    Raises `FileNotFoundError` if there is no such folder; `ValueError` if it holds no round, or a round is missing; if
    a file is cut or changed, a state has other keys or shapes than the others, or holds NaN or infinity. The message
    names the file.

    Parameters
    ----------
    folder
        The run's folder.
    gaps
        Accept missing rounds, as in the folder of a client that was not always chosen.
    dropped
        If given, contributions with NaN or infinity are left out, and are named in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    found: dict[tuple[int, str], Contribution] = {}
    for path in sorted(folder.glob("round-*/*.json")):  # a client's comes before the server's
        one = _read_json(path, folder)
        key = one.round, one.node
        found[key] = _both(found[key], one) if key in found else one
    for key in [key for key in found if key[1] == SUM and found[key].clients > 1]:
        found[key] = _with_labels(found[key], [found.pop(k) for k in sorted(found) if k[0] == key[0] and k != key])
    if not found:
        raise ValueError(f"{folder} holds no recorded round (round-0001/*.json)")
    rounds = {number for number, _ in found}
    first = min(rounds) if gaps else min(1, *rounds)
    if not gaps and (missing := sorted(set(range(first, max(rounds))) - rounds)):
        raise ValueError(
            f"{folder / f'round-{missing[0]:04d}'} is missing, and rounds up to {max(rounds)} are there; "
            "accept that with gaps=True (--gaps)"
        )
    known: dict[str, tuple] = {}
    bad: dict[str, str] = {}
    run = [found[key] for key in sorted(found, key=lambda key: (key[0], len(key[1]), key[1]))]
    for one in list(run):
        for name in (one.before, one.after):
            where = folder / "states" / f"{name}.safetensors"
            if name not in known:
                known[name], odd = shapes(where)
                if odd:
                    bad[name] = odd
            if name in bad:
                text = f"round {one.round}, node {one.node}: {bad[name]} ({where})"
                if dropped is None:
                    raise ValueError(f"{text}; leave such updates out with dropped=[] (--skip-nan)")
                dropped.append(text)
                run.remove(one)
                break
            if known[name] != known[run[0].before]:
                raise ValueError(
                    f"{where} ({one.path.parent.name}, {one.node}) is of another model: {_odd(known, run, name)}"
                )
    if not run:
        raise ValueError(f"{folder}: every update holds NaN or infinity")
    return run


def _both(client: Contribution, server: Contribution) -> Contribution:
    """Return what both recorded: the server's view, and the client's word, but for an optimiser that it did not say."""
    privacy = client.privacy or server.privacy
    seen = replace(client, before=server.before, after=server.after, seen_by="server", privacy=privacy)
    if client.optimiser == UNKNOWN:
        seen = replace(seen, optimiser=server.optimiser, lr=server.lr, momentum=server.momentum)
    return seen


def _with_labels(total: Contribution, clients: Sequence[Contribution]) -> Contribution:
    """Return the sum of a round with its labels, if all of its clients recorded theirs."""
    each = [one.counts for one in clients if one.counts is not None]
    if total.optimiser == UNKNOWN and len({(one.optimiser, one.lr, one.momentum) for one in clients}) == 1:
        one = clients[0]
        total = replace(total, optimiser=one.optimiser, lr=one.lr, momentum=one.momentum)
    if (
        len(clients) != total.clients
        or sum(one.samples for one in clients) != total.samples
        or len(each) < len(clients)
    ):
        return total
    return replace(total, counts=[sum(column) for column in zip_longest(*each, fillvalue=0)])


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        faults = (" ".join([".".join(map(str, fault["loc"])), fault["msg"]]).strip() for fault in error.errors())
        raise ValueError(f"{path}: {'; '.join(faults)}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_json(path: Path, folder: Path) -> Contribution:
    with _naming(path):
        one = replace(_JSON.validate_json(path.read_bytes()), folder=folder)
        if one.path != path:
            raise ValueError(f"it is of round {one.round} and node {one.node!r}, and belongs to {one.path.name}")
    return one


def _odd(known: Mapping[str, tuple], run: Sequence[Contribution], name: str) -> str:
    return "it differs in " + ", ".join(sorted({repr(key) for key, _ in set(known[name]) ^ set(known[run[0].before])}))
