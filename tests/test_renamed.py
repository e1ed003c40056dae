"""Names of the previous version still work, with a warning."""

import pytest
import torch
import typer

from fedleak import cli, metrics
from fedleak.attacks.contest import EXPECTED_FAILURES, FORESEEN, contest
from fedleak.attacks.labels import learned
from fedleak.attacks.labels.counts import round_to_total, whole_counts
from fedleak.attacks.labels.learned import simulated
from fedleak.attacks.registry import WHITE_BOX, Attack, Need, get
from fedleak.attacks.result import Result
from fedleak.data.partitions import local_batches
from fedleak.federated import Scheme, fedsgd
from fedleak.metrics import psnr
from fedleak.models import heads, passes
from fedleak.models.zoo import WideResNet


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


def test_old_names_of_classes_and_constants_work():
    assert (learned.Learned, simulated.Local) == (learned.LearnedAttacker, simulated.LocalSteps)
    assert heads.ROUNDED == heads.MAX_ROUNDING
    assert passes.REMEMBERED == passes.MAX_CACHED_PASSES
    assert metrics.OUTSIDE == metrics.MAX_OUTSIDE


def test_old_arguments_of_metrics_models_and_clients_work():
    image, indices = torch.rand(1, 3, 12, 12), torch.arange(4)
    with pytest.warns(FutureWarning, match="found is now recovered"):
        assert psnr(found=image, truth=image).item() == 100
    with pytest.warns(FutureWarning, match="own is now indices"):
        assert local_batches(own=indices, steps=2, batch_size=2, generator=torch.Generator()).shape == (2, 2)
    with pytest.warns(FutureWarning, match="own is now updates"):
        assert Scheme("fedavg", 0.1, 1).history(own=[]) == 0
    with pytest.warns(FutureWarning, match="each is now blocks_per_stage"):
        assert len(WideResNet((3, 8, 8), 2, width=1, each=1).blocks) == 3


def test_the_option_same_is_an_alias():
    (option,) = (o for o in typer.main.get_command(cli.app).commands["record"].params if o.name == "reuse_cache")
    assert option.opts == ["--reuse-cache", "--same"]
