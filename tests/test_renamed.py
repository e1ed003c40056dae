"""Names of the previous version still work, with a warning."""

import pytest
import torch

from fedleak.attacks.contest import EXPECTED_FAILURES, FORESEEN, contest
from fedleak.attacks.labels.counts import round_to_total, whole_counts
from fedleak.attacks.registry import WHITE_BOX, Attack, Need, get
from fedleak.attacks.result import Result
from fedleak.federated import fedsgd


def test_old_keyword_arguments_and_attributes_warn_and_work():
    with pytest.warns(FutureWarning, match="unmet is now violated_assumptions"):
        result = Result(torch.ones(2, dtype=torch.long), unmet=("no",))
    with pytest.warns(FutureWarning, match="unmet is now violated_assumptions"):
        assert result.unmet == result.violated_assumptions == ("no",)
    with pytest.warns(FutureWarning, match="is now"):
        attack = Attack("a", "labels", frozenset({Need.MODEL}), "", print, takes={"seed"}, apart="why")
    with pytest.warns(FutureWarning, match="is now"):
        assert (attack.takes, attack.apart) == (attack.options, attack.standalone_reason) == ({"seed"}, "why")


def test_old_names_of_a_contest_work():
    model, cache = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 3)), {}
    update = fedsgd(model, torch.rand(2, 4), torch.tensor([0, 1]))
    with pytest.warns(FutureWarning, match="kept is now prepared"):
        (attempt,) = contest(update, model, WHITE_BOX, {}, attacks=[get("iDLG")], kept=cache)
    with pytest.warns(FutureWarning, match="found is now counts"):
        assert attempt.found is attempt.counts is None
    assert "a single sample" in attempt.reason
    assert cache.keys() == {"iDLG"}
    assert (FORESEEN, whole_counts) == (EXPECTED_FAILURES, round_to_total)
