"""The registry knows what every attack needs, and gives none more than its adversary has."""

import dataclasses
import itertools

import pytest
import torch

from fedleak.attacks.registry import (
    ADVERSARIES,
    EAVESDROPPER,
    MALICIOUS_AGGREGATOR,
    NOBODY,
    RESTRICTED,
    WHITE_BOX,
    WITH_AUXILIARY,
    Adversary,
    Need,
    all_attacks,
    get,
    register,
)
from fedleak.data import Images
from fedleak.federated import fedsgd
from fedleak.models import build

SHAPE, CLASSES = (1, 8, 8), 4
OWN_SUM = {"iLRG"}  # whose rule leaves the sum open


def pool():
    x = torch.rand(40, *SHAPE, generator=torch.Generator().manual_seed(0))
    return Images(x, torch.arange(40) % CLASSES, tuple("abcd"), "random", "train", False, "made here", "none")


def situation(batch=1, net="cnn"):
    model, data = build(net, SHAPE, CLASSES, seed=0), pool()
    return fedsgd(model, data.x[:batch], data.y[:batch]), model


def test_names_are_unique_and_every_field_is_filled():
    names = [attack.name for attack in all_attacks()]
    assert len(set(names)) == len(names)
    assert {"LLG", "LLG*", "LLG+", "iDLG", "GI", "DLG", "DLG (labels)", "random guess"} <= set(names)
    for attack in all_attacks():
        assert attack.paper or not attack.equation
        assert attack.summary.endswith(".")
        assert attack.needs


def test_every_label_attack_returns_counts():
    extra = {attack.name: {"iterations": 1} for attack in all_attacks() if (attack.trained or attack.cost != "seconds")}
    update, model = situation(net="fcn3")
    for attack in all_attacks():
        if attack.goal == "labels" and not attack.lacking(WITH_AUXILIARY):
            knowledge = attack.inputs(WITH_AUXILIARY, {"aux": pool()})
            counts = attack(update, model, adversary=WITH_AUXILIARY, **knowledge, **extra.get(attack.name, {}))
            assert counts.shape == (CLASSES,), attack.name
            assert counts.dtype == torch.long, attack.name
            assert counts.min() >= 0, attack.name
            if attack.name not in OWN_SUM:
                assert counts.sum() == 1, attack.name


@pytest.mark.parametrize(
    ("name", "adversary", "message"),
    [
        ("LLG", NOBODY, "LLG needs what the adversary 'no access' lacks: gradient of the last layer's weights"),
        ("LLG*", EAVESDROPPER, r"LLG\* needs .* 'shared gradients' lacks: the model's architecture and weights$"),
        ("LLG+", EAVESDROPPER, "the model's architecture and weights; labelled auxiliary data of the same classes$"),
        ("LLG+", WHITE_BOX, "'white-box model' lacks: labelled auxiliary data of the same classes$"),
        ("DLG (labels)", EAVESDROPPER, "lacks: the model's architecture and weights"),
        ("iDLG", NOBODY, "lacks: gradient of the last layer's weights"),
    ],
)
def test_an_adversary_that_lacks_something_is_refused(name, adversary, message):
    update, model = situation()
    with pytest.raises(ValueError, match=message):
        get(name)(update, model, adversary=adversary)


def test_more_access_never_takes_an_attack_away():
    passive = [one for one in ADVERSARIES if one.server == "passive" and one is not RESTRICTED]
    for weaker, stronger in itertools.pairwise(passive):
        assert weaker.has < stronger.has
        for attack in all_attacks():
            assert attack.lacking(weaker) or not attack.lacking(stronger)


@pytest.mark.parametrize(
    ("name", "aux"), [("LLG", "zeros"), ("LLG", pool()), ("LLG*", pool()), ("LLG+", "zeros"), ("LLG*", None)]
)
def test_options_do_not_turn_an_attack_into_one_that_needs_more(name, aux):
    update, model = situation()
    with pytest.raises((ValueError, TypeError), match=r"aux|LLG\* takes|LLG\+ takes"):
        get(name)(update, model, adversary=WITH_AUXILIARY, aux=aux)


def test_what_an_adversary_sees_and_may_do_counts_too():
    llg = get("LLG")
    assert llg.lacking(Adversary("secure aggregation", EAVESDROPPER.has, sees="aggregate")) == [
        "one client's own update"
    ]
    malicious = dataclasses.replace(llg, name="malicious", server="malicious", sees="aggregate")
    assert malicious.lacking(EAVESDROPPER) == ["the power to change the model it sends out"]
    assert malicious.lacking(dataclasses.replace(EAVESDROPPER, server="malicious", sees="aggregate")) == []


def test_a_malicious_server_of_an_aggregate_gets_what_needs_no_single_update():
    possible = {attack.name for attack in all_attacks() if not attack.lacking(MALICIOUS_AGGREGATOR)}
    assert "LIA-SA" in possible
    assert not possible & {"LLG", "LLG+", "iLRG", "DLG"}


def test_some_attacks_use_auxiliary_data_that_they_do_not_need():
    assert get("GDBR").uses == get("GDBR").needs | {Need.AUXILIARY_DATA}
    assert {attack.name for attack in all_attacks() if attack.uses != attack.needs} == {"GDBR", "head splitting"}


def test_unknown_attacks_and_taken_names():
    with pytest.raises(ValueError, match=r"unknown attack 'LLG\?'; known: .*LLG\*"):
        get("LLG?")
    before = list(all_attacks())
    with pytest.raises(ValueError, match="an attack named 'LLG' is registered already"):
        register(dataclasses.replace(get("LLG"), function=lambda update, model: None))
    assert all_attacks() == before
