"""Pages that count records: privacy, proofs, the guard for clients, what papers do not print, other code."""

import pandas as pd
import pytest
from values import cells, numbers

from fedleak_book import paths
from fedleak_book.evidence import published
from fedleak_book.evidence.published import LOST
from notebooks.privacy import notes as private
from notebooks.proofs import notes as proven

# --- privacy -----------------------------------------------------------------------------------------------------

PLACES = {"epsilon": 4.0, "state": "untrained"}


@pytest.fixture
def named():
    """Six updates under three mechanisms: an attack that is good on the even ones alone, and a steady one."""
    rows = []
    for mechanism, steady in ((private.SAMPLE, 0.75), (private.AFTER, 1.0), (private.CLIENT, 0.125)):
        for trial in range(6):
            values = {"LLG+": 0.0 if trial % 2 else steady / 2, "GDBR": steady, "prior guess": 0.1, "random guess": 0.5}
            for attack, iacc in values.items():
                rows.append({"mechanism": mechanism, **PLACES, "trial": trial, "attack": attack, "iacc": iacc})
    return private.named_by(pd.DataFrame(rows).assign(data="MNIST", batch_size=32))


@pytest.fixture
def bounds():
    rows = [{"mechanism": private.SAMPLE, **PLACES, "bound": b, "gaussian": 3 * b} for b in (1.0, 1.2, 0.8)]
    return pd.DataFrame(rows)


def test_the_best_attack_stands_beside_the_guess(named, bounds):
    assert list(named["attack"]) == ["GDBR"] * 3, "it is scored on updates that it was not picked on"
    assert list(named["iacc"]) == [0.75, 1.0, 0.125]
    assert (named["guess"] == 0.5).all()
    assert 0.5 < named["low"][1] < 1, "three equal updates prove little"
    assert named["high"][1] == 1
    _, first, second, _ = cells(private.side_by_side(named, bounds))
    assert first[:4] == ["DP-SGD (one sample)", "4", "1 (0.8 to 1.2)", "3 (2.4 to 3.6)"]
    assert first[4].startswith("75 [")
    assert first[4].endswith("(GDBR)")
    assert second[2:4] == ["–", "–"], "no canary was run there"


# --- proofs ------------------------------------------------------------------------------------------------------


def test_proofs_are_counted_by_client_and_over_all():
    """Ten updates of each client in two rows: every second honest one has proofs, one of 8 bits a wrong one."""
    clients = {client: group for group in proven.KINDS.values() for client in group}
    rows = pd.DataFrame(
        {"client": client, "updates": updates, "wrong": 0.0, "shown": 0.5 * (client in proven.HONEST)}
        for client in clients
        for updates in (2, 8)
    )
    rows.loc[(rows["client"] == "8 bits") & (rows["updates"] == 8), ["wrong", "shown"]] = 1 / 8
    lines = {line[0]: line[1:] for line in cells(proven.clients(rows))[1:]}
    assert lines["double precision"] == ["keeps the conditions", "10", "5", "0"]
    assert lines["16 bits"] == ["nearly keeps them", "10", "0", "0"]
    assert lines["8 bits"] == ["breaks one", "10", "1", "1"]
    assert lines.keys() == clients.keys()
    stated = numbers(proven.in_short(rows, pd.DataFrame({"wrong": [0.0, 1.0, 0.0]})))
    assert stated[:2] == [2, 10 * len(clients) + 3]
    assert stated[-2:] == [10 * len(proven.BROKEN), 1]
    assert proven.at_most(0, 10_000) == "0.037 %", "1 - 0.025 ** (1 / 10,000)"


# --- what the papers do not print --------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", paths.papers())
def test_choices_are_of_settings_that_the_paper_leaves_open(paper):
    declared, tables = published.load(paper).rules, published.load(paper).tables
    assert declared["written"]
    for choice in declared["choice"]:
        assert len(choice["is"]) == len(choice["sources"]), "every choice has a source"
        lost = [row for name in choice.get("tables", tables) for row in tables[name].rows]
        assert any(row.get(choice["setting"]) == LOST for row in lost), choice["setting"]
    for transport in declared.get("transport", ()):
        assert set(transport["tables"]) <= tables.keys()
