"""What a client notes cannot end its round, and what cannot be recorded is a gap that readers report."""

import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedleak.audit import audit_run
from fedleak.federated.platforms import as_json, keep, never_stopping, sample_labels
from fedleak.federated.privacy import find_tensors_without_noise
from fedleak.federated.recording import read

LOG = logging.getLogger("fedleak.test")
FACTS = {"lr": 0.1, "optimiser": "sgd", "batch_size": 4}
STATE = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
AFTER = {"weight": torch.tensor([[1.0, 2.0], [0.0, 1.0], [-1.0, -3.0]]), "bias": torch.tensor([0.1, 0.2, -0.3])}
OTHER_KINDS = {
    "floats": torch.arange(16) % 2 / 1.0,
    "one-hot": torch.eye(3, dtype=torch.int64)[torch.arange(16) % 3],
    "several labels": torch.rand(16, 5) > 0.5,
    "masks": torch.zeros(16, 8, 8, dtype=torch.int64),
    "soft labels": torch.full((16, 4), 0.25),
    "another ignored label": torch.arange(16) - 1,
    "codes": torch.full((16,), 10**9),
}


@pytest.mark.parametrize("labels", OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_labels_of_another_kind_are_refused_and_leave_their_number(labels, caplog):
    with pytest.raises(ValueError, match=r"labels (are|of)"):
        sample_labels(labels)
    with caplog.at_level(logging.WARNING, "fedleak.test"):
        noted = json.loads(as_json({"labels": labels, "batch_size": 4}, LOG))
    assert noted == {"examples": 16, "batch_size": 4}
    assert "labels are not noted" in caplog.text


@pytest.mark.parametrize("labels", [[0, 2, 1], np.array([[0], [2], [1]], np.uint8), torch.tensor([0, 2, 1]).int()])
def test_classes_of_samples_are_labels_in_any_array(labels):
    assert json.loads(as_json({"labels": labels}, LOG)) == {"labels": [0, 2, 1]}


def test_facts_that_are_no_json_are_left_out_by_name(caplog):
    facts = {"lr": np.float32(0.5), "batch_size": torch.tensor(4), "epochs": object(), "optimiser": SimpleNamespace()}
    with caplog.at_level(logging.WARNING, "fedleak.test"):
        assert json.loads(as_json(facts, LOG)) == {"lr": 0.5, "batch_size": 4}
    assert "epochs is not noted" in caplog.text
    assert "optimiser is not noted" in caplog.text


def put(folder, number=1, node="a", facts=FACTS, after=AFTER, examples=8):
    seen = {"round": number, "node": node, "seen_by": "client"}
    with never_stopping(folder, LOG, **seen):
        keep(folder, facts, STATE, after, examples=examples, log=LOG, **seen)


def test_ignored_labels_are_neither_samples_nor_classes(tmp_path):
    put(tmp_path, facts={**FACTS, "labels": [0, 2, -100, 1, -100, 2, 0, 0]})
    (part,) = read(tmp_path)
    assert (part.samples, part.steps, part.counts) == (6, 2, [3, 1, 2])


def test_numbers_of_numpy_and_torch_are_facts(tmp_path):
    put(tmp_path, facts={"lr": np.float32(0.5), "optimiser": "sgd", "batch_size": np.int64(4)})
    (part,) = read(tmp_path)
    assert (part.lr, part.batch_size) == (0.5, 4)


@pytest.mark.parametrize("facts", [{"optimiser": "sgd"}, {**FACTS, "labels": OTHER_KINDS["floats"]}, {**FACTS, "x": 1}])
def test_a_gap_is_reported_until_it_is_accepted(tmp_path, facts, caplog):
    put(tmp_path, 1)
    put(tmp_path, 2, facts=facts)
    assert "nothing recorded of round 2, node a" in caplog.text
    with pytest.raises(ValueError, match="round 2, node a is not recorded"):
        read(tmp_path)
    missing = []
    assert [part.round for part in read(tmp_path, gaps=True, missing=missing)] == [1]
    assert len(missing) == 1
    report = audit_run(tmp_path, gaps=True)
    assert "Skipped: round 2, node a is not recorded" in report.to_markdown()
    put(tmp_path, 2)
    assert len(read(tmp_path)) == 2, "a later record closes the gap"


def test_a_folder_with_gaps_alone_says_why(tmp_path):
    put(tmp_path, facts={"optimiser": "sgd"})
    with pytest.raises(ValueError, match=r"holds no recorded round.*nobody told the learning rate"):
        read(tmp_path, gaps=True)


def test_a_full_disk_ends_nothing(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedleak.files.os.fsync", full)
    put(tmp_path)
    assert "No space left on device" in caplog.text
    assert not list(tmp_path.glob("**/*.json"))


def test_tensors_that_are_clipped_at_most_are_without_noise():
    noise = {name: t + 0.01 * torch.randn(t.shape) for name, t in AFTER.items()}
    halved = {name: t / 2 for name, t in AFTER.items()}
    assert find_tensors_without_noise(STATE, AFTER, noise) == []
    assert find_tensors_without_noise(STATE, AFTER, {**noise, "bias": AFTER["bias"]}) == ["bias"]
    assert find_tensors_without_noise(STATE, AFTER, halved) == ["bias", "weight"]
    assert find_tensors_without_noise(STATE, AFTER, {**noise, "bias": STATE["bias"]}) == [], (
        "what is not sent needs no noise"
    )
