"""What an audit measures, with whose knowledge, and what is left of it under defences."""

import math

import pandas as pd
import pytest
import torch
from networks import Residual, mlp
from torch import nn

from fedleak.attacks.contest import Attempt
from fedleak.attacks.labels import learned
from fedleak.attacks.labels.guess import uniform_counts
from fedleak.attacks.registry import EAVESDROPPER, Adversary, Need, get
from fedleak.attacks.registry import all_attacks as registry_attacks
from fedleak.attacks.result import Result
from fedleak.audit import Setup, audit
from fedleak.audit.case import fresh, prepare
from fedleak.audit.loop import Loop, guess, score, taking_part
from fedleak.audit.run import Trials
from fedleak.federated.defences import ClippedNoise, PureNoise, Sparsification
from fedleak.federated.restricted import FedVF, Withhold
from fedleak.metrics import counts, instance_accuracy
from fedleak.models import build, head


def trials_of(setup):
    loop = Loop(setup.attacker, setup.seed, setup.trials, (), repeats=False, progress=False)
    return Trials(prepare(setup), loop, fast=False)


BRIEF = {"iterations": 3, "batches": 4}
"""Training of the learned attacker, as all audits of this folder have it."""


def quick(**changes):
    usual = {"model": Residual(), "shape": (20,), "batch_size": 8, "trials": 3, "auxiliary": 10, "remedy_trials": 0}
    return Setup(**{**usual, **changes})


def test_the_numbers_are_those_of_the_attack_itself():
    setup = quick()
    report = audit(setup)
    case = prepare(setup)
    done = case.trial(1)
    (update,) = done.updates
    recovered = get("iLRG").prepare(case.attacked.model, adversary="white-box model").recover(update).counts
    row = report.rows.query("attack == 'iLRG' and trial == 1 and scenario == 'as it is'").iloc[0]
    assert row["iacc"] == instance_accuracy(recovered, done.truth[0]).item()
    nothing = {"iacc": 0.0, "cacc": (done.truth == 0).double().mean().item(), "exact": 0.0}
    assert score(torch.zeros_like(done.truth), done.truth) == nothing, "what names nothing has found nothing"
    assert done.truth.equal(counts(done.y.flatten(1), 4))
    assert update.samples == 8


def test_the_same_seed_gives_the_same_rows_and_another_seed_others():
    setup = quick(defences=[PureNoise(0.05, 0)])
    setups = setup, setup, quick(defences=setup.defences, seed=1)
    rows = [audit(s, fast=True).rows.drop(columns="seconds") for s in setups]
    pd.testing.assert_frame_equal(rows[0], rows[1])
    assert not rows[0].equals(rows[2])


@pytest.mark.parametrize("seed", [0, 1])
def test_the_random_guess_knows_nothing_of_the_labels(seed):
    """Its mean is that of guesses drawn elsewhere: labels and guess are not drawn from the same stream."""
    trials = trials_of(quick(composition="balanced", seed=seed))
    observations = [trials.observe(number) for number in range(200)]
    rows = [observation.row("as it is", blind) for observation in observations for blind in guess(observation)]
    generator = torch.Generator().manual_seed(5)
    first, second = (uniform_counts(8, 4, 4000, generator) for _ in range(2))
    random = pd.DataFrame(rows).query("attack == 'random guess'")
    assert random["iacc"].mean() == pytest.approx(instance_accuracy(first, second).mean().item(), abs=0.04)
    assert random["exact"].mean() < 0.1


def test_the_prior_only_guess_follows_the_data(coloured):
    x, y = coloured
    y = torch.where(torch.rand(len(y), generator=torch.Generator().manual_seed(0)) < 0.9, 0, y)
    options = {"composition": "data", "batch_size": 16, "trials": 10, "adversary": "no access"}
    report = audit(Setup(model=mlp(), data=(x, y), **options))
    guesses = report.table.set_index("attack")["iacc"]
    assert guesses["prior guess"] > 0.8 > guesses["random guess"]


def test_adversaries_use_only_their_knowledge_and_the_weakest_is_named():
    named = audit(quick(), fast=True).adversaries
    assert named["LLG"] == EAVESDROPPER.name
    assert (named["iLRG"], named["RLU"]) == ("white-box model", "auxiliary knowledge")
    report = audit(quick(adversary="shared gradients"))
    assert set(report.ranking()) <= {"LLG", "GI", "iDLG"}
    assert "the model's architecture and weights" in dict(report.untried)["iLRG"]
    nobody = Adversary("a logger of sizes", frozenset({Need.SAMPLE_COUNT}))
    assert audit(quick(adversary=nobody)).ranking() == []


def test_what_is_withheld_leaves_out_what_needs_it():
    setup = Setup(model=mlp(), shape=(3, 8, 8), batch_size=8, trials=3, defences=[Withhold(["3.weight", "3.bias"])])
    report = audit(setup, fast=True)
    assert report.ranking() == ["GDBR"]
    assert report.facts["withheld"] == ["3.weight", "3.bias"]
    assert "gradient of the last layer's weights" in dict(report.untried)["LLG"]
    assert "last layer not shared" not in report.scenarios
    report = audit(quick(defences=[Withhold(["a.weight"])]), fast=True)
    assert "gradients of all layers" in dict(report.untried)["RLU"]
    assert "gradients of all layers" in dict(report.untried)["InvG"]
    assert "no inversion applies" in report.headline()[0]
    assert "iLRG" in report.ranking()


def test_remedies_are_measured_on_the_same_updates():
    report = audit(Setup(model=mlp(), shape=(3, 8, 8), batch_size=16, trials=3), fast=True)
    remedies = report.remedies.set_index("remedy")
    assert remedies.index[0] == "as it is"
    assert {"last layer not shared", "largest 1 % of each tensor sent"} < set(remedies.index)
    assert remedies.loc["last layer not shared", "attack"] == "GDBR"
    assert remedies.loc["as it is", "iacc"] == report.table["iacc"].max()
    strong, weak = (next(name for name in remedies.index if f"({k} ×" in name) for k in (10, 1))
    assert remedies.loc[strong, "iacc"] < remedies.loc[weak, "iacc"]
    assert (remedies["n"] == 3).all()
    assert "last layer not shared" not in audit(quick(model=nn.Linear(20, 4), remedy_trials=1), fast=True).scenarios, (
        "nothing is below the head"
    )


def test_proven_labels_are_counted_and_said():
    model = build("fcn3", (1, 6, 6), 4, seed=0)
    report = audit(quick(model=model, shape=(1, 6, 6), trials=2, remedy_trials=1), fast=True)
    as_it_is = report.rows.query("scenario == 'as it is'")
    proven = as_it_is.query("attack == 'peeling'")["proven"]
    assert proven.tolist() == [8, 8]
    assert "On average, 8 of these 8 labels are proven (peeling)." in report.headline()[0]
    assert report.rows.query("attack == 'RLU'")["proven"].isna().all()


@pytest.mark.parametrize(("name", "more"), [("sgdm", {"momentum": 0.5}), ("feddc", {"regularisation": 0.1})])
def test_an_algorithm_is_audited(name, more):
    report = audit(quick(algorithm=name, steps=3, lr=0.05, **more), fast=True)
    rlu = report.table.set_index("attack").loc["RLU"]
    assert rlu["applies"]
    assert rlu["iacc"] > rlu["guess"]
    assert report.facts["samples"] == 24


def test_a_head_is_split_where_there_are_twice_as_many_classes_as_samples():
    options = {"model": build("fcn3", (1, 6, 6), 20, seed=0).double(), "shape": (1, 6, 6), "trials": 1}
    report = audit(quick(**options, batch_size=4), fast=True)
    assert report.rows.query("attack == 'head splitting'")["proven"].tolist() == [4]
    case = prepare(quick(**options, batch_size=16))
    assert "head splitting" not in [attack.name for attack in taking_part(case.attacked, case, 16)]


def test_the_learned_attacker_is_trained_once_and_says_how_sure_it_is(monkeypatch):
    trained, train = [], learned.train
    monkeypatch.setattr(learned, "train", lambda *args, **how: trained.append(how) or train(*args, **how))
    setup = quick()
    report = audit(setup)
    assert [how["iterations"] for how in trained] == [BRIEF["iterations"]]
    case = prepare(setup)
    done = case.trial(1)
    result = learned.prepare(case.attacked.model, case.aux, **BRIEF).recover(done.updates[0])
    row = report.rows.query("attack == 'learned' and trial == 1 and scenario == 'as it is'").iloc[0]
    assert row["iacc"] == instance_accuracy(result.counts, done.truth[0]).item()
    assert row["held"] == ((result.low <= done.truth[0]) & (done.truth[0] <= result.high)).double().mean().item()
    assert row["width"] == pytest.approx((result.high - result.low).mean().item())
    assert f"are {report.sure().loc['learned', 'width']:.1f} samples wide on average" in report.to_markdown()
    assert "learned" in audit(quick(algorithm="fedavg", steps=2, lr=0.05)).ranking()


def test_a_fast_audit_trains_nothing_and_says_so(monkeypatch):
    monkeypatch.setattr(learned, "train", lambda *args, **how: pytest.fail("an attacker was trained"))
    report = audit(quick(), fast=True)
    trained = {attack.name for attack in registry_attacks() if attack.trained}
    assert trained.isdisjoint(report.ranking())
    assert all("fast audit leaves out" in dict(report.untried)[name] for name in trained)
    assert {"LLG", "RLU"} <= set(report.ranking())


def test_an_attacker_that_is_trained_simulates_the_set_ups_defences():
    setup = quick(defences=[Sparsification(0.5), PureNoise(1.0, seed=3)])
    case = prepare(setup)
    name, make = head(case.model).weight, case.knowledge["defence"]
    plain = {name: torch.zeros(500, 4, 8), "other": torch.zeros(500, 3)}
    sent = make(500, 1)(plain, torch.arange(500))[name]
    assert sent.std() == pytest.approx(1, abs=0.02)
    assert (sent[0] != sent[1]).all()
    assert not make(500, 2)(plain, torch.arange(500))[name].equal(sent)
    assert "trained on clients with the set-up's defences" in audit(setup).to_markdown()


def test_what_cannot_be_simulated_on_the_head_is_not():
    def drawn(updates, clients):
        return {name: t + torch.randn_like(t) for name, t in updates.items()}

    def simulated(**options):
        return prepare(quick(**options)).knowledge["defence"] is not None

    noise, whole = PureNoise(0.1, seed=0), ClippedNoise(1.0, 0.5, 3, whole=True)
    assert all(simulated(defences=[defence]) for defence in (noise, ClippedNoise(1.0, 0.5, 3), drawn))
    assert not simulated(defences=[whole]), "the other layers' norms count"
    assert not simulated()
    assert not simulated(defences=[noise], algorithm="fedavg", steps=2)
    assert not simulated(defences=[noise], clients=3)
    assert not any(simulated(defences=[Withhold([name])]) for name in ("c.weight", "a.weight"))


def test_secure_aggregation_leaves_the_cheating_server():
    setup = Setup(model=mlp(), shape=(3, 8, 8), batch_size=8, trials=3, clients=4, remedy_trials=1)
    report = audit(setup)
    assert report.ranking() == ["LIA-SA"]
    assert report.table.iloc[0]["exact"] == 1
    assert "one client's own update" in dict(report.untried)["LLG"]
    assert "manipulated models" in report.headline()[1]
    assert audit(Setup(model=mlp(), shape=(3, 8, 8), clients=4, trials=2, adversary="white-box model")).ranking() == []
    report = audit(quick(model=nn.Linear(20, 4), clients=3))
    assert report.ranking() == []
    assert "LIA-SA" in dict(report.untried), "it cannot be fished"


def test_every_trial_draws_its_own_noise_and_starts_without_memory():
    for defence in (ClippedNoise(1.0, 0.5, 3), FedVF(["a"], every=2)):
        assert type(fresh(defence, 1)) is type(defence)
        assert fresh(defence, 1) is not defence
    sparsification = Sparsification(0.5)
    noisy, sparse = (prepare(quick(defences=[defence])) for defence in (PureNoise(0.5, 0), sparsification))
    trials = [noisy.trial(number) for number in (0, 1, 0)]
    noise = [noisy.observe(t).tensors["c.bias"] - t.updates[0].tensors["c.bias"] for t in trials]
    assert not torch.allclose(noise[0], noise[1], atol=0.01)
    assert noise[0].equal(noise[2])
    sparse.observe(trials[0])
    assert sparsification.residual == {}


def test_counts_of_several_epochs_are_scored_as_those_of_one():
    observation = trials_of(quick(algorithm="fedavg", lr=0.05, steps=2, epochs=3)).observe(0)
    counts = 3.0 * observation.truth[0]
    row = observation.row("as it is", Attempt(get("LLG"), Result(counts, low=counts, high=counts), 0.0, ""))
    assert (row["exact"], row["held"], row["width"]) == (1, 1, 0)


def test_one_image_inversion_if_it_is_asked_for():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    options = {"model": model, "shape": (3, 12, 12), "batch_size": 1, "trials": 1, "remedy_trials": 0}
    inversion = audit(Setup(**options, images=3), fast=True).images
    assert (inversion.attack, inversion.why, inversion.iterations) == ("InvG", "", 3)
    assert all(math.isfinite(value) for value in (inversion.psnr, inversion.guess))
    several = {"images": 1, "algorithm": "fedavg", "steps": 2, "lr": 0.01}
    assert audit(Setup(**options, **several), fast=True).images.attack == "AGIC"
    withheld = audit(Setup(**options, images=2, defences=[Withhold(["0.weight"])]), fast=True).images
    assert "gradients of all layers" in withheld.why
    assert "at least 11 x 11" in audit(quick(images=1), fast=True).images.why
