"""A contest runs what the registry says, and what is registered anywhere takes part everywhere."""

import pytest
import torch

from fedleak.attacks import contest, registry
from fedleak.attacks.labels import llg
from fedleak.attacks.registry import (
    EAVESDROPPER,
    MALICIOUS_AGGREGATOR,
    WHITE_BOX,
    WITH_AUXILIARY,
    Attack,
    Need,
)
from fedleak.data import load
from fedleak.federated import Scheme, fedavg, fedsgd
from fedleak.federated import defences as defences_module
from fedleak.federated.aggregation import plain_sum
from fedleak.federated.defences import protections
from fedleak.models import build

SHAPE, CLASSES = (1, 8, 8), 4


@pytest.fixture
def aux():
    return load("synthetic", shape=SHAPE, n_classes=CLASSES, count=40)


@pytest.fixture
def model():
    return build("fcn3", SHAPE, CLASSES, seed=0)


@pytest.fixture
def newcomers(monkeypatch):
    """Let a test register what is gone after it."""
    registry.all_attacks(), protections()
    monkeypatch.setattr(registry, "_ATTACKS", dict(registry._ATTACKS))
    monkeypatch.setattr(defences_module, "_PROTECTIONS", dict(defences_module._PROTECTIONS))


def one_class(update, model, **taken):
    counts = torch.zeros(CLASSES, dtype=torch.long)
    counts[0] = update.samples
    return counts


def newcomer(**fields):
    defaults = {
        "goal": "labels",
        "needs": frozenset({Need.HEAD_GRADIENT}),
        "summary": "Names one class.",
        "function": one_class,
    }
    return Attack(**{"name": "one class", **defaults, **fields})


def test_a_contest_runs_just_what_the_adversary_can(aux, model):
    update = fedsgd(model, aux.x[:6], aux.y[:6])
    for adversary in (EAVESDROPPER, WHITE_BOX, WITH_AUXILIARY):
        done = list(contest.contest(update, model, adversary, {"aux": aux, "seed": 3}))
        assert [attempt.attack for attempt in done] == [a for a in contest.entrants() if not a.lacking(adversary)]
        few = {"iDLG", "GI", "RLG"}  # one sample, one a class, few
        assert {attempt.attack.name for attempt in done if attempt.reason} == few
        assert all(attempt.counts is not None for attempt in done if not attempt.reason)
    counts = {attempt.attack.name: attempt.counts for attempt in done}
    assert counts["LLG"].equal(llg.recover(update, model))
    assert counts["LLG+"].equal(llg.recover(update, model, aux))


def test_auxiliary_data_go_to_those_whose_adversary_has_some(newcomers, aux, model):
    got = {}

    def spy(update, model, **taken):
        got.update(taken)
        return one_class(update, model)

    attack, update = newcomer(function=spy, options={"aux", "prior", "scheme"}), fedsgd(model, aux.x[:2], aux.y[:2])
    scheme, prior = Scheme("fedavg", 0.1, 1), torch.full((CLASSES,), 1 / CLASSES)
    knowledge = {"aux": aux, "prior": prior, "scheme": scheme, "runs": 2, "history": None}
    clock = iter([3.0, 4.5])
    assert contest.attempt(attack, update, model, WHITE_BOX, knowledge, clock.__next__).seconds == 1.5
    assert got == {"scheme": scheme}
    contest.attempt(attack, update, model, WITH_AUXILIARY, knowledge)
    assert got.keys() == {"aux", "prior", "scheme"}


def test_who_knows_the_scheme_reads_the_update_as_it_is(newcomers, aux, model):
    read = []

    def spy(update, model, **taken):
        read.append(update)
        return one_class(update, model)

    update = fedavg(model, aux.x[:4].view(2, 2, *SHAPE), aux.y[:4].view(2, 2), lr=0.1, share="delta")
    plain = update.replace({name: t / 2 for name, t in update.tensors.items()})
    attacks = [newcomer(function=spy), newcomer(name="knows", function=spy, options={"scheme"})]
    list(contest.contest(update, model, WHITE_BOX, {"scheme": Scheme("fedavg", 0.1, 2)}, attacks=attacks, plain=plain))
    assert [input_ is update for input_ in read] == [False, True]
    assert read[0] is plain


def test_a_cheating_server_reads_its_own_models(aux, model):
    attack = registry.get("LIA-SA")
    models = attack.sends(model, 3, 0)
    updates = [fedsgd(m, aux.x[4 * k : 4 * k + 4], aux.y[4 * k : 4 * k + 4]) for k, m in enumerate(models)]
    total, knowledge = plain_sum(updates), {"batch_size": 4, "input_shape": SHAPE, "aux": aux}
    (attempt,) = contest.contest(total, model, MALICIOUS_AGGREGATOR, knowledge, manipulated={"LIA-SA": (total, models)})
    assert attempt.counts.tolist() == [aux.y[4 * k : 4 * k + 4].bincount(minlength=CLASSES).tolist() for k in range(3)]
    assert not list(contest.contest(total, model, MALICIOUS_AGGREGATOR, knowledge))


def hungry(update, model):
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (hungry, "unforeseen OutOfMemoryError: CUDA out of memory"),
        (lambda update, model: torch.zeros(3), "unforeseen TypeError: a label attack returns counts"),
        (lambda update, model: update.gradient("head"), "the update withholds 'head'"),
    ],
)
def test_an_attacks_error_is_a_row_of_the_contest(newcomers, aux, model, run, reason):
    registry.register(newcomer(function=run))
    done = {o.attack.name: o for o in contest.contest(fedsgd(model, aux.x[:4], aux.y[:4]), model, EAVESDROPPER, {})}
    assert done["one class"].counts is None
    assert done["one class"].reason.startswith(reason)
    assert done["LLG"].counts.sum() == 4


def test_an_input_that_nothing_gives_is_refused():
    with pytest.raises(ValueError, match="colour"):
        newcomer(options={"colour"})


def test_the_view_has_only_gradients_that_the_update_holds(aux, model):
    update = fedsgd(model, aux.x[:4], aux.y[:4])
    assert contest.view(WITH_AUXILIARY, update, model) == WITH_AUXILIARY
    last = contest.head(model)
    without = contest.view(WITH_AUXILIARY, update.without(last.weight, last.bias), model)
    assert without.has == registry.RESTRICTED.has


def test_attacks_that_take_minutes_or_stand_apart_are_no_entrants(newcomers):
    apart = ({"cost": "minutes"}, {"standalone_reason": "it needs the moon"}, {"goal": "images"})
    for number, fields in enumerate(apart):
        registry.register(newcomer(name=str(number), **fields))
    assert not {"0", "1", "2"} & {attack.name for attack in contest.entrants()}
