"""The guard fails closed: what its exit codes, limits and files say of what leaks, is kept, or is not measurable."""

import json
import math
import os
from dataclasses import replace
from xml.etree import ElementTree

import pandas as pd
import pytest
from runs import SHAPE, network, unlabelled
from torch import nn

from fedleak.audit import Report, Setup, audit, audit_run, guard
from fedleak.audit.guard import Limits
from fedleak.audit.tables import WordsResult
from fedleak.federated.restricted import Withhold
from fedleak.privacy.claim import Privacy
from fedleak.recording import read, write
from fedleak.recording.contribution import UNMEASURED
from fedleak.recording.gaps import note_gap

SETUP = Setup(model=network, shape=SHAPE, remedy_trials=0)


@pytest.fixture(scope="module")
def setup_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "mine.py"
    text = "from torch import nn\nfrom fedleak.audit import Setup\n"
    text += "setup = Setup(model=nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 4)),"
    path.write_text(text + " shape=(1, 6, 6), trials=3, batch_size=8, remedy_trials=1)\n")
    return path


def findings(shares, guess=0.4, fits=True, **more):
    """Findings of one round: attack to what it got right of each update, None where it could not read it."""
    guesses = {"random guess": [guess] * max(map(len, shares.values()), default=2)}
    rows = [
        {"attack": attack, "trial": trial, "iacc": value, "node": "abcde"[trial]}
        for attack, values in {**shares, **guesses}.items()
        for trial, value in enumerate(values)
        if value is not None
    ]
    table = pd.DataFrame(rows).assign(scenario="as it is", round=1, exact=0.0, cacc=0.0, seconds=0.1, fits=fits)
    return Report({"name": "x"}, table, ("as it is",), (), dict.fromkeys(shares, "shared gradients"), (), {}, **more)


@pytest.mark.parametrize("limit", [60, -0.1, math.nan])
def test_a_limit_is_a_share(limit):
    with pytest.raises(ValueError, match="a limit is a share of the labels"):
        Limits(mean=limit)


def judge(report, **limits):
    verdicts = guard.verdicts(report, Limits(**limits))
    return [(verdict.case, verdict.status) for verdict in verdicts], guard.exit_code(verdicts)


@pytest.mark.parametrize(
    ("shares", "limits", "status", "code"),
    [
        ({"LLG": [0.5, 0.7]}, {"mean": 0.6}, "kept", 0),
        ({"LLG": [0.5, 0.72]}, {"mean": 0.6}, "leak", 1),
        ({"LLG": [0.5, 0.7]}, {"over_guess": 0.25}, "kept", 0),
        ({"LLG": [0.5, 0.7]}, {"over_guess": 0.15}, "leak", 1),
        ({}, {"mean": 1.0}, "not measurable", 3),
        ({"LLG": [0.5, None]}, {"mean": 0.6}, "not measurable", 3),
        ({"LLG": [0.9, None]}, {"mean": 0.6}, "leak", 1),
        ({"iDLG": [1.0, 1.0, None, None, None], "LLG": [0.5] * 5}, {"mean": 0.6}, "kept", 0),
        ({"iDLG": [1.0, 1.0, None, None, None]}, {"mean": 0.6}, "not measurable", 3),
        ({"iDLG": [1.0, 1.0, None, None, None]}, {"mean": 1.0}, "not measurable", 3),
    ],
)
def test_a_round_is_kept_leaks_or_is_not_measurable(shares, limits, status, code):
    """Attacks that read less than half of its updates do not decide; an update that none read leaves it open."""
    assert judge(findings(shares), **limits) == ([("round 1", status)], code)


def test_a_mean_may_hide_one_client_and_a_limit_for_each_does_not():
    report = findings({"LLG": [0.2, 0.3, 1.0]})
    assert judge(report, mean=0.6) == ([("round 1", "kept")], 0)
    statuses = [("round 1, node a", "kept"), ("round 1, node b", "kept"), ("round 1, node c", "leak")]
    assert judge(report, each=0.6) == ([("round 1", "kept"), *statuses], 1)


def test_the_margin_compares_with_the_guess_on_the_same_updates():
    """An attack may be best by its mean, and another further ahead of what a guess gets right where it read."""
    report = findings({"LLG": [0.9, 0.9], "GI": [None, 0.8]})
    report.rows.loc[report.rows["attack"] == "random guess", "iacc"] = [0.9, 0.3]
    (row,) = report.cases().to_dict("records")
    assert (row["attack"], row["ahead"]) == ("LLG", "GI")
    assert row["lead"] == pytest.approx(0.5)
    table = findings({"LLG": [0.7, 0.8, 0.9], "GI": [0.3, 0.35, 0.38]}).table.set_index("attack")
    assert table.loc[["LLG", "GI"], "leaks"].tolist() == [True, False]


@pytest.mark.parametrize("doubt", [{"fits": False}, {"broken": {"iLRG": "unforeseen TypeError: x"}}])
def test_what_is_in_doubt_can_leak_and_cannot_be_kept(doubt):
    assert judge(findings({"LLG": [0.3, 0.3]}, **doubt), mean=0.6) == ([("round 1", "not measurable")], 3)
    assert judge(findings({"LLG": [0.9, 0.9]}, **doubt), mean=0.6) == ([("round 1", "leak")], 1)


def test_words_are_judged_too():
    for right, status in ((9, "leak"), (1, "kept")):
        words = WordsResult("", named=10, right=right, of=10, updates=2)
        assert judge(findings({"LLG": [0.5, 0.5]}, words=words), mean=0.6)[0][1] == ("words", status)
    failed = findings({"LLG": [0.5, 0.5]}, words=WordsResult("all rows move"))
    assert judge(failed, mean=0.6) == ([("round 1", "kept")], 0)
    assert guard.exit_code([]) == 3, "nothing at all is not measurable"


def statuses(path):
    suite = ElementTree.parse(path).getroot()
    failures, errors = (len(suite.findall(f"*/{tag}")) for tag in ("failure", "error"))
    assert (suite.get("failures"), suite.get("errors")) == (str(failures), str(errors))
    return len(suite), failures, errors


def test_the_command_guards_a_deployment(invoke, run, setup_file, tmp_path):
    limit = audit_run(run, Setup(model=network, shape=SHAPE)).cases()["iacc"]
    junit, page = tmp_path / "audit.xml", tmp_path / "r.html"
    most = limit.max() - 1e-6
    result = invoke(run, "--setup", setup_file, "--fail-above", most, "--junit", junit, ends=1)
    assert "fedleak: leak: round" in result.stderr
    assert "## Round by round" in result.output, "the report comes all the same"
    assert "## Verdicts on the limits" in result.output
    assert statuses(junit) == (3, int((limit > most).sum()), 0)
    invoke(run, "--setup", setup_file, "--fail-above", 1, "--junit", junit, "--out", page)
    assert statuses(junit) == (3, 0, 0)
    invoke(run, "--setup", setup_file, "--fail-above-each", 0.5, "--junit", junit, "--out", page, ends=1)
    assert statuses(junit)[0] == 12
    assert "round 2, node b" in junit.read_text()
    assert "round 2, node b" in page.read_text()
    invoke(run, "--fail-above", 1.5, ends=2)  # a share of the labels, before anything runs


def test_an_error_is_in_the_junit_file_and_is_no_leak(invoke, run, tmp_path, monkeypatch):
    junit = tmp_path / "audit.xml"
    monkeypatch.setattr("fedleak.audit.audit_run", lambda *_, **__: 1 / 0)
    invoke(run, "--fail-above", 1, "--junit", junit, ends=2)  # Python's own 1, of what is unforeseen, would be a leak
    assert statuses(junit) == (1, 0, 1)
    assert "ZeroDivisionError" in junit.read_text()


def test_what_cannot_be_written_is_said_before_the_work(invoke, run, tmp_path, monkeypatch):
    monkeypatch.setattr("fedleak.audit.audit_run", lambda *_, **__: pytest.fail("it worked"))
    (tmp_path / "file").write_text("")
    for words in (["--out", tmp_path / "file" / "r.html"], ["--fail-above", 1, "--junit", tmp_path / "file" / "x.xml"]):
        assert "cannot write" in invoke(run, *words, ends=2).stderr
    assert os.listdir(tmp_path) == ["file"]


def test_json_holds_the_report_and_a_later_one_is_compared_with_it(invoke, setup_file, tmp_path):
    baseline, comparison = tmp_path / "one.json", tmp_path / "two.md"
    invoke(setup_file, "--fast", "--out", baseline, "--out", tmp_path / "one.html", "--fail-above", 1)
    report = json.loads(baseline.read_text())
    assert set(report["headline"]) == {"What leaks", "To whom", "What would reduce it"}
    assert [v["status"] for v in report["verdicts"]] == ["kept"]
    (case,) = report["cases"]
    assert 0 <= case["guess"] <= case["iacc"] <= 1
    invoke(setup_file, "--fast", "--seed", 5, "--baseline", baseline, "--out", comparison)
    text = comparison.read_text()
    assert "## Comparison with the report on Sequential" in text
    before = {row["attack"]: row["iacc"] for row in report["attacks"]}["LLG"]
    assert f"| LLG | {before:.2f} | " in text
    assert "is not a report of" in invoke(setup_file, "--baseline", setup_file, ends=2).stderr


def test_a_set_up_is_guarded_too(coloured):
    report = audit(
        Setup(model=nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), data=coloured, trials=3, batch_size=4), fast=True
    )
    assert judge(report, mean=1.0) == ([("all updates", "kept")], 0)
    assert judge(report, mean=0.0) == ([("all updates", "leak")], 1)
    assert [case for case, _ in judge(report, each=0.0)[0]] == ["all updates", "update 1", "update 2", "update 3"]


def test_a_set_up_that_no_attack_applies_to_ends_with_3(invoke, setup_file, tmp_path):
    blind = tmp_path / "blind.py"
    blind.write_text(setup_file.read_text().replace("trials=3", "trials=3, adversary='no access'"))
    for words in ([], ["--fail-above", 1]):
        invoke(blind, "--fast", *words, ends=3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "--trials", 3], "--trials needs a set-up"),
        (["{run}", "--fast"], "no attacker is trained"),
        (["{run}", "--seed", 3], "--seed needs --setup"),
        (["{mine}", "--gaps"], "--setup and --gaps need the folder of a recorded run"),
        (["{run}", "--junit", "{cut}/x.xml"], "--junit needs a limit: --fail-above"),
        (["{cut}"], "client-a.json: Invalid JSON"),
    ],
)
def test_mistakes_are_one_line(invoke, run, setup_file, tmp_path, words, message):
    (tmp_path / "round-0001").mkdir(parents=True)
    (tmp_path / "round-0001" / "client-a.json").write_text("{")
    result = invoke(*(str(word).format(run=run, mine=setup_file, cut=tmp_path) for word in words), ends=2)
    assert message in result.output.replace("\n", " ")
    assert "Traceback" not in result.output


def test_training_that_nobody_measured_can_be_assumed(invoke, run, setup_file, tmp_path):
    """A server's recorder sees states only; the same run, recorded on the clients, is measured."""
    for part in read(run):
        write(tmp_path / "server", replace(part, seen_by="server", failed=UNMEASURED), *part.states())
    words = (tmp_path / "server", "--setup", setup_file, "--fail-above", 1)
    assert "accept that with --assume training" in invoke(*words, ends=3).stderr
    invoke(*words, "--assume", "training")
    invoke(*words, "--assume", "all", ends=2)
    result = invoke(tmp_path / "server", "--fail-above", 1, "--assume", "training", ends=3)
    assert "pass --setup: the server has the model" in result.stderr, "assumed training does not replace it"


def test_without_the_servers_model_nothing_is_kept(invoke, run, tmp_path):
    junit = tmp_path / "audit.xml"
    result = invoke(run, "--fail-above", 1, "--junit", junit, ends=3)
    assert "pass --setup: the server has the model" in result.stderr
    assert "shared gradients" in junit.read_text(), "the adversary's name"
    invoke(run, "--fail-above", 0, ends=1)  # a leak is one all the same


@pytest.mark.parametrize(
    ("adversary", "withheld", "status"),
    [
        ("white-box model", [], "kept"),
        ("shared gradients", [], "not measurable"),
        ("white-box model, last layer withheld", [], "not measurable"),
        ("white-box model, last layer withheld", ["3.weight", "3.bias"], "kept"),
    ],
)
def test_less_than_a_server_has_keeps_nothing(run, adversary, withheld, status):
    defences = [Withhold(withheld)] if withheld else []
    setup = replace(SETUP, trials=3, batch_size=8, adversary=adversary, defences=defences)
    reports = [audit(setup, fast=True)] if withheld else [audit(setup, fast=True), audit_run(run, setup)]
    for report in reports:
        judged = guard.verdicts(report, Limits(mean=1.0))
        assert {verdict.status for verdict in judged} == {status}
        assert all(("lacks what the server has" in verdict.why) == (status != "kept") for verdict in judged)


def test_a_private_round_is_judged_by_its_epsilon(run, tmp_path):
    privacy = Privacy(neighbours="client", history=((1.0, 1.0, 1),))
    for part in read(run):
        write(tmp_path, replace(part, privacy=privacy, failed="Opacus"), *part.states())
    report = audit_run(tmp_path, SETUP)
    for limit, code in ((1e9, guard.KEPT), (1e-3, guard.LEAK)):
        assert judge(report, epsilon=limit)[1] == judge(report, mean=1.0, epsilon=limit)[1] == code
    assert judge(report, mean=1.0)[1] == guard.NOT_MEASURABLE
    assert guard.exit_code(guard.verdicts(report, Limits(mean=1.0), assume_training=True)) == guard.NOT_MEASURABLE
    assert judge(audit_run(run, SETUP), epsilon=8.0)[1] == guard.NOT_MEASURABLE


def test_a_round_in_which_a_contribution_left_a_note_alone_is_not_measurable(run, tmp_path):
    for part in read(run):
        write(tmp_path, part, *part.states())
    first = min(part.round for part in read(run))
    note_gap(tmp_path, first, "client", "another", "no labels were shown")
    report = audit_run(tmp_path, SETUP, gaps=True)
    for limits in (Limits(mean=1.0), Limits(each=1.0)):
        judged = guard.verdicts(report, limits)
        doubtful = [verdict for verdict in judged if verdict.status != "kept"]
        assert {verdict.case.partition(",")[0] for verdict in doubtful} == {f"round {first}"}
        assert all("no labels were shown" in verdict.why for verdict in doubtful)
        assert guard.exit_code(judged) == guard.NOT_MEASURABLE


@pytest.mark.parametrize("defences", [[], [Withhold(["3.weight", "3.bias"])]])
def test_updates_that_nobody_scores_are_not_measurable(defences, tmp_path):
    setup = replace(SETUP, algorithm="fedavg", lr=1e-30, trials=2, defences=defences)
    report = audit(setup, fast=True)
    assert not report.measured
    assert "Nothing is scored: 2 updates could not be scored: the update is zero" in report.to_markdown()
    assert judge(report, mean=1.0) == ([("all updates", "not measurable")], guard.NOT_MEASURABLE)
    assert len(guard.verdicts(report, Limits(each=1.0))) == 3


def test_a_round_in_which_nothing_moved_is_in_every_output(invoke, run, setup_file, tmp_path):
    for part in read(run):
        before, after = part.states()
        write(tmp_path / "run", part, before, before if part.round == 2 else after)
    junit = tmp_path / "audit.xml"
    words = (tmp_path / "run", "--setup", setup_file, "--fail-above", 1, "--junit", junit)
    result = invoke(*words, ends=guard.NOT_MEASURABLE)
    assert "fedleak: not measurable: round 2: 3 of 3 updates could not be scored: the update is zero" in result.stderr
    assert statuses(junit) == (3, 0, 1)


def test_a_client_whose_record_was_refused_is_named_with_the_reason(run, tmp_path):
    folder = unlabelled(run, tmp_path / "run")
    for part in read(folder):
        write(folder, replace(part, seen_by="server"), *part.states())
    (folder / "round-0001" / "client-a.json").unlink()
    note_gap(folder, 1, "client", "a", "no labels were shown")
    report = audit_run(folder, SETUP, gaps=True)
    assert "no labels were shown" in report.headline()[0]
