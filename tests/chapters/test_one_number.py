"""One setting has one number on all pages: the displays of the arena and of the learned attacker are compared."""

import pytest

from fedleak_book.evidence.cells import mean_of
from fedleak_book.evidence.results import Results
from notebooks.arena import experiments as e
from notebooks.arena import ranking as r
from notebooks.arena.balance import load_balance
from notebooks.learned import leads

USUAL = {"net": "lenet", "state": "trained", "batch_size": 32, "composition": "unbalanced", "scheme": "FedSGD"}


@pytest.fixture(scope="module")
def arena():
    return Results("arena", device="cpu")


def numbers_of(cells, **names):
    """Return the numbers of a display by setting and attack; `names` are a display's own names for a usual value."""
    for row in cells.to_dict("records"):
        if all(row.get(name, usual) == usual for name, usual in names.items()):
            yield (*(row.get(name, usual) for name, usual in USUAL.items()), row["attack"]), row["iacc"]


def displays(run):
    """Yield each display's numbers: Figs. 6.2 to 6.5, the table of ten networks, and chapter 7's first sentences."""
    yield numbers_of(r.rescore(run, r.find_best(r.load_networks(run), r.NETWORK_CELL)))
    for experiment, axis in (("compositions", "composition"), ("schemes", "scheme")):
        table = r.load_usual_first(run, experiment, axis)
        yield numbers_of(r.rescore(run, r.find_best(table, [axis, "state"])))
    yield numbers_of(r.rescore(run, r.find_best(r.load_rungs(run), ["state", "rung"])), rung="+ many images a class")
    yield numbers_of(r.rescore(run, load_balance(run)), defence="none")
    for _, row in r.compare_fresh(run).iterrows():
        yield [((row["net"], "trained", row["batch_size"], "unbalanced", "FedSGD", "learned"), row["learned"])]
    for size in e.SIZES:
        learned = mean_of(leads.anew(run, size)["learned"])
        yield [(("lenet", "trained", size, "unbalanced", "FedSGD", "learned"), float(learned))]


def several(numbers):
    """Return the settings that have more than one number."""
    by_setting = {}
    for setting, value in numbers:
        by_setting.setdefault(setting, []).append(round(value, 9))
    return {setting: values for setting, values in by_setting.items() if len(set(values)) > 1}


def test_no_setting_has_two_numbers(arena):
    numbers = [number for display in displays(arena) for number in display]
    shown = [setting for setting, _ in numbers if setting[1] == "trained" and setting[-1] == "learned"]
    assert shown.count(("lenet", "trained", 32, "unbalanced", "FedSGD", "learned")) >= 6
    assert several(numbers) == {}
