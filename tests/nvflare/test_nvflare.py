"""Recording NVFlare runs, with the real package: what is written is what came to a client and what really left it."""

# ruff: noqa: E402 - NVFlare is an extra, and is looked for before the rest is imported
import json
import logging
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from fedleak.audit import Setup, audit_run
from fedleak.audit.setup import load
from fedleak.federated import Update, fedsgd
from fedleak.federated.defences import protect
from fedleak.federated.recording import read
from fedleak_book import paths

flare = pytest.importorskip("nvflare.client", reason="NVFlare is not installed: pip install 'fedleak[nvflare]'")

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.fl_constant import FilterKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe

from fedleak.nvflare import Filtered, Inspector, Recorder, note

EXAMPLE = paths.root() / "book" / "nvflare_example.py"
LR, LABELS = 0.1, torch.tensor([0, 0, 1, 2, 2, 2])
TOLD = {"labels": LABELS}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def trained():
    """The states before and after two steps on six samples."""
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    x = torch.rand(6, 3, generator=torch.Generator().manual_seed(1))
    for some, labels in zip(x.split(3), LABELS.split(3), strict=True):
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


def run(folder, *filters, kind=DataKind.WEIGHT_DIFF, numpy=True, tell=TOLD, number=0, recorder=None, **meta):
    """One round of one client with a recorder behind some filters; return the two states and what left."""
    before, after = trained()
    recorder = recorder or Recorder(folder, lr=LR, batch_size=3, optimiser="sgd")

    def train(task):
        for array in from_shareable(task).data.values():
            array[...] = 0  # a client that trains in place
        if tell:
            note(folder, **tell)
        return shareable(after if kind == DataKind.WEIGHTS else difference(before, after), kind, numpy, **meta)

    result = Runner([recorder], [*filters, recorder])(shareable(before, numpy=numpy), train, number)
    return before, after, result


@pytest.fixture(autouse=True)
def _site(monkeypatch):
    monkeypatch.setattr(flare, "get_site_name", lambda: "site-1")


@pytest.mark.parametrize("numpy", [True, False], ids=["arrays", "tensors"])
@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_what_came_and_what_left_is_recorded_and_nothing_is_changed(tmp_path, kind, numpy):
    before, after, result = run(tmp_path, kind=kind, numpy=numpy)
    (record,) = read(tmp_path)
    update = Update.from_states(before, after, 6, 2, LR)
    torch.testing.assert_close(record.update().tensors, update.tensors)
    assert (record.round, record.node, record.seen_by, record.samples, record.steps) == (0, "site-1", "client", 6, 2)
    assert (record.lr, record.optimiser, record.batch_size, record.counts) == (LR, "sgd", 3, [2, 1, 3])
    came, went = record.states()
    assert list(came) == list(before)
    for name in before:
        assert torch.equal(came[name], before[name])
        torch.testing.assert_close(went[name], after[name])
    content = after if kind == DataKind.WEIGHTS else difference(before, after)
    dxo = from_shareable(result)
    assert dxo.meta == {}
    assert all(type(dxo.data[name]) is (np.ndarray if numpy else torch.Tensor) for name in content)
    assert all(np.array_equal(dxo.data[name], content[name]) for name in content)


def between_two_recorders(folder):
    """Two recorders, states before and after training, and a task that notes its labels for both."""
    recorders = [Recorder(folder / name, lr=LR, optimiser="sgd") for name in ("front", "behind")]
    before, after = trained()

    def train(task):
        for name in ("front", "behind"):
            note(folder / name, labels=LABELS)
        return shareable(difference(before, after), DataKind.WEIGHT_DIFF)

    return *recorders, before, after, train


def test_a_recorder_sees_what_the_filters_before_it_leave(tmp_path):
    front, behind, before, after, train = between_two_recorders(tmp_path)
    percentile = PercentilePrivacy(percentile=50, gamma=0.01)
    result = Runner([front, behind], [front, percentile, behind])(shareable(before), train)
    (received,), (really,) = read(tmp_path / "front"), read(tmp_path / "behind")
    assert torch.equal(received.states()[1]["3.weight"], before["3.weight"] + (after["3.weight"] - before["3.weight"]))
    outgoing = torch.from_numpy(from_shareable(result).data["3.weight"])
    moved = really.states()[1]["3.weight"] - before["3.weight"]
    torch.testing.assert_close(moved, outgoing, atol=1e-7, rtol=0)
    assert (moved == 0).any()
    assert moved.abs().max() <= 0.01 + 1e-7 < received.update().tensors["3.weight"].abs().max()


def test_what_the_sparse_vector_technique_says_of_its_epsilon_is_recorded(tmp_path):
    run(tmp_path, SVTPrivacy(fraction=0.5, epsilon=0.2, epsilon_release=3.0))
    privacy = read(tmp_path)[0].privacy
    assert (privacy.claimed, privacy.delta, privacy.by, privacy.epsilon) == (
        pytest.approx(3.2),
        0.0,
        "SVTPrivacy",
        None,
    )
    assert privacy.unprotected == ("1.num_batches_tracked",), "the only scalar, which NVFlare's accountant leaves out"
    assert "passes on '1.num_batches_tracked' without noise" in privacy.wrong()[0]


def test_a_layer_that_is_left_out_stands_unchanged_and_counts_as_withheld(tmp_path):
    before, _, result = run(tmp_path, ExcludeVars(["3.weight"]))
    assert "3.weight" not in from_shareable(result).data
    record = read(tmp_path)[0]
    assert torch.equal(record.states()[1]["3.weight"], before["3.weight"])
    assert not torch.equal(record.states()[1]["0.weight"], before["0.weight"])
    report = audit_run(tmp_path, Setup(model=network, shape=(3,), remedy_trials=0))
    llg = report.table.set_index("attack").loc["LLG"]
    assert not llg["applies"]
    assert "lacks: gradient of the last layer's weights" in llg["why"]


def test_a_rounds_note_overrides_the_recorders_settings_and_is_deleted(tmp_path):
    optimiser = torch.optim.SGD(network().parameters(), lr=0.5, momentum=0.9)
    reported = {"labels": LABELS.numpy(), "optimiser": optimiser, "batch_size": 2, "epochs": 2}
    run(tmp_path, tell=reported, number=3, recorder=Recorder(tmp_path, lr=LR, optimiser="adam"))
    assert not list((tmp_path / "notes").iterdir())
    (record,) = read(tmp_path, gaps=True)
    assert (record.round, record.optimiser, record.lr, record.momentum) == (3, "sgd", 0.5, 0.9)
    assert (record.samples, record.steps, record.counts) == (12, 6, [4, 2, 6])


def test_the_note_of_a_failed_round_is_not_used_later(tmp_path):
    note(tmp_path, labels=[2, 2])
    note(tmp_path, labels=[1, 1, 1])
    run(tmp_path, tell={})
    assert not list(tmp_path.glob("round-*")), "it had no labels of its own"


@pytest.mark.parametrize(("size", "steps"), [(None, 5), (3, 2)])
def test_notes_without_labels_give_numbers_of_examples_and_steps(tmp_path, size, steps):
    recorder = Recorder(tmp_path, lr=LR, batch_size=size, optimiser="sgd")
    run(tmp_path, tell={"examples": 6}, recorder=recorder, **{MetaKey.NUM_STEPS_CURRENT_ROUND: 5})
    (record,) = read(tmp_path)
    assert (record.samples, record.steps, record.counts) == (6, steps, None)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("quantised", "encrypted or quantised"),
        ("encrypted", "encrypted or quantised"),
        ("shape", "no state of the model that came, by 3.bias"),
        ("name", "no state of the model that came, by another"),
        ("content", "nothing recorded of round 1, node site-1"),
        ("rate", "nobody told the learning rate"),
        ("samples", "nobody told how many samples"),
        ("round", "the task has no round"),
        ("node", "String should match pattern"),
        ("alone", "among the filters of task data too"),
        ("folder", "nothing recorded of"),
    ],
)
def test_what_cannot_be_recorded_is_a_warning_and_the_run_goes_on(tmp_path, caplog, monkeypatch, case, reason):
    folder = tmp_path / "run"
    if case == "folder":
        folder.write_text("")
    before, after = trained()
    after |= {"shape": {"3.bias": torch.zeros(4)}, "name": {"another": torch.zeros(4)}}.get(case, {})
    meta = {"quantised": {"quantized_flag": True}, "encrypted": {MetaKey.PROCESSED_ALGORITHM: "HE"}}.get(case, {})
    result = shareable(after, **meta)
    if case == "content":
        from_shareable(result).data["3.bias"] = "ciphertext"
    recorder = Recorder(folder, lr=None if case == "rate" else LR, batch_size=3, optimiser="sgd")
    node = "site 1" if case == "node" else "site-1"
    monkeypatch.setattr(flare, "get_site_name", lambda: node)

    def train(task):
        if case not in ("samples", "folder"):
            note(folder, labels=LABELS)
        return result

    runner = Runner([] if case == "alone" else [recorder], [recorder], node)
    with caplog.at_level(logging.WARNING, "fedleak.nvflare"):
        returned = runner(shareable(before), train, None if case == "round" else 1)
    assert returned is result
    assert reason in caplog.text
    assert not list(tmp_path.glob("run/round-*/*.json"))


def test_recorders_before_and_behind_a_filter_name_what_got_no_noise(tmp_path):
    class Partly(SVTPrivacy):
        """Noise, but none on the last layer's bias."""

        def process_dxo(self, dxo, shareable, fl_ctx):
            bias = dxo.data["3.bias"].copy()
            super().process_dxo(dxo, shareable, fl_ctx).data["3.bias"] = bias
            return dxo

    front, behind, before, _, train = between_two_recorders(tmp_path)
    Runner([front, behind], [front, Partly(), behind])(shareable(before), train)
    assert read(tmp_path / "behind")[0].privacy.unprotected == ("1.num_batches_tracked", "3.bias")
    assert read(tmp_path / "front")[0].privacy is None


@pytest.mark.parametrize(
    "tell",
    [
        {"labels": LABELS.float(), "epochs": {1}},
        {"labels": torch.eye(3)[LABELS].long()},
        {"labels": torch.zeros(6, 4, 4), "batch_size": 3 + 1j},
    ],
    ids=["floats", "one-hot", "masks"],
)
def test_labels_of_another_kind_leave_a_record_without_labels(tmp_path, tell, caplog):
    with caplog.at_level(logging.WARNING, "fedleak.nvflare"):
        run(tmp_path, tell=tell)
    (record,) = read(tmp_path)
    assert (record.samples, record.steps, record.counts) == (6, 2, None)
    assert "labels are not noted" in caplog.text


def test_a_full_disk_is_a_warning_for_note_and_recorder(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedleak.files.os.fsync", full)
    with caplog.at_level(logging.WARNING, "fedleak.nvflare"):
        _, after, result = run(tmp_path, kind=DataKind.WEIGHTS)
    assert np.array_equal(from_shareable(result).data["3.bias"], after["3.bias"])
    assert "nothing is noted" in caplog.text
    assert "nothing recorded of round 0, node site-1" in caplog.text


@pytest.mark.parametrize("broken", ["task", "result"])
def test_a_task_that_cannot_be_read_is_a_gap(tmp_path, broken):
    recorder, (before, after) = Recorder(tmp_path, lr=LR, optimiser="sgd"), trained()
    run(tmp_path, recorder=recorder)
    task, result = shareable(before), shareable(after)
    from_shareable(task if broken == "task" else result).data["3.bias"] = "ciphertext"
    assert Runner([recorder], [recorder])(task, lambda task: result, 1) is result
    with pytest.raises(ValueError, match="round 1, node site-1 is not recorded: TypeError: can't convert"):
        read(tmp_path)


@pytest.mark.parametrize("case", ["failed", "evaluated", "asked"])
def test_tasks_that_train_nothing_pass_without_a_word(tmp_path, caplog, case):
    recorder, (before, _) = Recorder(tmp_path, lr=LR), trained()
    metrics = DXO(DataKind.METRICS, data={"accuracy": 0.5}).to_shareable()
    task = metrics if case == "asked" else shareable(before)
    result = make_reply(ReturnCode.EXECUTION_EXCEPTION) if case == "failed" else metrics
    with caplog.at_level(logging.DEBUG, "fedleak.nvflare"):
        assert Runner([recorder], [recorder])(task, lambda task: result) is result
    assert caplog.text == ""
    assert not list(tmp_path.glob("round-*"))


def test_a_job_names_the_filters_with_their_arguments_and_takes_fedleak_as_installed(tmp_path):
    model = {"class_path": "torch.nn.Linear", "args": {"in_features": 3, "out_features": 2}}
    recipe = FedAvgRecipe(name="job", model=model, min_clients=2, train_script=str(EXAMPLE))
    recorder = Recorder(tmp_path / "run", lr=LR, batch_size=3)
    for filter_ in (recorder, Inspector(), Inspector(warn=True)):
        recipe.add_client_input_filter(filter_, tasks=["train"])
    recipe.add_client_output_filter(recorder, tasks=["train"])
    recipe.export(str(tmp_path / "jobs"))
    (config,) = (tmp_path / "jobs").rglob("config_fed_client.json")
    written = json.loads(config.read_text())
    facts = {"folder": str(tmp_path / "run"), "lr": LR, "batch_size": 3}
    inspectors = [("fedleak.nvflare.Inspector", {}), ("fedleak.nvflare.Inspector", {"warn": True})]
    for chain, others in (("task_data_filters", inspectors), ("task_result_filters", [])):
        named = [(filter_["path"], filter_.get("args", {})) for entry in written[chain] for filter_ in entry["filters"]]
        assert named == [("fedleak.nvflare.Recorder", facts), *others]
    assert vars(Recorder(**facts))["folder"] == facts["folder"]
    assert [path.name for path in config.parent.parent.rglob("*.py")] == [EXAMPLE.name]


@pytest.mark.slow
def test_the_example_runs_in_the_simulator_and_its_folder_is_audited(tmp_path):
    command = [sys.executable, str(EXAMPLE), "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    run, setup = read(tmp_path / "run"), load(EXAMPLE)
    assert Counter(record.round for record in run) == {0: 3, 1: 3}
    assert {record.node for record in run} == {"site-1", "site-2", "site-3"}
    assert {(record.seen_by, record.optimiser, record.lr, record.batch_size) for record in run} == {
        ("client", "sgd", 0.1, 16)
    }
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


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("kind", ["gradient", "delta"])
def test_a_filter_works_on_changes_of_weights_and_steps_whatever_is_shared(kind, steps):
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


def test_a_filter_draws_new_numbers_for_every_update():
    update = Update({"w": torch.linspace(-1, 1, 400)}, "delta", 8, 1, LR)
    filtered = Filtered(SVTPrivacy(fraction=0.5), lr=LR, seed=0)
    first, second = (protect(update, filtered).tensors["w"] for _ in range(2))
    assert not torch.equal(first, second)


def test_filters_are_defences_of_gradients_and_draw_by_their_seed_alone():
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
