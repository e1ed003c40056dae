"""plato's own client in an interpreter of its own (Python 3.13): `make test-platforms`."""

import pytest
from federation import RATE, ROUNDS, check_labels, frozen, network, part, run_client

from fedleak.federated import Update


@pytest.fixture(scope="module")
def uploads(tmp_path_factory):
    return run_client("plato", tmp_path_factory.mktemp("plato"))


@pytest.mark.parametrize(("seed", "steps"), ROUNDS)
def test_labels_are_recovered_from_the_sent_weights(uploads, seed, steps):
    before, after = frozen(network(seed)), part(uploads, f"{seed}.{steps}.payload.")
    assert uploads[f"{seed}.{steps}.report.num_samples"] == 8 * steps
    assert after["1.num_batches_tracked"] == steps
    check_labels(Update.from_states(before, after, 8 * steps, steps, RATE), seed)
