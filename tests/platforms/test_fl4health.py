"""fl4health's own clients in an interpreter of their own (Python 3.10): `make test-platforms`."""

import pytest
import torch
from federation import RATE, ROUNDS, check_labels, frozen, network, part, run_client

from fedleak.federated import Update


@pytest.fixture(scope="module")
def basic(tmp_path_factory):
    return run_client("fl4health", tmp_path_factory.mktemp("basic"), "basic", 0, 1)


@pytest.fixture(scope="module")
def clipping(tmp_path_factory):
    return run_client("fl4health", tmp_path_factory.mktemp("clipping"), "clipping", 1e6, 2)


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    return run_client("fl4health", tmp_path_factory.mktemp("bounded"), "clipping", 1, 2)


def changes(uploads, seed, steps, number):
    """Return a round's changes by name, and the clipping bit."""
    *arrays, bit = part(uploads, f"{seed}.{steps}.{number}.").values()
    return dict(zip(network(seed).state_dict(), arrays, strict=True)), bit


@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_the_weights_of_a_basic_client(basic, seed, steps):
    before, arrays = frozen(network(seed)), part(basic, f"{seed}.{steps}.1.").values()
    after = dict(zip(before, arrays, strict=True))
    assert basic[f"{seed}.{steps}.samples"] == 8 * steps
    assert after["1.num_batches_tracked"] == steps
    check_labels(Update.from_states(before, after, 8 * steps, steps, RATE), seed)


@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_the_second_round_of_a_clipping_client(clipping, seed, steps):
    sent, bit = changes(clipping, seed, steps, 2)
    assert (bit.shape, float(bit)) == ((), 1.0)
    before = frozen(network(seed))
    after = {name: old + sent[name] for name, old in before.items()}
    check_labels(Update.from_states(before, after, 8 * steps, steps, RATE), seed)


def test_the_first_round_of_a_clipping_client_is_zero(clipping):
    """Its initial weights are views of the model that it trains."""
    for seed, steps in ROUNDS:
        first, second = (changes(clipping, seed, steps, number)[0] for number in (1, 2))
        assert not any(change.any() for change in first.values())
        assert all(change.any() for change in second.values())


def test_counters_take_part_in_the_clipped_norm(clipping, bounded):
    learned = [name for name, _ in network(0).named_parameters()]
    for seed, steps in ROUNDS:
        norms = []
        for uploads in (clipping, bounded):
            sent, bit = changes(uploads, seed, steps, 2)
            norms.append(torch.cat([sent[name].flatten().double() for name in learned]).norm())
        assert norms[0] < 1
        assert norms[1] < 0.5 * norms[0]
        assert float(bit) == 0.0
