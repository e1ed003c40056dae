"""Recording NVFlare runs, with the real package: what is written is what came to a client and what really left it."""

import json
import logging
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from fedleak.audit import audit_run
from fedleak.audit.setup import load
from fedleak.federated import Update, fedsgd
from fedleak.federated.defences import protect
from fedleak.recording import read, record
from fedleak_book import paths

pytest.importorskip("nvflare.client", reason="NVFlare is not installed: pip install 'fedleak[nvflare]'")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.fl_constant import FilterKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

from fedleak.platforms.nvflare import Filtered, Recorder

EXAMPLE = paths.root() / "book" / "nvflare_example.py"
LR, LABELS = 0.1, torch.tensor([0, 0, 1, 2, 2, 2])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def trained(folder=None, number=0, node="site-1"):
    """The states before and after two steps on six samples, which are recorded in a folder."""
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    x = torch.rand(6, 3, generator=torch.Generator().manual_seed(1))
    recording = record(folder, model, optimiser, round=number, node=node) if folder else nullcontext(lambda _: None)
    with recording as saw:
        for some, labels in zip(x.split(3), LABELS.split(3), strict=True):
            saw(labels)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(some), labels).backward()
            optimiser.step()
    return before, model.state_dict()


class Runner:
    """A client's runner between server and training: contexts and chains of filters as NVFlare's own makes them."""

    def __init__(self, incoming, outgoing, node="site-1"):
        self.chains = {f"train{FilterKey.DELIMITER}{FilterKey.IN}": incoming}
        self.chains[f"train{FilterKey.DELIMITER}{FilterKey.OUT}"] = outgoing
        self.manager = FLContextManager(identity_name=node, job_id="job")

    def __call__(self, task, train, number=0):
        if number is not None:
            task.set_header(AppConstants.CURRENT_ROUND, number)
        with self.manager.new_context() as context:
            came = apply_filters("task_data_filters", task, context, self.chains, "train", FilterKey.IN)
            return apply_filters("task_result_filters", train(came), context, self.chains, "train", FilterKey.OUT)


def shareable(state, kind=DataKind.WEIGHTS, numpy=True, **meta):
    data = {name: tensor.numpy().copy() if numpy else tensor.clone() for name, tensor in state.items()}
    return DXO(kind, data=data, meta=meta).to_shareable()


def difference(before, after):
    return {name: after[name] - tensor for name, tensor in before.items()}


def run(folder, *filters, kind=DataKind.WEIGHT_DIFF, numpy=True, number=0, recorder=None):
    """One round of one client with a recorder behind some filters; return the two states and what left."""
    before, after = trained()
    recorder = recorder or Recorder(folder)

    def train(task):
        for array in from_shareable(task).data.values():
            array[...] = 0  # a client that trains in place
        trained(folder, number)
        return shareable(after if kind == DataKind.WEIGHTS else difference(before, after), kind, numpy)

    result = Runner([recorder], [*filters, recorder])(shareable(before, numpy=numpy), train, number)
    return before, after, result


@pytest.mark.parametrize(("kind", "numpy"), [(DataKind.WEIGHTS, True), (DataKind.WEIGHT_DIFF, False)])
def test_what_came_and_what_left_is_recorded_unchanged(tmp_path, kind, numpy):
    before, after, result = run(tmp_path, kind=kind, numpy=numpy)
    (part,) = read(tmp_path)
    update = Update.from_states(before, after, 6, 2, LR)
    torch.testing.assert_close(dict(part.update().tensors), dict(update.tensors), rtol=1e-2, atol=1e-6)
    assert (part.round, part.node, part.seen_by, part.samples, part.steps) == (0, "site-1", "server", 6, 2)
    assert (part.optimiser, part.batch_size, part.counts) == ("sgd", 3, [2, 1, 3])
    came, went = part.states()
    assert list(came) == list(before)
    for name in before:
        assert torch.equal(came[name], before[name])
        torch.testing.assert_close(went[name], after[name])
    content = after if kind == DataKind.WEIGHTS else difference(before, after)
    dxo = from_shareable(result)
    assert dxo.meta == {}
    assert all(type(dxo.data[name]) is (np.ndarray if numpy else torch.Tensor) for name in content)
    assert all(np.array_equal(dxo.data[name], content[name]) for name in content)


def test_the_sparse_vector_techniques_epsilon_is_recorded(tmp_path):
    run(tmp_path, SVTPrivacy(fraction=0.5, epsilon=0.2, epsilon_release=3.0))
    privacy = read(tmp_path)[0].privacy
    assert (privacy.delta, privacy.by, privacy.epsilon) == (0.0, "SVTPrivacy", None)
    assert privacy.claimed == pytest.approx(3.2)
    assert privacy.unprotected == ("1.num_batches_tracked",), "the only scalar, which NVFlare's accountant leaves out"
    assert "passes on '1.num_batches_tracked' without noise" in privacy.wrong()[0]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("quantised", "quantised"),
        ("encrypted", "encrypted"),
        ("shape", "3.bias"),
        ("name", "another"),
        ("content", "round 1, node site-1"),
        ("script", "has not recorded its training"),
        ("round", "no round"),
        ("alone", "task data"),
        ("folder", "nothing recorded"),
    ],
)
def test_what_cannot_be_recorded_is_a_warning(tmp_path, caplog, case, reason):
    folder = tmp_path / "run"
    if case == "folder":
        folder.write_text("")
    before, after = trained()
    after |= {"shape": {"3.bias": torch.zeros(4)}, "name": {"another": torch.zeros(4)}}.get(case, {})
    meta = {"quantised": {"quantized_flag": True}, "encrypted": {MetaKey.PROCESSED_ALGORITHM: "HE"}}.get(case, {})
    result = shareable(after, **meta)
    if case == "content":
        from_shareable(result).data["3.bias"] = "ciphertext"
    recorder = Recorder(folder)

    def train(task):
        if case not in ("script", "folder"):
            trained(folder, 1)
        return result

    runner = Runner([] if case == "alone" else [recorder], [recorder])
    with caplog.at_level(logging.WARNING, "fedleak.platforms.nvflare"):
        returned = runner(shareable(before), train, None if case == "round" else 1)
    assert returned is result
    assert reason in caplog.text
    assert not list(tmp_path.glob("run/round-*/server-*.json"))


def test_a_job_names_the_filters_with_their_arguments(tmp_path):
    model = {"class_path": "torch.nn.Linear", "args": {"in_features": 3, "out_features": 2}}
    recipe = FedAvgRecipe(name="job", model=model, min_clients=2, train_script=str(EXAMPLE))
    recorder = Recorder(tmp_path / "run")
    recipe.add_client_input_filter(recorder, tasks=["train"])
    recipe.add_client_output_filter(recorder, tasks=["train"])
    recipe.export(str(tmp_path / "jobs"))
    (config,) = (tmp_path / "jobs").rglob("config_fed_client.json")
    written = json.loads(config.read_text())
    facts = {"folder": str(tmp_path / "run")}
    for chain in ("task_data_filters", "task_result_filters"):
        named = [(filter_["path"], filter_.get("args", {})) for entry in written[chain] for filter_ in entry["filters"]]
        assert named == [("fedleak.platforms.nvflare.Recorder", facts)]
    assert vars(Recorder(**facts))["folder"] == facts["folder"]
    assert [path.name for path in config.parent.parent.rglob("*.py")] == [EXAMPLE.name]


@pytest.mark.slow
def test_the_example_runs_in_the_simulator(tmp_path):
    command = [sys.executable, str(EXAMPLE), "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    run, setup = read(tmp_path / "run"), load(EXAMPLE)
    assert Counter(record.round for record in run) == {0: 3, 1: 3}
    assert {record.node for record in run} == {"site-1", "site-2", "site-3"}
    assert {(part.seen_by, part.failed, part.optimiser, part.batch_size) for part in run} == {("server", "", "sgd", 16)}
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
