"""The filter that refuses crafted models, with NVFlare's own runner of filters."""

import logging

import pytest
import torch
from torch import nn

from fedleak.attacks.labels import lia_sa
from fedleak.platforms.inspection import RefusedModel

pytest.importorskip("nvflare.client", reason="NVFlare is not installed: pip install 'fedleak[nvflare]'")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import FilterKey
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.task_utils import apply_filters

from fedleak.platforms.nvflare import Inspector


def model(crafted):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return lia_sa.fishing_model(network, "vector", 0, 2, 0) if crafted else network


def task(crafted, kind=DataKind.WEIGHTS, numpy=True, **meta):
    state = model(crafted).state_dict()
    return DXO(kind, data={n: t.numpy() if numpy else t for n, t in state.items()}, meta=meta).to_shareable()


def filtered(shareable, **options):
    chains = {f"train{FilterKey.DELIMITER}{FilterKey.IN}": [Inspector(**options)]}
    with FLContextManager(identity_name="site-1", job_id="job").new_context() as context:
        return apply_filters("task_data_filters", shareable, context, chains, "train", FilterKey.IN)


@pytest.mark.parametrize("numpy", [True, False], ids=["arrays", "tensors"])
def test_a_crafted_model_is_refused_an_honest_one_passes(numpy, caplog):
    honest = task(False, numpy=numpy)
    assert filtered(honest) is honest
    with (
        caplog.at_level(logging.WARNING, "fedleak.platforms.nvflare"),
        pytest.raises(RefusedModel, match=r"1\.weight") as refused,
    ):
        filtered(task(True, numpy=numpy))
    assert [finding.check for finding in refused.value.findings] == ["dead units"]
    assert "node site-1: dead units" in caplog.text


def test_where_it_only_warns_the_task_goes_on(caplog):
    crafted = task(True)
    with caplog.at_level(logging.WARNING, "fedleak.platforms.nvflare"):
        assert filtered(crafted, warn=True) is crafted
        assert "dead units" in caplog.text
        caplog.clear()
        filtered(task(False), warn=True)
    assert caplog.text == ""


def unread(case):
    if case == "content":
        return DXO(DataKind.WEIGHTS, data={"1.weight": "ciphertext"}).to_shareable()
    if case == "empty":
        return Shareable()
    kind = DataKind.WEIGHT_DIFF if case == "difference" else DataKind.WEIGHTS
    return task(False, kind, **({"quantized_flag": True} if case == "quantised" else {}))


@pytest.mark.parametrize("case", ["content", "empty", "difference", "quantised"])
def test_a_task_whose_model_cannot_be_read_is_refused(case):
    with pytest.raises(RefusedModel, match="not readable"):
        filtered(unread(case))
    assert filtered(unread(case), warn=True) is not None
