"""Attacks that are prepared once for a model: every update is read as by a call of its own; the result says more."""

import json
import math
import re

import pytest
import torch

from fedleak.attacks.contest import EXPECTED_FAILURES, attempt, entrants
from fedleak.attacks.labels import idlg, llg
from fedleak.attacks.registry import WITH_AUXILIARY
from fedleak.attacks.result import Prepared, Result
from fedleak.data import load
from fedleak.federated import Scheme, fedavg, fedsgd
from fedleak.models import build

SHAPE, N, B = (1, 8, 8), 4, 3


@pytest.fixture(scope="module")
def model():
    return build("fcn3", SHAPE, N, seed=1).eval()


@pytest.fixture(scope="module")
def aux():
    return load("synthetic", shape=SHAPE, n_classes=N, count=40)


def batches(steps, size=B):
    generator = torch.Generator().manual_seed(3)
    yield torch.rand(steps, size, *SHAPE, generator=generator), torch.randint(N, (steps, size), generator=generator)


@pytest.mark.parametrize("attack", [a for a in entrants() if not a.sends], ids=lambda a: a.name)
def test_a_prepared_attack_reads_updates_as_separate_calls_do(attack, model, aux):
    knowledge = {"aux": aux, "seed": 3, "iterations": 1, "runs": 2, "scheme": None}
    first, then = attack.split(attack.inputs(WITH_AUXILIARY, knowledge))
    prepared, read = attack.prepare(model, adversary=WITH_AUXILIARY, **first), 0
    for steps, size in ((1, 1), (1, B), (2, B)):
        for x, y in batches(steps, size):
            update = fedavg(model, x, y, lr=0.1, share="delta")
            arguments = {**then, "scheme": Scheme("fedavg", 0.1, steps)} if "scheme" in attack.options else then
            alone = attempt(attack, update, model, WITH_AUXILIARY, {**knowledge, **arguments})
            if alone.counts is None:
                with pytest.raises(EXPECTED_FAILURES, match=re.escape(alone.reason)):
                    prepared.recover(update, **arguments)
                continue
            result = prepared.recover(update, **arguments)
            assert result.counts.equal(alone.counts)
            assert (result.attack, result.seconds >= 0) == (attack.name, True)
            read += 1
    assert read


def test_a_violated_assumption_is_in_the_result_and_a_warning(model):
    layers = torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.Tanh(), torch.nn.Linear(8, N)
    tanh, (x, y) = torch.nn.Sequential(*layers), next(batches(1))
    tanh.input_shape = SHAPE
    (violation,) = llg.prepare(tanh).recover(fedsgd(tanh, x[0], y[0])).violated_assumptions
    assert "needs a last layer whose inputs are not negative" in violation
    with pytest.warns(UserWarning, match=r"LLG: needs a last layer whose inputs .* of those of '3' are negative"):
        llg.recover(fedsgd(tanh, x[0], y[0]), tanh)
    assert llg.prepare(model).recover(fedsgd(model, x[0], y[0])).violated_assumptions == ()


def test_a_result_prints_and_becomes_a_row():
    whole = Result(torch.tensor([2, 1]), torch.zeros(2), torch.full((2,), 2.5), torch.tensor([2, 0]), ("so it is.",))
    result = Prepared("mine", lambda update: whole).recover(None)
    text = "mine: 2 1\nbetween 0.0 and 2.5, 0.0 and 2.5\n2 of 3 labels are proven\nso it is."
    assert str(result) == text
    row = json.loads(json.dumps(result.row()))
    assert row == {"attack": "mine", "counts": [2, 1], "low": [0, 0], "high": [2.5, 2.5], "proven": [2, 0],
                   "unmet": ["so it is."], "seconds": row["seconds"]}  # fmt: skip
    assert str(Result(torch.tensor([[1, 0], [0, 1]]))) == "label counts: 1 0 | 0 1"
    assert math.isnan(Result(torch.tensor([1])).seconds)


def test_idlg_proves_a_label_and_never_a_wrong_one():
    model, right, wrong = build("cnn", (1, 8, 8), 10, seed=0), 0, 0
    generator = torch.Generator().manual_seed(1)
    noisy = {"as it is": 0.0, "weak": 1e-3, "strong": 1.0}
    attack, proven = idlg.prepare(model), dict.fromkeys(noisy, 0)
    for _ in range(50):
        label = torch.randint(10, (1,), generator=generator)
        update = fedsgd(model, torch.rand(1, 1, 8, 8, generator=generator), label)
        for name, share in noisy.items():
            draw = lambda t, share=share: share * t.std() * torch.randn(t.shape, generator=generator)
            result = attack.recover(update.replace({k: t + draw(t) for k, t in update.tensors.items()}))
            proven[name] += int(result.proven.sum())
            right += int(result.proven[label])
            wrong += int(result.proven.sum() - result.proven[label])
    assert (proven, wrong) == ({"as it is": 50, "weak": 0, "strong": 0}, 0)
    assert right == 50
