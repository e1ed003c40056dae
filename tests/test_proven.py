"""The page on audits counts the proofs that are recorded, and nothing else."""

import sys

import pandas as pd
import pytest

from fedleak import paths

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import proven


def lines(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]


@pytest.fixture
def rows():
    """Ten updates of each client in two rows; of honest ones every second has proofs, one of 8 bits a wrong one."""
    both = [
        {"client": client, "updates": updates, "wrong": 0.0, "shown": 0.5 * (client in proven.HONEST)}
        for group in proven.KINDS.values()
        for client in group
        for updates in (2, 8)
    ]
    table = pd.DataFrame(both)
    table.loc[(table["client"] == "8 bits") & (table["updates"] == 8), ["wrong", "shown"]] = 1 / 8
    return table


def test_updates_are_counted_by_client(rows):
    found = {line[0]: line[1:] for line in lines(proven.clients(rows))[2:]}
    assert found["double precision"] == ["keeps the conditions", "10", "5", "0"]
    assert found["16 bits"] == ["nearly keeps them", "10", "0", "0"]
    assert found["8 bits"] == ["breaks one", "10", "1", "1"]
    assert len(found) == rows["client"].nunique()


def test_the_sentence_has_all_updates_and_the_bound(rows):
    every = 10 * rows["client"].nunique() + 3
    told = proven.in_short(rows, pd.DataFrame({"wrong": [0.0, 1.0, 0.0]}))
    assert told.startswith(f"**2 of {every} updates have a wrong proof**")
    assert f"Of the {10 * len(proven.BROKEN)} whose client breaks a condition, 1 have any proof." in told
    assert proven.at_most(0, 10_000) == "0.037 %", "1 - 0.025 ** (1 / 10,000)"


def test_shares_stand_by_network_and_batch_size():
    cell = {"net": "lenet", "state": "trained", "precision": "single", "proven low": 0.1, "proven high": 0.3}
    cells = [{**cell, "batch_size": 8, "proven": 0.2}, {**cell, "batch_size": 32, "proven": 0.15, "state": "untrained"}]
    head, _, *body = lines(proven.shares(pd.DataFrame(cells)))
    assert head == ["Network", "B = 8", "B = 32"]
    assert body[0] == ["LeNet, trained, single precision", "0.20 [0.10, 0.30]", "–"]
    assert body[1] == ["LeNet, untrained, single precision", "–", "0.15 [0.10, 0.30]"]
