"""Recorded rounds in a folder: the models that each client received and sent back, and facts about its training.

A folder contains each state of the model once, named by the hash of its content, and a JSON file per client and
round::

    run/
        states/5f0c0e1c2b7a9d84.safetensors
        round-0001/client-7.json    as the client saw it, with the true labels if it gave them
        round-0001/server-7.json    as the server saw it

Each file is written atomically, the JSON last, so that an interrupted run can be read.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fedleak.errors import likely
from fedleak.federated.update import is_statistic, plain_name
from fedleak.files import write_bytes
from fedleak.privacy.claim import find_tensors_without_noise
from fedleak.recording.contribution import JSON, OTHER_STATES, UNKNOWN, Contribution, errors_named
from fedleak.recording.gaps import gap, list_refusals, list_unrecorded
from fedleak.recording.states import forget, place, scan, write_state


def write(folder: Path | str, part: Contribution, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Path:
    """Write a client's contribution and its model's state dicts to a run's folder; return the JSON file.

    The folder is created if it does not exist. Raises `PermissionError` if it cannot be written.
    """
    folder = Path(folder)
    part = replace(part, folder=folder, before=write_state(folder, before), after=write_state(folder, after))
    # without a line end a truncated file is no valid JSON
    write_bytes(part.path, JSON.dump_json(part, indent=1, exclude={"folder"}))
    gap(folder, part.round, part.seen_by, part.node).unlink(missing_ok=True)
    return part.path


def read(folder: Path | str, *, gaps: bool = False, missing: list[str] | None = None) -> list[Contribution]:
    """Read a folder, check all of its files, and return the contributions, sorted by round and node.

    If both client and server recorded a contribution, the states are the server's and the facts the client's. With
    `gaps`, rounds and contributions may be missing, as for a client that was not always chosen; `missing`, if given,
    receives their descriptions, and those of clients whose own record was refused.

    Raises `FileNotFoundError` if the folder does not exist; `ValueError`, which names the file, if it has no round or
    lacks one, or if a file is truncated or changed, or a state has other keys or shapes than the others, NaN or
    infinity.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    forget()
    entries: dict[tuple[int, str], Contribution] = {}
    for path in sorted(folder.glob("round-*/*.json")):  # client-*.json sorts before server-*.json
        with errors_named(path):
            entry = replace(JSON.validate_json(path.read_bytes()), folder=folder)
            if entry.path != path:
                belongs = entry.path.relative_to(folder)
                raise ValueError(f"it is of round {entry.round} and node {entry.node!r}, and belongs to {belongs}")
        if gap(folder, entry.round, entry.seen_by, entry.node).is_file():
            continue  # from an earlier run; the last one could not record the round
        key = entry.round, entry.node
        entries[key] = _merge_records(entries[key], entry) if key in entries else entry
    unrecorded = list_unrecorded(folder, entries.keys())
    missed = [f"round {number}, node {node} is not recorded: {why}" for number, node, why in unrecorded]
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
        missing.extend([*missed, *list_refusals(folder, entries.keys())])
    run = [entries[key] for key in sorted(entries, key=lambda key: (key[0], len(key[1]), key[1]))]
    for entry in run:
        _check_states(entry, run[0])
    return run


def _check_states(entry: Contribution, first: Contribution) -> None:
    """Raise `ValueError` if states are of another model than the first's, or hold NaN or infinity."""
    before, after = (scan(place(entry.folder, name)) for name in (entry.before, entry.after))
    changing = {name for name in before.odd | after.odd if before.prints.get(name) != after.prints.get(name)}
    for name, state in ((entry.before, before), (entry.after, after)):
        if bad := [text for tensor, text in state.odd.items() if tensor in changing]:
            paths = (replace(entry, seen_by=side).path for side in ("client", "server"))
            files = " and ".join(str(path.relative_to(entry.folder)) for path in paths if path.is_file())
            raise ValueError(
                f"round {entry.round}, node {entry.node}: {', '.join(bad)} are NaN or infinite "
                f"({place(entry.folder, name)}); remove {files} to leave it out"
            )
    expected = scan(place(first.folder, first.before)).shapes
    for name, state in ((entry.before, before), (entry.after, after)):
        if state.shapes <= expected or expected <= state.shapes:  # a client may share a part of its model
            continue
        hint = likely(key for key, _ in state.shapes) or likely(key for key, _ in expected)
        raise ValueError(
            f"{place(entry.folder, name)} ({entry.path.parent.name}, {entry.node}) is of another model: it differs "
            f"in {', '.join(sorted({repr(key) for key, _ in state.shapes ^ expected}))}{hint}"
        )


def _merge_records(client: Contribution, server: Contribution) -> Contribution:
    """Merge two records: the server's states and the client's facts, with the server's optimiser if it has none.

    Raises `ValueError` if a parameter has another shape in one of them.
    """
    received = _plain_shapes(server)
    if other := sorted(n for n, shape in _plain_shapes(client).items() if received.get(n, shape) != shape):
        raise ValueError(f"{server.path} is of another model than {client.path.name}: it differs in {other[0]!r}")
    failed = client.failed
    if (client.before, client.after) != (server.before, server.after) and not failed:
        pairs = zip(client.states(), server.states(), strict=True)
        failed = "" if all(_same(*pair) for pair in pairs) else OTHER_STATES
    privacy = client.privacy or server.privacy
    if client.privacy and client.privacy.by and failed == OTHER_STATES:  # noise behind the client's training
        bare = find_tensors_without_noise(client.states()[0], client.states()[1], server.states()[1])
        privacy = replace(client.privacy, unprotected=tuple(sorted({*client.privacy.unprotected, *bare})))
    merged = replace(client, before=server.before, after=server.after, seen_by="server", privacy=privacy, failed=failed)
    if client.optimiser != UNKNOWN:
        return merged
    return replace(merged, optimiser=server.optimiser, lr=server.lr, momentum=server.momentum)


def _same(client: Mapping[str, Tensor], server: Mapping[str, Tensor]) -> bool:
    """Return whether two states have the same parameters, whatever wrappers and platforms do to names and counters."""
    first, second = (
        {plain_name(name): t for name, t in state.items() if not is_statistic(name)} for state in (client, server)
    )
    if first.keys() != second.keys():
        return False
    # Clients turn counters of shape () into arrays of one element.
    return all(torch.equal(t.flatten(), second[name].flatten()) for name, t in first.items())


def _plain_shapes(part: Contribution) -> dict[str, torch.Size]:
    shapes = scan(place(part.folder, part.before)).shapes
    return {plain_name(name): shape for name, shape in shapes if not is_statistic(name)}
