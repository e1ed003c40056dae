"""Several rounds of a client cost what one accountant says of all their mechanisms."""

import math

import pytest

from fedleak.privacy.claim import Privacy, gaussian_epsilon
from fedleak.privacy.spending import compose, spent
from fedleak.recording import Contribution

GAUSSIAN = ((1.0, 1.0, 1),)


def contribution(round, node, privacy):
    return Contribution(round=round, node=node, samples=8, steps=1, lr=0.1, privacy=privacy)


def test_gaussian_rounds_compose_exactly():
    local = Privacy(neighbours="client", history=GAUSSIAN)
    total = compose([local] * 4)
    assert total.claimed == total.epsilon == pytest.approx(gaussian_epsilon(2.0, 1e-5))
    assert total.epsilon < 4 * local.epsilon, "less than the sum"


def test_sampled_rounds_compose_as_opacus_accountant_does():
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(1.0, 0.1, 10), (2.0, 0.1, 20)]
    rounds = [Privacy(neighbours="sample", history=((z, 0.1, n),)) for z, n in ((1.0, 4), (2.0, 20), (1.0, 6))]
    assert compose(rounds).epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_stated_rounds_add_up():
    total = compose([Privacy(neighbours="client", stated=1.5, delta=1e-6)] * 3)
    assert (total.claimed, total.epsilon, total.delta) == pytest.approx((4.5, 4.5, 3e-6))


@pytest.mark.parametrize("wrong", [{"aggregated": True}, {"clipped": False}])
def test_noise_after_the_update_gives_no_finite_epsilon(wrong):
    assert compose([Privacy(neighbours="client added", history=GAUSSIAN, **wrong)] * 2).epsilon == math.inf


def test_only_the_rounds_of_a_client_count_for_it():
    claim = Privacy(neighbours="client added", history=GAUSSIAN, aggregated=True)
    run = [contribution(number, node, claim) for number, node in ((1, "a"), (1, "b"), (2, "a"), (3, "a"), (3, "b"))]
    first, second = spent(run)
    assert (first.node, first.rounds) == ("a", (1, 2, 3))
    assert first.claimed == pytest.approx(gaussian_epsilon(math.sqrt(3), 1e-5))
    assert second.claimed == pytest.approx(gaussian_epsilon(math.sqrt(2), 1e-5))
    assert "a, 3 rounds: ε = 8.39 at δ = 1e-05" in first.text()
    assert "whoever sees the updates no finite ε" in first.text()


def test_a_round_without_a_claim_leaves_no_finite_epsilon():
    claim = Privacy(neighbours="client", history=GAUSSIAN)
    (client,) = spent([contribution(1, "a", claim), contribution(2, "a", None)])
    assert client.claimed == client.epsilon == math.inf
