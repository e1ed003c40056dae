"""The files that CONTRIBUTING.md tells newcomers to start from: each does all that it promises."""

import re
import runpy
import shutil
import sys

import pytest
import threat_models
from fresh_modules import forget
from torch import nn

from fedleak.attacks import registry
from fedleak.attacks.contest import entrants
from fedleak.audit import Setup, audit
from fedleak.federated import defences
from fedleak_book import paths
from fedleak_book.commands import experiments as commands
from fedleak_book.evidence import scoreboard
from fedleak_book.evidence.results import Results

CHECKOUT = paths.root()
EXAMPLES = CHECKOUT / "tests" / "examples"


@pytest.fixture
def newcomers(monkeypatch):
    """Run the attack's and the defence's file, and return what they define; they are gone after the test."""
    registry.all_attacks(), defences.protections()
    for module, registered in ((registry, "_ATTACKS"), (defences, "_PROTECTIONS")):
        entries = getattr(module, registered).items()  # without copies that kept their names
        monkeypatch.setattr(module, registered, {k: v for k, v in entries if k not in ("smallest row", "signs")})
    return {name: runpy.run_path(str(EXAMPLES / f"{name}.py")) for name in ("attack", "defence")}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Put the paper's files where CONTRIBUTING.md says, in a checkout with nothing else."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for folder in ("notebooks", "data"):
        shutil.copytree(EXAMPLES / "paper" / folder, tmp_path / folder)
    (tmp_path / "fedleak").mkdir()
    forget()
    yield tmp_path
    forget()


def run(**parameters):
    """Return the results of the example's experiment, run with these parameters."""
    results = Results("example", device="cpu", **parameters)
    results.rows("table1")
    return results


def test_the_text_names_files_that_are_there():
    named = set(re.findall(r"`((?:tests|fedleak|book)/[\w./]+)`", (CHECKOUT / "CONTRIBUTING.md").read_text()))
    assert named
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


def test_attack_and_defence_take_part_everywhere(newcomers, monkeypatch):
    assert "smallest row" in {attack.name for attack in entrants()}
    monkeypatch.setattr("fedleak.audit.case.TRAINING", 2)
    report = audit(Setup(model=nn.Linear(20, 4), shape=(20,), batch_size=8, trials=3))
    assert 0.2 < report.table.set_index("attack").loc["smallest row", "iacc"] < 1
    assert "signs alone, ± 0.01" in set(report.remedies["remedy"])

    assert all("| **smallest row** |" in table for table in threat_models.tables().values())
    assert "| **signs** | 0.01 | 0.01 |" in threat_models.measured_defences()
    assert "smallest row" in " ".join(threat_models.first_possible().values())


def test_experiment_claim_and_paper_are_in_the_scoreboard(newcomers, checkout):
    results = run()
    assert "smallest row" in set(results.best("table1")["rule"])
    assert {row["verdict"] for row in results.values} == {"not attempted"}  # a quick run counts nothing
    run(profile="paper", record=True)
    commands.claims("example")
    assert paths.papers() == ["example"]
    rows = {row["id"]: row for row in scoreboard.rows("example")}
    assert set(rows) == {"ahead", "tab1-4-llg", "tab1-4-randomguess", "tab1-16-llg", "tab1-16-randomguess"}
    assert "not attempted" not in {row["verdict"] for row in rows.values()}
    assert rows["ahead"]["status"] == "✓ agrees (A)"
    assert rows["ahead"]["n"] == 12
    assert scoreboard.overview()["example"]["total"] == 5
