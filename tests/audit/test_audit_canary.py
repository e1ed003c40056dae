"""A canary's bound holds as often as it says, is above what is wrong, and stands in the report beside the claim."""

import json
import math

import numpy as np
import pytest
import torch
from networks import mlp
from runs import network, train

from fedleak.audit import Setup, audit, audit_run, canary, guard
from fedleak.audit.canary import lower_bound
from fedleak.federated.defences import ClippedNoise, PureNoise
from fedleak.federated.restricted import Withhold
from fedleak.privacy.claim import DPSGD, Privacy, gaussian_epsilon
from fedleak.recording import read, write

DELTA = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore")


def bounds(distance, n=400, runs=300, delta=DELTA):
    random = np.random.default_rng(0)
    return [
        lower_bound(random.normal(size=n), random.normal(distance, size=n), delta=delta, confidence=0.95)
        for _ in range(runs)
    ]


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_of_a_known_mechanism_the_bounds_hold_at_their_confidence(mu):
    true, measured = gaussian_epsilon(mu, DELTA), bounds(mu)
    assert sum(bound.epsilon > true for bound in measured) <= 0.05 * len(measured)
    assert sum(bound.gaussian > true for bound in measured) <= 0.05 * len(measured) + 3 * math.sqrt(
        0.05 * 0.95 * len(measured)
    )
    assert {bound.n for bound in measured} == {200}


def test_the_bound_for_normal_noise_comes_near():
    (bound,) = bounds(1.0, n=40_000, runs=1)
    assert 0.93 < bound.gaussian / gaussian_epsilon(1.0, DELTA) < 1
    assert 0.4 < bound.epsilon / gaussian_epsilon(1.0, DELTA) < 1


def test_a_wrong_claim_is_exceeded_and_where_there_is_no_difference_none_is():
    claimed = gaussian_epsilon(0.5, DELTA)
    assert all(bound.gaussian > claimed for bound in bounds(2.5, runs=30))
    assert all(bound.epsilon > claimed for bound in bounds(6.0, runs=30))
    assert sum(bound.epsilon > 0 for bound in bounds(0.0, runs=100)) <= 5, "no difference shows nothing"
    assert lower_bound([1.0] * 20, [1.0] * 20, delta=DELTA)[:2] == (0.0, 0.0)


def test_randomised_response_is_bounded_by_its_own_epsilon():
    random = np.random.default_rng(0)
    pairs = [(random.random(20_000) < 0.25, random.random(20_000) < 0.75) for _ in range(20)]
    epsilons = [lower_bound(*pair, delta=0.0).epsilon for pair in pairs]
    assert 0.9 * math.log(3) < np.mean(epsilons) < math.log(3)


def test_what_differs_always_shows_all_that_so_many_releases_can():
    bound = lower_bound([0.0] * 400, [1.0] * 400, delta=DELTA)
    assert bound.epsilon == pytest.approx(math.log((1 - 0.01828) / 0.01828), abs=0.01), "Clopper-Pearson of 0 of 200"


@pytest.fixture
def of():
    """Audit a set-up briefly, and return its one finding on privacy."""

    def audited(**changes):
        torch.manual_seed(0)
        setup = Setup(model=mlp(), shape=(3, 8, 8), batch_size=16, trials=1, adversary="no access", **changes)
        return audit(setup)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "MOST", 800)
        yield audited


def test_the_report_has_the_claim_and_the_bound(of):
    report = of(dp_sgd=DPSGD(noise_multiplier=1.0, max_grad_norm=0.5))
    (row,) = report.privacy
    assert row.privacy.claimed == pytest.approx(gaussian_epsilon(1.0, DELTA))
    assert 0.5 * row.privacy.claimed < row.gaussian <= row.privacy.claimed
    assert not row.wrong()
    text = report.to_markdown()
    assert "## Differential privacy\n" in text
    assert f"ε = {row.privacy.claimed:.3g} at δ = 1e-05 by Opacus for each client and round (one sample added" in text
    assert f"a canary shows at least {row.epsilon:.3g}, and {row.gaussian:.3g} as the noise is normal" in text
    assert r"DPSGD(noise\_multiplier=1.0" in text
    assert json.loads(report.to_json())["privacy"] == [{"claim": row.text(), "wrong": []}]
    assert "privacy" not in report.headline()[0]


def test_a_clients_noise_counts_with_what_clipping_leaves(of):
    noisy = {"each tensor": 2 * 0.2 * math.sqrt(4), "the whole": 2 * 0.2, "three of them": 2 * 0.2 * math.sqrt(3)}
    for name, distance in noisy.items():
        clipped = ClippedNoise(0.2, 0.5, 0, whole=name == "the whole")
        (row,) = of(defences=[clipped, Withhold(["1.bias"] * (name == "three of them"))]).privacy
        assert row.privacy.claimed == pytest.approx(gaussian_epsilon(distance / 0.5, DELTA))
        assert 0 < row.gaussian <= row.privacy.claimed


NOISY = {"dp_sgd": DPSGD(noise_multiplier=0.7, max_grad_norm=0.5, sample_rate=0.05, poisson_sampling=False)}


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ({"claimed": (1.0, DELTA)}, "added after aggregation"),
        ({"claimed": (1.0, DELTA), "defences": [PureNoise(0.01, 0)]}, "nothing bounds the norm"),
        ({"claimed": (1.0, DELTA), "defences": [ClippedNoise(0.2, 0.1, 0)]}, "noise is too small"),
        (NOISY, "not drawn by Poisson sampling"),
    ],
)
def test_a_wrong_claim_is_named_and_its_canary_is_above_it(of, setup, message):
    report = of(**setup)
    (row,) = report.privacy
    assert [message in row.wrong()[0], "a canary shows that ε is at least" in row.wrong()[1]] == [True, True]
    assert report.headline()[0].startswith("The claim of differential privacy is wrong or empty: ")
    assert report.to_markdown().count("**Wrong or empty**") == 2
    (verdict,) = [v for v in guard.verdicts(report, guard.Limits(1.0)) if v.case == "differential privacy"]
    assert verdict.status == "leak"


def test_secret_sampling_makes_the_canary_rare(of):
    always = {"noise_multiplier": 0.3, "max_grad_norm": 0.5}
    rows = [of(dp_sgd=DPSGD(**always, sample_rate=rate)).privacy[0] for rate in (1.0, 0.1)]
    assert rows[0].epsilon > 2 * rows[1].epsilon
    assert rows[1].gaussian is None, "a mixture is not normal"
    assert not rows[1].wrong()


def test_ones_own_mechanism_draws_anew_for_each_release(of):
    class Own:
        """Noise from a generator of its own, which is copied with it."""

        def __init__(self):
            self.generator = torch.Generator().manual_seed(0)

        def __call__(self, updates, clients):
            return {k: t + 0.3 * torch.randn(t.shape, generator=self.generator) for k, t in updates.items()}

    (row,) = of(defences=[Own()], claimed=(1.0, DELTA)).privacy
    assert row.gaussian is None, "what it is nobody told"
    assert 1.0 < row.epsilon < math.log(400)
    assert row.wrong() == [f"a canary shows that ε is at least {row.epsilon:.3g}, more than is claimed"]


def test_a_recorded_run_says_what_is_claimed_of_how_many_updates(tmp_path):
    for node in "ab":
        train(tmp_path, 1, node, (6, 6), seed=ord(node))
    runs, privacy = read(tmp_path), Privacy(neighbours="client", history=((0.5, 1.0, 1),), stated=1.0, by="LocalDpMod")
    for record in runs:
        write(tmp_path, type(record)(**{**vars(record), "privacy": privacy}), *record.states())
    report = audit_run(tmp_path, Setup(model=network, shape=(1, 6, 6), remedy_trials=0))
    (row,) = report.privacy
    assert row.text().startswith("ε = 1 at δ = 1e-05 by LocalDpMod for each client and round")
    assert "of 2 updates; a run has one release" in row.text()
    assert "noise is too small" in row.wrong()[0]


def test_noise_counts_with_the_clipping_before_it():
    of = lambda *defences: Setup(model=mlp(), batch_size=8, defences=[*defences], claimed=(1.0, 1e-5)).claim(4)
    clip, noise = ClippedNoise(1.0, 3.0, 0, whole=True), PureNoise(4.0, 1)
    assert of(clip, noise).epsilon == pytest.approx(of(ClippedNoise(1.0, 5.0, 0, whole=True)).epsilon)
    assert of(noise, clip).epsilon == pytest.approx(of(clip).epsilon), "it is clipped too"
    assert of(lambda updates, clients: updates, noise).wrong() == [], "an unknown defence may bound the norm"
    assert "nothing bounds the norm" in of(noise).wrong()[0]
