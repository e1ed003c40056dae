"""An audit of a recorded run says what direct calls of the attacks say, and guards a deployment."""

from collections import OrderedDict
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
from runs import CLASSES, LR, SHAPE, data, network, train, unlabelled
from torch import nn

from fedleak.attacks.labels import ilrg, llg, rlu
from fedleak.attacks.registry import EAVESDROPPER
from fedleak.audit import Setup, audit_run, guard
from fedleak.audit.case import prepare
from fedleak.audit.recorded import Rounds
from fedleak.federated import Scheme
from fedleak.intervals import interval
from fedleak.metrics import instance_accuracy
from fedleak.recording import read, write


@pytest.fixture(scope="module")
def report(run):
    return audit_run(run, Setup(model=network, shape=SHAPE, data=data(99), remedy_trials=1))


@pytest.mark.parametrize(("name", "recover"), [("LLG", llg.recover), ("iLRG", ilrg.recover)])
def test_the_report_says_what_direct_calls_say(run, report, name, recover):
    rows = report.rows.query("scenario == 'as it is' and attack == @name").set_index(["round", "node"])
    assert len(rows) == 9
    for record in read(run):
        model = network()
        model.load_state_dict(record.states()[0])
        counts = recover(record.update(), model.eval())
        truth = record.truth(CLASSES)
        row = rows.loc[(record.round, record.node)]
        assert row["iacc"] == pytest.approx(instance_accuracy(counts[None], truth[None]).item())
        assert row["exact"] == float(counts.equal(truth))


def test_intervals_are_over_the_clients(report):
    """Three updates of one client are not three clients."""
    rows = report.rows.query("scenario == 'as it is' and attack == 'LLG'")
    row = report.table.set_index("attack").loc["LLG"]
    over_clients = interval(rows.groupby("node", sort=False)["iacc"].mean().to_numpy())
    assert (row["iacc_low"], row["iacc_high"]) == over_clients != interval(rows["iacc"].to_numpy())
    assert "95 % intervals over the clients" in report.to_markdown()


def test_the_report_goes_with_the_rounds_and_says_what_it_cannot_see(report):
    table = report.cases()
    assert list(table["case"]) == ["round 1", "round 2", "round 3"]
    assert (table["n"] == 3).all()
    best = report.rows[report.rows["scenario"] == "as it is"].groupby(["round", "attack"])["iacc"].mean()
    guesses = best.index.get_level_values(1).isin(report.guesses)
    assert list(table["iacc"]) == list(best[~guesses].groupby("round").max())
    text = report.to_markdown()
    assert "9 updates of 3 clients in 3 rounds (1 to 3)" in text
    assert "on 9 to 11 samples" in text
    for section in ("Round by round", "Leakage with each remedy", "Limits of this audit", "unrecorded data"):
        assert section in text
    assert "do not divide into 3 equal local batches" in text, "what needs equal batches says so"
    assert (report.remedies["n"] > 0).any()


@pytest.mark.parametrize("wrapped", [lambda model: model, lambda model: nn.Sequential(OrderedDict(net=model))])
@pytest.mark.parametrize("training", [True, False])
def test_attackers_run_the_model_in_the_clients_mode(tmp_path, training, wrapped):
    """Whatever mode the set-up's model is in: else what they recover is of no round that took place."""

    def normalised(training=training):
        layers = nn.Flatten(), nn.Linear(36, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)
        return nn.Sequential(*layers).train(training)

    train(tmp_path, 1, "a", [12], 0, make=lambda: wrapped(normalised()))
    case = prepare(Setup(model=partial(normalised, not training), shape=SHAPE))
    (observed,) = Rounds(read(tmp_path), case).observe()
    assert observed.classifier.model[2].training == training
    (entry,) = read(tmp_path)
    write(tmp_path, replace(entry, by_batch=["other.weight"]), *entry.states())
    with pytest.raises(ValueError, match=r"client-a.json: by_batch names 'other.weight'"):
        next(Rounds(read(tmp_path), case).observe())


def test_without_a_model_only_what_needs_none_is_run(run):
    report = audit_run(run)
    ran = set(report.rows["attack"])
    assert "LLG" in ran
    assert not ran & {"LLG*", "LLG+", "iLRG"}
    assert set(report.adversaries.values()) == {EAVESDROPPER.name}
    assert dict(report.untried)["iLRG"].endswith("lacks: the model's architecture and weights")
    assert dict(report.untried)["learned"].startswith("it is trained anew for every model and batch size")


def test_without_a_model_low_numbers_are_no_all_clear(tmp_path):
    for seed, node in enumerate("abcdef"):
        train(tmp_path, 1, node, [30, 30], seed)
    what, whom, helps = audit_run(tmp_path).headline()
    assert what.startswith("No label attack reliably exceeds the baseline")
    assert "The server has it, and was not tested: pass --setup" in whom
    assert helps == "Not measured without the model: pass --setup."


def test_an_attack_that_reads_an_update_with_a_remedy_alone_is_no_baseline(tmp_path):
    for seed, node in enumerate("ab"):
        train(tmp_path, 1, node, [9], seed)
    first = read(tmp_path)[0]
    write(tmp_path, first, *[first.read_before()] * 2)  # nothing can be read from it
    report = audit_run(tmp_path, Setup(model=network, shape=SHAPE, remedy_trials=2))
    assert report.guesses == ["random guess"]
    assert "RLG" in set(report.rows["attack"]) - set(report.as_it_is["attack"])
    assert "RLG**: the update is zero in every tensor" in report.to_markdown()


def test_an_attack_that_fails_now_and_then_says_how_often(tmp_path):
    for seed, size in enumerate((1, 9, 9)):
        train(tmp_path, 1, "abc"[seed], [size], seed)
    assert audit_run(tmp_path).remarks["iDLG"].startswith("failed in 2 of its trials: ")


def test_what_a_wrapper_puts_before_the_names_is_taken_off(run, report, tmp_path):
    """DataParallel's prefix: where it does not make all names fit, the error says so."""
    for record in read(run):
        write(tmp_path, record, *({f"module.{name}": t for name, t in state.items()} for state in record.states()))
    setup = Setup(model=network, shape=SHAPE, data=data(99), remedy_trials=1)
    pd.testing.assert_frame_equal(
        *(result.rows.drop(columns="seconds") for result in (audit_run(tmp_path, setup), report))
    )
    other = Setup(model=nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES)), shape=SHAPE)
    refused = r"client-a.json: its state is not of the set-up's model: .*Unexpected key.* begin with 'module.'"
    with pytest.raises(ValueError, match=refused):
        audit_run(tmp_path, other)
    write(tmp_path, replace(read(run)[0], node="d"), *read(run)[0].states())
    with pytest.raises(ValueError, match=r"is of another model: .* begin with 'module.'"):
        read(tmp_path)


@pytest.mark.parametrize("layer", [1, 3])
def test_what_moved_is_attacked_though_the_set_ups_model_freezes_it(layer, run, report):
    model = network()
    model[layer].requires_grad_(False)
    frozen = audit_run(run, Setup(model=model, shape=SHAPE, data=data(99), remedy_trials=0))
    rows = report.rows.query("scenario == 'as it is'").reset_index(drop=True)
    pd.testing.assert_frame_equal(
        frozen.rows.drop(columns="seconds").reset_index(drop=True), rows.drop(columns="seconds")
    )


def test_attacks_that_know_the_scheme_are_told_of_momentum(tmp_path):
    train(tmp_path, 1, "a", [30, 30, 30], 3, momentum=0.9)
    (record,) = read(tmp_path)
    assert record.plain_lr == pytest.approx(LR * (1 + 1.9 + 2.71) / 3)
    setup = Setup(model=network, shape=SHAPE, data=data(99), remedy_trials=1)
    report = audit_run(tmp_path, setup)
    assert "sgd (rate 0.1, momentum 0.9)" in report.to_markdown()
    row = report.rows.query("scenario == 'as it is' and attack == 'RLU'")
    update = replace(record.update(), lr=LR)
    counts = rlu.recover(update, network(), prepare(setup).aux, scheme=Scheme("sgdm", LR, 3, 0.9))
    assert row["iacc"].item() == pytest.approx(instance_accuracy(counts[None], record.truth(CLASSES)[None]).item())


def test_without_labels_nothing_is_scored_and_nothing_kept(run, tmp_path):
    setup = Setup(model=network, shape=SHAPE, data=data(99), remedy_trials=0)
    none = audit_run(unlabelled(run, tmp_path / "none"), setup)
    assert "nothing is scored" in none.headline()[0]
    assert not none.measured
    mixed = audit_run(unlabelled(run, tmp_path / "some", keep=(1,)), setup)
    for report, statuses in ((none, ["not measurable"] * 3), (mixed, ["kept", "not measurable", "not measurable"])):
        assert list(report.cases()["case"]) == ["round 1", "round 2", "round 3"]
        assert [verdict.status for verdict in guard.verdicts(report, guard.Limits(1.0))] == statuses
