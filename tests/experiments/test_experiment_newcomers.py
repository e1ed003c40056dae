"""Recorded rows win, and what was added since is shown beside them."""

import pytest

from fedleak import paths
from fedleak.experiments import NOW, RECORDED, Chapter, grid
from fedleak.intervals import MEAN

FOUND = {"LLG": 0.5, "RLU": 0.75}


def declare(names, monkeypatch, tmp_path, profile="quick", defences=("none",), newcomers=("attack", "defence")):
    """A small contest; returns the experiment and the list of the settings that ran."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path / "units"))
    ran = []

    def contest(seed, size, defence):
        ran.append((size, defence))
        return [{"attack": name, "iacc": FOUND.get(name, 1.0) - 0.25 * (profile == "quick")} for name in names]

    chapter = Chapter("tiny", profile, "cpu", 0, 0, "", False)
    settings = {p: grid(size=s, defence=list(defences)) for p, s in (("quick", 8), ("paper", 32))}
    declared = chapter.experiment(
        "contest", **settings, trials=3, by="attack", values={"iacc": MEAN}, newcomers=newcomers
    )
    return declared(contest), ran


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """The contest of two attacks, recorded."""
    declare(["LLG", "RLU"], monkeypatch, tmp_path, "paper")[0].record()


def shown(table):
    return table[["size", "defence", "attack", "iacc", "source"]].to_numpy().tolist()


def test_an_attack_that_the_record_lacks_is_shown_from_this_run(recorded, monkeypatch, tmp_path):
    experiment, _ = declare(["LLG", "RLU", "mine"], monkeypatch, tmp_path)
    then = [[32, "none", "LLG", 0.5, RECORDED], [32, "none", "RLU", 0.75, RECORDED]]
    assert shown(experiment.best) == [*then, [8, "none", "mine", 0.75, NOW]]
    assert shown(experiment.best_rows.drop_duplicates(["attack", "source"])) == shown(experiment.best)
    assert len(experiment.best_rows) == 9


def test_a_defence_that_the_record_lacks_is_shown_with_every_attack(recorded, monkeypatch, tmp_path):
    experiment, _ = declare(["LLG", "RLU"], monkeypatch, tmp_path, defences=("none", "mine"))
    new = [[8, "mine", "LLG", 0.25, NOW], [8, "mine", "RLU", 0.5, NOW]]
    assert shown(experiment.best)[2:] == new
    assert (experiment.best["source"] == RECORDED).sum() == 2


def test_nothing_runs_where_no_newcomers_are_declared(recorded, monkeypatch, tmp_path):
    experiment, ran = declare(["LLG", "RLU", "mine"], monkeypatch, tmp_path, newcomers=())
    assert set(experiment.best["attack"]) == {"LLG", "RLU"}
    assert ran == []
