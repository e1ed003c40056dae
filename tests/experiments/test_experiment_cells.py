"""The best attack of a setting and leads over it: never flattered, paired, with intervals over the networks."""

import numpy as np
import pandas as pd
import pytest

from fedleak_book.evidence import cells
from fedleak_book.experiments.kinds import NUMBER, interval

UPDATES, ATTACKS = 20, 10


def drawn(seed, means=(0.5,) * ATTACKS):
    """Scores of attacks with these means; each update makes all of them easier or harder."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, 0.2, (UPDATES, 1))
    scores = np.array(means) + shared + rng.normal(0, 0.1, (UPDATES, len(means)))
    return pd.DataFrame(scores, columns=[f"attack {k}" for k in range(len(means))])


def test_the_best_of_equal_attacks_is_not_flattered():
    scores = [drawn(seed) for seed in range(200)]
    mean = np.mean([cells.best_of(table).score - table.to_numpy().mean() for table in scores])
    flattered = np.mean([table.mean().max() - table.to_numpy().mean() for table in scores])
    assert flattered > 0.025, "picked and scored on the same updates it is"
    assert abs(mean) < 0.008
    assert abs(np.mean([cells.best_of(table).lead for table in scores])) < 0.01


@pytest.mark.parametrize("seed", range(10))
def test_clearly_best_attack_has_its_plain_mean(seed):
    scores = drawn(seed, (0.2, 0.9, 0.5))
    best = cells.best_of(scores)
    assert (best.attack, best.second) == ("attack 1", "attack 2")
    assert best.score == pytest.approx(scores["attack 1"].mean())
    assert best.lead == pytest.approx((scores["attack 1"] - scores["attack 2"]).mean())
    assert best.scores.mean() == pytest.approx(best.score)
    assert cells.best_of(scores, among=["attack 0", "attack 2"]).attack == "attack 2"


@pytest.mark.parametrize("seed", range(10))
def test_lead_over_one_rival_is_the_paired_difference(seed):
    scores = drawn(seed, (0.5, 0.4))
    lead, rival = cells.lead_of(scores, "attack 0", ["attack 0", "attack 1"])
    gaps = scores["attack 0"] - scores["attack 1"]
    assert (float(lead), rival, lead.n) == (pytest.approx(gaps.mean()), "attack 1", UPDATES)
    assert (lead.low, lead.high) == pytest.approx(interval(gaps.to_numpy(), NUMBER))


def test_attack_that_skips_an_update_is_not_picked():
    scores = drawn(0, (0.9, 0.2))
    scores.loc[3, "attack 0"] = np.nan
    assert cells.best_of(scores).attack == "attack 1"
    with pytest.raises(ValueError, match="no attack answers every update, of attack 0"):
        cells.best_of(scores, among=["attack 0"])


def test_intervals_are_over_networks():
    scores, networks = drawn(1, (0.9, 0.2)), pd.Series(np.arange(UPDATES) % 4)
    best, alone = cells.best_of(scores, networks), cells.best_of(scores)
    assert (best.score, best.score.n, alone.score.n) == (alone.score, 4, UPDATES)
    means = [scores["attack 0"][k::4].mean() for k in range(4)]
    assert (best.score.low, best.score.high) == pytest.approx(interval(means, NUMBER))


def test_of_equal_attacks_the_first_is_picked():
    scores = pd.DataFrame({"b": [0.5] * 4, "a": [0.5] * 4})
    best = cells.best_of(scores)
    assert (best.attack, best.second, float(best.lead)) == ("b", "a", 0.0)
