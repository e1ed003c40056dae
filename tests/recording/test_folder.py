"""A run's folder: what is written comes back, and what is cut, changed or odd is an error that names the file."""

import hashlib
import json
import logging
import math
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from fedleak.platforms.server import never_stopping, write_received
from fedleak.privacy.claim import Privacy
from fedleak.recording import Contribution, read, write
from fedleak.recording.contribution import OTHER_STATES


def contribution(**other):
    fields = {"round": 1, "node": "a", "samples": 5, "steps": 2, "lr": 0.5, "optimiser": "sgd", "counts": [2, 3]}
    return Contribution(**{**fields, **other})


def states(seed=0, shape=(2, 3)):
    generator = torch.Generator().manual_seed(seed)
    return [
        {"z.weight": torch.rand(shape, generator=generator), "a.bias": torch.rand(2, generator=generator)}
        for _ in range(2)
    ]


def whole_run(folder, rounds=(1, 2), nodes="ab"):
    for number in rounds:
        for k, node in enumerate(nodes):
            write(folder, contribution(round=number, node=node), *states(10 * number + k))
    return folder


def test_what_is_written_comes_back(tmp_path):
    before, after = states()
    path = write(tmp_path / "run", contribution(batch_size=3, epochs=1), before, after)
    assert path == tmp_path / "run" / "round-0001" / "client-a.json"
    path.with_name(".client-c.x.tmp").write_text("{")  # what a killed process leaves
    (record,) = read(tmp_path / "run")
    assert list(record.states()[0]) == list(before), "the order of the names is the model's"
    for name in before:
        assert torch.equal(record.states()[0][name], before[name])
        assert torch.equal(record.update().tensors[name], after[name] - before[name])
    assert (record.samples, record.steps, record.lr, record.batch_size) == (5, 2, 0.5, 3)
    assert record.truth(4).tolist() == [2, 3, 0, 0]
    with pytest.raises(ValueError, match=r"client-a.json: its labels are of 2 classes, the model has 1"):
        record.truth(1)


def test_contributions_come_by_round_and_then_by_their_clients_numbers(tmp_path):
    whole_run(tmp_path, nodes=("10", "2"))
    write(tmp_path, contribution(round=2, node="3"), *states(10))
    order = [(record.round, record.node) for record in read(tmp_path)]
    assert order == [(1, "2"), (1, "10"), (2, "2"), (2, "3"), (2, "10")]
    assert len(list((tmp_path / "states").iterdir())) == 8, "a state is kept once"


def test_tied_weights_and_counters_can_be_written(tmp_path):
    weight = torch.rand(2, 2)
    state = {"in.weight": weight, "out.weight": weight, "bn.num_batches_tracked": torch.tensor(3), "t.weight": weight.T}
    write(tmp_path, contribution(), state, state)
    restored, _ = read(tmp_path)[0].states()
    assert all(torch.equal(restored[name], state[name]) for name in state)
    assert read(tmp_path)[0].update().tensors.keys() == state.keys() - {"bn.num_batches_tracked"}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_file_that_is_cut_changed_or_missing_is_named(tmp_path_factory, data):
    folder = whole_run(tmp_path_factory.mktemp("run"), rounds=(1,))
    path = data.draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    content, state = bytearray(path.read_bytes()), path.suffix == ".safetensors"
    what = data.draw(st.sampled_from(["cut", "changed", "missing"] if state else ["cut"]))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.unlink() if what == "missing" else path.write_bytes(content[:place] if what == "cut" else content)
    problem = "is missing" if what == "missing" else "is not what was written: it is cut or changed" if state else ""
    with pytest.raises(ValueError, match=f"{path.name}.*{problem}"):
        read(folder)
    shutil.rmtree(folder)


def test_missing_rounds(tmp_path):
    folder = whole_run(tmp_path, rounds=(1, 2, 4))
    with pytest.raises(ValueError, match="round-0003 is missing, and rounds up to 4 are there"):
        read(folder)
    assert {record.round for record in read(folder, gaps=True)} == {1, 2, 4}
    with pytest.raises(ValueError, match="round-0001 is missing"):
        read(whole_run(tmp_path / "late", rounds=(2, 3)))
    assert len(read(whole_run(tmp_path / "zero", rounds=(0, 1)))) == 4
    with pytest.raises(FileNotFoundError, match="no folder"):
        read(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no recorded round"):
        read(tmp_path / "empty")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_state_with_no_number_is_named(tmp_path, value):
    before, after = states()
    after["a.bias"][1] = value
    write(tmp_path, contribution(), before, after)
    which = r"round 1, node a: 1 of 2 entries of 'a.bias' are NaN or infinite .*"
    with pytest.raises(ValueError, match=which + "remove round-0001/client-a.json to leave it out"):
        read(tmp_path)


def test_a_note_with_another_name_is_named(tmp_path):
    write(tmp_path, contribution(), *states())
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing/round-2-a.txt").write_text("lost")
    with pytest.raises(ValueError, match=r"round-2-a\.txt: notes are named as round-0002"):
        read(tmp_path)


def test_an_attention_mask_of_infinities_is_no_update(tmp_path):
    mask = {"mask": torch.triu(torch.full((3, 3), -math.inf), 1)}
    write(tmp_path, contribution(), *(state | mask for state in states()))
    (record,) = read(tmp_path)
    assert not record.update().tensors["mask"].any()
    assert all(tensor.isfinite().all() for tensor in record.update().tensors.values())


@pytest.mark.parametrize(
    "content", [b"\x08" + bytes(7) + b"{notjson", save({"a.bias": torch.ones(2)}), b"", b"\xff" * 40]
)
def test_a_state_with_a_wrong_header_is_one_line(tmp_path, content):
    """Whoever writes such a file also gives it the name of its hash."""
    path = write(tmp_path, contribution(), *states())
    name = hashlib.sha256(content).hexdigest()[:16]
    (tmp_path / "states" / f"{name}.safetensors").write_bytes(content)
    path.write_text(json.dumps({**json.loads(path.read_text()), "before": name}))
    with pytest.raises(ValueError, match=rf"{name}.safetensors is no state that fedleak wrote"):
        read(tmp_path)


def test_an_optimiser_that_nobody_told_is_not_taken_for_sgd(tmp_path):
    client = Contribution(round=1, node="a", samples=5, steps=2, lr=0.5)
    assert (client.optimiser, client.scheme) == ("unknown", None)
    write(tmp_path, client, *states())
    write(tmp_path, contribution(seen_by="server", lr=0.25, momentum=0.9), *states())
    (merged,) = read(tmp_path)
    assert (merged.optimiser, merged.lr, merged.momentum) == ("sgd", 0.25, 0.9), "the server's word"


@pytest.mark.parametrize(
    ("shape", "bias", "what"), [((4, 4), "a.bias", "'z.weight'"), ((2, 3), "other", "'a.bias', 'other'")]
)
def test_states_of_two_models(tmp_path, shape, bias, what):
    whole_run(tmp_path)
    renamed = ({bias if k == "a.bias" else k: t for k, t in s.items()} for s in states(3, shape))
    write(tmp_path, contribution(round=3), *renamed)
    with pytest.raises(ValueError, match=rf"safetensors \(round-0003, a\) is of another model: it differs in {what}"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lr": "0.1"}, "lr"),
        ({"samples": 0}, "samples"),
        ({"counts": [2, 2]}, "counts are of 4 labels, and there are 5 samples"),
        ({"counts": [6, -1]}, "counts.1"),
        ({"before": "../x"}, "before"),
        ({"momentum": 1.5}, "momentum"),
        ({"node": "../../x"}, "node: String should match pattern"),
        ({"node": "b"}, "belongs to round-0001/client-b.json"),
        ({"scales": {"a.weight": 0.0}}, "scales.a.weight: Input should be greater than 0"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_json_file_with_something_else_is_named(tmp_path, change, named):
    path = write(tmp_path, contribution(), *states())
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=rf"client-a.json: .*{named}"):
        read(tmp_path)


def test_a_gap_names_the_field_that_is_wrong(tmp_path):
    faults = {"samples: Input should be greater than 0": {"samples": 0}, "counts are of 3 labels": {"counts": [1, 2]}}
    for message, wrong in faults.items():
        with never_stopping(tmp_path, logging.getLogger("test"), round=3, node="b"):
            Contribution(**{"round": 3, "node": "b", "samples": 2, "steps": 1, "lr": 0.1, **wrong})
        with pytest.raises(ValueError, match=f"round 3, node b is not recorded: {message}"):
            read(tmp_path)
    with never_stopping(tmp_path, logging.getLogger("test"), round=3, node="b"):
        raise KeyError("weight")
    with pytest.raises(ValueError, match="is not recorded: KeyError: 'weight'"):
        read(tmp_path)


def test_a_measurement_holds_for_the_state_that_the_server_received(tmp_path):
    (before, after), (_, other) = states(0), states(1)
    for node, received in (("a", after), ("b", other)):
        write(tmp_path, contribution(node=node, failed="", scales={"z.weight": 1.0}), before, after)
        write(tmp_path, contribution(node=node, counts=None, seen_by="server", lr=9.0), before, received)
    first, second = read(tmp_path)
    assert (first.failed, second.failed) == ("", OTHER_STATES)
    assert (second.seen_by, second.counts, second.lr) == ("server", [2, 3], 0.5)
    assert torch.equal(second.states()[1]["a.bias"], other["a.bias"])


def test_two_records_of_two_models_are_named(tmp_path):
    write(tmp_path, contribution(), *states())
    write(tmp_path, contribution(seen_by="server"), *states(0, (2, 4)))
    with pytest.raises(ValueError, match=r"server-a.json is of another model than client-a.json: .*'z.weight'"):
        read(tmp_path)


def test_a_part_of_a_model_goes_with_the_whole_of_others(tmp_path):
    write(tmp_path, contribution(), *states())
    write(tmp_path, contribution(node="b"), *({"z.weight": state["z.weight"]} for state in states()))
    assert [len(part.update().tensors) for part in read(tmp_path)] == [2, 1]


@pytest.mark.parametrize("facts", [{"optimiser": "sgd"}, {"lr": 0.1, "x": 1}, {"lr": 0.1, "steps": 99}])
def test_what_a_server_cannot_record_is_a_gap_until_it_is_accepted(tmp_path, facts):
    for number, prescribed in ((1, {"lr": 0.1}), (2, facts)):
        with never_stopping(tmp_path, logging.getLogger("test"), round=number, node="a"):
            write_received(tmp_path, prescribed, *states(), examples=8, round=number, node="a")
    with pytest.raises(ValueError, match="round 2, node a is not recorded"):
        read(tmp_path)
    missing = []
    assert [part.round for part in read(tmp_path, gaps=True, missing=missing)] == [1]
    assert len(missing) == 1


def test_noise_behind_a_clients_record_names_what_has_none(tmp_path):
    before, after = states()
    noisy = {**after, "z.weight": after["z.weight"] + torch.randn(2, 3)}
    privacy = Privacy(neighbours="client", by="LocalDpMod", stated=1.0)
    write(tmp_path, contribution(privacy=privacy, failed=""), before, after)
    write(tmp_path, contribution(seen_by="server", counts=None), before, noisy)
    (part,) = read(tmp_path)
    assert (part.failed, part.privacy.unprotected) == (OTHER_STATES, ("a.bias",))
