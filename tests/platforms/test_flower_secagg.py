"""LIA-SA through Flower's own SecAgg+, all stages real, in one process; and the grid that makes that possible."""

import pytest
import torch

from fedleak import metrics
from fedleak.attacks.labels import lia_sa
from fedleak.federated import fedsgd
from fedleak.models import build
from fedleak.platforms.flower import Fishing, InProcess, fish, honest, secure_run

SHAPE, CLASSES, BATCH, LR = (1, 6, 6), 5, 16, 0.1
EXACT = {"clipping_range": 2.0, "max_weight": float(BATCH)}


def network():
    return build("fcn3", SHAPE, CLASSES, seed=0)


def batch_of(k):
    generator = torch.Generator().manual_seed(k)
    return torch.rand(BATCH, *SHAPE, generator=generator), torch.randint(CLASSES, (BATCH,), generator=generator)


def app(clients):
    x, y = zip(*map(batch_of, range(clients)), strict=True)
    return honest(network(), torch.stack(x), torch.stack(y))


def fished(clients, lost=lambda message: False, recipe="vector", **protocol):
    models = [lia_sa.fishing_model(network(), recipe, u, clients, seed=0) for u in range(clients)]
    strategy = Fishing(models, SHAPE, LR, BATCH)
    secure_run(InProcess(app(clients), clients, lost), strategy, **protocol)
    truth = {k + 1: metrics.counts(batch_of(k)[1], CLASSES) for k in range(clients)}
    return strategy, truth


@pytest.mark.parametrize("clients", [2, 5])
def test_every_count_of_every_client_is_read_through_secagg(clients):
    strategy, truth = fished(clients)
    torch.testing.assert_close(strategy.counts, truth)
    x, y = map(torch.stack, zip(*map(batch_of, range(clients)), strict=True))
    assert fish(strategy.models, x, y, LR).equal(torch.stack(list(truth.values())))


def test_the_aggregate_is_the_clients_mean_up_to_the_quantisation():
    strategy, _ = fished(4, **EXACT)
    sent = []
    for k, model in enumerate(strategy.models):
        moved = fedsgd(model, *batch_of(k)).tensors
        sent.append([t - LR * moved.get(name, 0) for name, t in model.state_dict().items()])
    step = 2 * EXACT["clipping_range"] / 2**22
    for found, *each in zip(strategy.mean, *sent, strict=True):
        assert (torch.from_numpy(found) - torch.stack(each).mean(0)).abs().max() < step + 1e-6


def test_secagg_counts_are_recovered_for_all_clients_but_dropouts():
    def lost(message):
        stage = message.content.config_records.get("secaggplus_configs", {}).get("stage", "")
        return message.metadata.dst_node_id == 2 and stage == "collect_masked_vectors"

    strategy, truth = fished(4, lost, num_shares=1.0, reconstruction_threshold=0.5)
    assert strategy.counts.keys() == {1, 3, 4}
    assert all(strategy.counts[node].equal(truth[node]) for node in strategy.counts)
