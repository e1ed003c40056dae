"""NVFlare's filters as defences, and the page's job in its simulator, with the real package."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from networks import normed as network

from fedleak.audit import audit_run
from fedleak.audit.setup import load
from fedleak.federated import Update, fedsgd
from fedleak.federated.defences import protect
from fedleak.recording import read
from fedleak_book import paths

pytest.importorskip("nvflare.client", reason="NVFlare is not installed: pip install 'fedleak[nvflare]'")

from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

from fedleak.platforms.nvflare import Filtered

EXAMPLE = paths.root() / "book" / "nvflare_example.py"
LR, LABELS = 0.1, torch.tensor([0, 0, 1, 2, 2, 2])


@pytest.mark.slow
def test_the_example_runs_in_the_simulator(tmp_path):
    command = [sys.executable, str(EXAMPLE), "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    run, setup = read(tmp_path / "run"), load(EXAMPLE)
    assert Counter(record.round for record in run) == {0: 3, 1: 3}
    assert {record.node for record in run} == {"site-1", "site-2", "site-3"}
    assert {(part.seen_by, part.failed, part.optimiser, part.batch_size) for part in run} == {("client", "", "sgd", 16)}
    assert all(sum(record.counts) == record.samples for record in run)
    start = setup.model().state_dict()
    assert all(torch.equal(record.states()[0][name], start[name]) for record in run[:3] for name in start)
    weights = [record.steps for record in run[:3]]  # NVFlare's FedAvg weighs by the steps
    for name, tensor in run[3].states()[0].items():
        mean = sum(w * record.states()[1][name] for w, record in zip(weights, run[:3], strict=True)) / sum(weights)
        torch.testing.assert_close(tensor, mean, atol=1e-5, rtol=1e-4)
    report = audit_run(tmp_path / "run", setup)
    assert "6 updates of 3 clients in 2 rounds (0 to 1)" in report.to_markdown()
    right = report.table.set_index("attack")["iacc"]
    assert right["iLRG"] > 0.8 > right["random guess"]


@pytest.mark.parametrize(("kind", "steps"), [("gradient", 1), ("delta", 5)])
def test_a_filter_works_on_changes_whatever_is_shared(kind, steps):
    moved = torch.tensor([0.001, 0.005, 0.02, -0.5, 3.0])
    meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: steps}
    dxo = DXO(DataKind.WEIGHT_DIFF, {"w": moved.numpy().copy()}, meta=meta)
    right = torch.as_tensor(PercentilePrivacy(percentile=30).process_dxo(dxo, Shareable(), FLContext()).data["w"])
    scale = 1.0 if kind == "delta" else -LR
    update = Update({"w": moved / scale}, kind, 8, steps, LR)
    filtered = Filtered(PercentilePrivacy(percentile=30), lr=LR, seed=0)
    torch.testing.assert_close(protect(update, filtered).tensors["w"] * scale, right)
    torch.testing.assert_close(protect(update, filtered).tensors["w"] * scale, right)
    assert filtered.steps == 1, "the next update can be of another kind"


def test_filters_are_defences_that_draw_by_their_seed():
    update = fedsgd(network().eval(), torch.rand(6, 3, generator=torch.Generator().manual_seed(1)), LABELS)

    def filtered(filtering, seed=0):
        return protect(update, Filtered(filtering, lr=LR, seed=seed)).tensors

    largest = filtered(PercentilePrivacy(percentile=50, gamma=100))
    sizes = torch.cat([t.abs().flatten() for t in update.tensors.values()])
    for name, t in update.tensors.items():
        torch.testing.assert_close(largest[name], torch.where(t.abs() < sizes.quantile(0.5), 0.0, t))
    clipped = filtered(PercentilePrivacy(percentile=0, gamma=0.001))
    assert max(t.abs().max().item() for t in clipped.values()) == pytest.approx(0.001 / LR)
    assert set(update.tensors) - set(filtered(ExcludeVars(["3.weight"]))) == {"3.weight"}

    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, same, other = (filtered(SVTPrivacy(), seed)["3.weight"] for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
