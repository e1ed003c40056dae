"""What chapters have of their own beside the package's: LLG's released compression and accountant, GDBR's stand-ins."""

import pytest
import torch

from notebooks.gdbr.clients import share, with_dropout
from notebooks.gdbr.experiments.fig3 import stand_in
from notebooks.llg.claims_defences import privacy_budget
from notebooks.llg.clients import ReleasedCompression

ONE = torch.tensor([0])


def test_golden_released_compression_zeroes_tensors_by_class_numbers():
    # Class sums of the head (third tensor): 5, -1, 0.5, 3. Half of four: the smallest magnitudes are those of the
    # classes 2 and 1, so the tensors at positions 1 and 2 vanish as a whole, and the first stays as it is.
    updates = {
        "first": torch.ones(1, 2),
        "second": torch.ones(1, 3),
        "head": torch.tensor([[[5.0, 0.0], [-2.0, 1.0], [0.5, 0.0], [1.0, 2.0]]]),
    }
    compressed = ReleasedCompression(0.5, "head")(updates, ONE)
    assert torch.equal(compressed["first"], updates["first"])
    assert not compressed["second"].any()
    assert not compressed["head"].any()
    assert torch.equal(ReleasedCompression(0.0, "head")(updates, ONE)["head"], updates["head"])
    # Each client by itself: client 0's class 0 has the smallest sum, so position 0 vanishes; client 1's class 1.
    updates = {"first": torch.ones(2, 1), "head": torch.tensor([[[1.0], [2.0]], [[2.0], [1.0]]])}
    compressed = ReleasedCompression(0.5, "head")(updates, torch.tensor([0, 1]))
    assert compressed["first"].flatten().tolist() == [0.0, 1.0]
    assert compressed["head"].flatten().tolist() == [1.0, 2.0, 0.0, 0.0]


def test_privacy_budget_of_the_paper():
    # 100 of 750 users a round, 100 rounds. Each adds N(0, 0.1^2), so their sum carries 0.1 * sqrt(100) = 1, and with
    # clipping at beta = 1 the noise multiplier is 1. The moments accountant's own bound then gives the paper's 11.5.
    assert privacy_budget(1.0, 100 / 750, 100, 1e-5) == pytest.approx(11.55, abs=0.01)


def test_simulations_keep_what_they_promise():
    true = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)) * 3 + torch.arange(30)
    simulated = {
        m: stand_in(true, m, torch.Generator().manual_seed(1))
        for m in ("stats", "stats (col)", "shuffle (col)", "mask")
    }
    assert simulated["stats"].mean() == pytest.approx(true.mean().item(), abs=1.5)
    assert simulated["stats"].std() == pytest.approx(true.std().item(), rel=0.1)
    assert (simulated["stats (col)"].mean(0) - true.mean(0)).abs().max() < 3
    assert torch.equal(simulated["shuffle (col)"].sort(0).values, true.sort(0).values)
    assert not torch.equal(simulated["shuffle (col)"], true)
    is_unmasked = simulated["mask"] == true
    assert int(is_unmasked.sum()) == 300
    torch.testing.assert_close(
        simulated["mask"][~is_unmasked].unique().mean(), true[~is_unmasked].mean(), atol=1e-3, rtol=0
    )
    assert simulated["mask"][~is_unmasked].std() < 1e-4
    with pytest.raises(ValueError, match="unknown stand-in 'copy'"):
        stand_in(true, "copy", torch.Generator())


def test_gdbrs_clients_with_dropout_share_the_remaining_gradient():
    tail = torch.nn.Sequential(
        torch.nn.Linear(6, 400, bias=False), torch.nn.ReLU(), torch.nn.Linear(400, 3, bias=False)
    )
    tail.input_shape = (6,)
    torch.nn.init.uniform_(tail[0].weight, 0.01, 0.2, generator=torch.Generator().manual_seed(0))
    x, labels = torch.full((1, 6), 0.5), torch.tensor([1])
    assert share(tail, x, labels, ["0"]).tensors["0.weight"].any(1).all()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        shared = share(tail, x, labels, ["0"], with_dropout(tail))
    left = shared.tensors["0.weight"].any(1).double().mean()  # of one sample: a dropped unit has no gradient
    assert 0.35 < left < 0.65  # six standard deviations of 400 units
