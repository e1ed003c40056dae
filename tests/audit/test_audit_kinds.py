"""Kinds of models, each with what an audit makes of it: right, refused or not measurable, and never silently wrong."""

import dataclasses

import pytest
import torch
from networks import LoRA, Patches, Peft, Residual, Text, Tied, Two, WideAndDeep, Wrapped, bias_alone, frozen, mlp
from runs import train
from torch import nn
from torchvision.models import resnet18

from fedleak.attacks.contest import UNEXPECTED, entrants
from fedleak.attacks.labels import adapter, any_scale
from fedleak.attacks.registry import get
from fedleak.audit import Setup, audit, audit_run, guard
from fedleak.audit.case import prepare
from fedleak.audit.guard import Limits
from fedleak.data.embedded import synthetic
from fedleak.federated.defences import ClippedNoise, PureNoise, Sparsification
from fedleak.federated.restricted import Withhold
from fedleak.metrics import instance_accuracy
from fedleak_book import paths

SETUPS = {
    "fully connected": (mlp, (3, 8, 8), "right"),
    "residual": (Residual, (20,), "right"),
    "layer norm, GELU, no bias": (Patches, (3, 16, 16), "right"),
    "ResNet-18 with batch norm": (lambda: resnet18(num_classes=10), (3, 32, 32), "right"),
    "last layer declared first": (Wrapped, (20,), "right"),
    "log-softmax at the end": (lambda: nn.Sequential(mlp(), nn.LogSoftmax(1)), (3, 8, 8), "right"),
    "text": (Text, (8,), "right"),
    "tied weight, embedding first": (lambda: Tied("embed"), (8,), "right"),
    "tied weight, last layer first": (lambda: Tied("head"), (8,), "right"),
    "LoRA on the last layer, B = 0": (lambda: Wrapped(LoRA, trained=False), (20,), "right"),
    "LoRA on the last layer, B not 0": (lambda: Wrapped(lambda h: LoRA(h, fresh=False), trained=False), (20,), "right"),
    "the same as peft has it, B = 0": (lambda: Wrapped(Peft, trained=False), (20,), "right"),
    "the same as peft has it, B not 0": (lambda: Wrapped(lambda h: Peft(h, fresh=False)), (20,), "right"),
    "biases alone are trained": (lambda: Wrapped(bias_alone, trained=False), (20,), "right"),
    "weight norm on the last layer": (lambda: Wrapped(nn.utils.parametrizations.weight_norm), (20,), "right"),
    "last layer frozen": (lambda: Wrapped(frozen), (20,), "in part"),
    "two last layers that are added": (WideAndDeep, (20,), "refused: has to be linear"),
    "two heads": (lambda: Two(two_outputs=True), (20,), "refused: this model a tuple"),
    "softmax at the end": (lambda: nn.Sequential(nn.Linear(20, 4), nn.Softmax(1)), (20,), "refused: without a softmax"),
    "a class for every token": (Text, (2, 5), "refused: this model a tensor"),
    "one sigmoid output": (lambda: nn.Linear(20, 1), (20,), "refused: at least two outputs"),
}


def outcome(make):
    """Return what an audit ends with: right (the best attack names over 90 %), in part, refused, or not measurable."""
    try:
        report = make()
    except ValueError as error:
        return f"refused: {error}"
    verdicts = [v for v in guard.verdicts(report, Limits(mean=1.0)) if v.case != "words"]
    if guard.exit_code(verdicts) == guard.NOT_MEASURABLE:
        return "not measurable"
    best = report.cases()["iacc"].max()
    if best > 0.6:
        return "right" if best > 0.9 else "in part"
    return f"WRONG: {best:.2f}, {report.table.iloc[0]['attack']}"


def same(actual, expected):
    kind, _, why = expected.partition(": ")
    return actual.startswith(kind) and why in actual


LONG = pytest.param("ResNet-18 with batch norm", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [LONG if name == LONG.values[0] else name for name in SETUPS])
def test_a_kind_of_model_is_right_refused_or_not_measurable(name):
    make, shape, expected = SETUPS[name]
    options = {"batch_size": 20, "trials": 3, "remedy_trials": 0, "seed": 1}
    actual = outcome(lambda: audit(Setup(model=make, shape=shape, **options), fast=True))
    assert same(actual, expected), actual


def halve(updates, clients):
    return {name: t / 2 for name, t in updates.items()}


@pytest.fixture
def least_squares(monkeypatch):
    """Let guesses and the attack that estimates the scale run, and the same attack without it."""
    few = [*(attack for attack in entrants() if attack.blind), get(any_scale.NAME), get("RLU, whole head")]
    monkeypatch.setattr("fedleak.audit.run.taking_part", lambda *_: few)


@pytest.mark.parametrize(("whole", "steps"), [(True, 1), (False, 4)])
def test_clipping_does_not_hide_labels_from_an_attacker_who_estimates_the_scale(whole, steps, least_squares):
    local = {"algorithm": "fedavg", "steps": steps, "lr": 0.05} if steps > 1 else {}
    setup = Setup(model=mlp, shape=(3, 8, 8), batch_size=16, trials=6, remedy_trials=0, **local)
    report = audit(dataclasses.replace(setup, defences=[ClippedNoise(0.01, 1e-8, 0, whole=whole)]), fast=True)
    assert set(report.rows["doubt"]) == {""}
    means = report.rows.groupby("attack")["iacc"].mean()
    assert means[any_scale.NAME] > max(0.85, means["RLU, whole head"] + 0.1)
    assert not [why for _, why in report.untried if why.startswith(UNEXPECTED)]


STEPS = {"algorithm": "fedavg", "steps": 4, "lr": 0.05}


@pytest.mark.parametrize(
    ("options", "is_clear"),
    [
        ({"defences": [halve]}, False),
        ({"defences": [PureNoise(1e-6, 0)]}, True),
        ({"defences": [Sparsification(0.9)]}, False),
        ({"defences": [ClippedNoise(0.01, 1e-8, 0)], "loss": nn.CrossEntropyLoss()}, True),
        ({"defences": [ClippedNoise(0.01, 1e-8, 0), Withhold(["3.weight", "3.bias"])]}, False),
        ({"defences": [ClippedNoise(0.01, 1e-8, 0), Withhold(["1.weight"])]}, True),
        ({"defences": [ClippedNoise(0.01, 1e-8, 0), Withhold(["1.weight"])], **STEPS}, False),
        ({"defences": [ClippedNoise(0.01, 1e-8, 0)], "adversary": "white-box model"}, False),
        ({"defences": [ClippedNoise(0.01, 1e-8, 0)], "loss": nn.CrossEntropyLoss(label_smoothing=0.2)}, False),
        ({"defences": [Withhold(["3.weight"])]}, False),  # no attack reads the last layer's bias alone
        ({"defences": [Withhold(["3.weight", "3.bias"])]}, True),
    ],
)
def test_what_no_attacker_reads_or_estimates_is_no_all_clear(options, is_clear, least_squares):
    report = audit(Setup(model=mlp, shape=(3, 8, 8), batch_size=16, trials=3, remedy_trials=0, **options))
    assert (set(report.rows["doubt"]) == {""}) == is_clear


def test_a_class_without_auxiliary_samples_does_not_hide_the_others(least_squares):
    x, y, _ = synthetic("train", (3, 8, 8), 5, 300, 0)
    data = x[y < 4], y[y < 4]
    options = {"batch_size": 16, "trials": 4, "remedy_trials": 0, "composition": "data", "data": data}
    report = audit(Setup(model=mlp, defences=[ClippedNoise(0.01, 1e-8, 0, whole=True)], **options), fast=True)
    assert report.rows.groupby("attack")["iacc"].mean()[any_scale.NAME] > 0.9


def test_a_lead_that_is_the_same_in_all_updates_is_a_leak():
    options = {"batch_size": 1, "trials": 6, "remedy_trials": 0, "adversary": "shared gradients"}
    table = audit(Setup(model=mlp, shape=(3, 8, 8), **options)).table.query("applies")
    ahead = table[table["iacc"] - table["guess"] > 0.9]
    assert len(ahead) > 0
    assert ahead["leaks"].all()


def test_a_defence_is_informed_of_which_client_it_protects():
    numbers_of_clients = []

    def defence(updates, clients):
        numbers_of_clients.append(clients.tolist())
        return dict(updates)

    case = prepare(Setup(model=mlp, shape=(3, 8, 8), batch_size=4, clients=3, defences=[defence]))
    case.observe(case.trial(0))
    assert [k for k in numbers_of_clients if k != [0, 1]][-3:] == [[0], [1], [2]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_signs_prove_no_label_under_label_smoothing(smoothing):
    loss = nn.CrossEntropyLoss(label_smoothing=smoothing)
    report = audit(Setup(model=mlp, shape=(3, 8, 8), batch_size=1, trials=3, remedy_trials=0, loss=loss), fast=True)
    proven = report.rows.set_index("attack").loc["iDLG", "proven"]
    assert proven.isna().all() if smoothing else (proven == 1).all()


def numbers(seed):
    x, y, _ = synthetic("train", (1, 4, 5), 6, 120, seed)
    return x.flatten(1), y


def setup_of(make, **more):
    return Setup(model=make, shape=(20,), data=numbers(99), remedy_trials=0, **more)


def tokens(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(12, (120, 8), generator=generator), torch.randint(12, (120,), generator=generator)


LORA = lambda: Wrapped(LoRA, trained=False)
RUNS = {
    "last layer declared first": (Wrapped, {}, {}, "right"),
    "last layer declared first, with a set-up": (Wrapped, {}, {"setup": Wrapped}, "right"),
    "tied weight": (lambda: Tied("embed"), {"pool": tokens}, {}, "right"),
    "LoRA": (LORA, {}, {}, "refused: pass --setup"),
    "LoRA, with a set-up": (LORA, {}, {"setup": LORA}, "not measurable"),  # the frozen layer's outputs are not all
    "last layer frozen": (lambda: Wrapped(frozen), {}, {}, "refused: which layer is the last is not known"),
    "Adam": (Wrapped, {"kind": torch.optim.Adam}, {"setup": Wrapped}, "not measurable"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_kind_of_run_is_right_refused_or_not_measurable(name, tmp_path):
    make, how, given, expected = RUNS[name]

    def seeded():
        torch.manual_seed(0)
        return make()

    for node in "abc":
        train(tmp_path, 1, node, [20], ord(node), make=seeded, **{"pool": numbers, **how})
    if given or expected != "right":
        setup = setup_of(given["setup"]) if given else None
        actual = outcome(lambda: audit_run(tmp_path, setup))
        assert same(actual, expected), actual
    else:  # without the model an audit recovers fewer labels, but it finds the same layer and reads the same from it
        alone = audit_run(tmp_path)
        known_model = Setup(
            model=make, data=how.get("pool", numbers)(99), adversary="shared gradients", remedy_trials=0
        )
        tables = [r.table.set_index("attack") for r in (alone, audit_run(tmp_path, known_model))]
        for attack in alone.ranking():
            assert tables[0].loc[attack, "iacc"] == tables[1].loc[attack, "iacc"], attack
        assert "LLG" in alone.ranking()


def test_a_last_layer_that_never_moved_is_not_read(tmp_path):
    for node in "abc":
        train(tmp_path, 1, node, [20], ord(node), make=lambda: Wrapped(frozen), pool=numbers)
    report = audit_run(tmp_path, setup_of(Wrapped))
    assert report.ranking() == ["GDBR"], "which reads the layer below"
    assert "gradient of the last layer's weights" in dict(report.untried)["LLG"]


def test_several_local_steps_of_an_adapter_are_read():
    more = {"algorithm": "fedavg", "steps": 3, "lr": 0.05, "batch_size": 8}
    case = prepare(Setup(model=LORA, shape=(20,), **more))
    trials = [case.trial(number) for number in range(10)]
    counts = torch.stack([adapter.recover(done.updates[0], case.attacked.model, case.aux) for done in trials])
    assert instance_accuracy(counts, torch.cat([done.truth for done in trials])).mean() > 0.9


def test_the_books_table_says_what_is_measured():
    text = (paths.root() / "book" / "audit.md").read_text(encoding="utf-8")
    for kinds in (SETUPS, RUNS):
        for name, (*_, expected) in kinds.items():
            assert f"| {name} | {expected.partition(':')[0]} |\n" in text
