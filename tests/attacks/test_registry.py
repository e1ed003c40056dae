"""The registry knows what every attack needs, and gives none more than its adversary has."""

import dataclasses
import itertools

import pytest
import torch

from fedleak.attacks.registry import (
    ADVERSARIES,
    EAVESDROPPER,
    NOBODY,
    RESTRICTED,
    Adversary,
    all_attacks,
    get,
)
from fedleak.federated import fedsgd
from fedleak.models import build


@pytest.mark.parametrize(
    ("name", "adversary", "lacking"),
    [
        ("LLG", NOBODY, "gradient of the last layer's weights"),
        ("LLG+", EAVESDROPPER, "the model's architecture and weights; labelled auxiliary data of the same classes"),
    ],
)
def test_an_adversary_that_lacks_something_is_refused(name, adversary, lacking):
    model = build("fcn3", (1, 4, 4), 3, seed=0)
    update = fedsgd(model, torch.rand(1, 1, 4, 4), torch.tensor([1]))
    with pytest.raises(ValueError, match=f"'{adversary.name}' lacks: {lacking}$"):
        get(name)(update, model, adversary=adversary)


def test_more_access_never_takes_an_attack_away():
    passive = [one for one in ADVERSARIES if one.server == "passive" and one is not RESTRICTED]
    for weaker, stronger in itertools.pairwise(passive):
        assert weaker.has < stronger.has
        for attack in all_attacks():
            assert attack.lacking(weaker) or not attack.lacking(stronger)


def test_what_an_adversary_sees_and_may_do_counts_too():
    llg = get("LLG")
    assert llg.lacking(Adversary("secure aggregation", EAVESDROPPER.has, sees="aggregate")) == [
        "one client's own update"
    ]
    malicious = dataclasses.replace(llg, name="malicious", server="malicious", sees="aggregate")
    assert malicious.lacking(EAVESDROPPER) == ["the power to change the model it sends out"]
    assert malicious.lacking(dataclasses.replace(EAVESDROPPER, server="malicious", sees="aggregate")) == []


def test_an_unknown_attack_is_named():
    with pytest.raises(ValueError, match=r"LLG\?"):
        get("LLG?")
