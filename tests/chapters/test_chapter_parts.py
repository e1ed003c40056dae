"""What chapters have of their own beside the package's: LLG's released compression and accountant, GDBR's stand-ins."""

import math

import pytest
import torch

from fedleak_book.experiments import Context, spawned
from notebooks.gdbr.clients import below, share
from notebooks.gdbr.experiments_stand_ins import stand_in
from notebooks.gdbr.modes import OFF, ONE_HALF, updates
from notebooks.llg import experiments_blocks as blocks
from notebooks.llg.released import ReleasedCompression, privacy_budget

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
    # clipping at beta = 1 the noise multiplier is 1. The moments accountant's own bound then gives the paper's 11.5,
    # the conversion that Opacus uses today a tighter one.
    assert privacy_budget(1.0, 100 / 750, 100, 1e-5, classic=True) == pytest.approx(11.55, abs=0.01)
    assert privacy_budget(1.0, 100 / 750, 100, 1e-5) == pytest.approx(10.54, abs=0.01)


def test_privacy_budget_without_subsampling_is_the_gaussian_mechanism():
    # Every client in every round: RDP(a) = T a / (2 z^2); min over real a of that + log(1/delta) / (a - 1) is
    # T / (2 z^2) + sqrt(2 T log(1/delta)) / z. With T = 1, z = 2: 1/8 + sqrt(2 * 11.513) / 2 = 2.524; the best a
    # is 10.6, which the accountant's list of orders holds.
    exact = 1 / 8 + math.sqrt(2 * math.log(1e5)) / 2
    assert privacy_budget(2.0, 1.0, 1, 1e-5, classic=True) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("discard", [-0.1, 1.0])
def test_a_share_that_is_none_is_refused(discard):
    with pytest.raises(ValueError, match=r"discard is in \[0, 1\)"):
        ReleasedCompression(discard, "w")


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


def test_stacked_gradients_are_masked_by_their_own_mean():
    true = torch.tensor([[[1.0, 2.0]], [[30.0, 40.0]]])  # one of two entries is masked, by the mean of itself
    assert torch.equal(stand_in(true, "mask", torch.Generator().manual_seed(0)), true)


def test_a_block_keeps_mean_and_spread_of_its_networks():
    context = Context("cpu")
    networks = [blocks.one_network(context, spawned(1, f"network {k}"), "mnist5k", "FedSGD")[0] for k in range(2)]
    assert networks[0] != networks[1]
    rows = list(blocks.blocks(context, 1, "mnist5k", "FedSGD", block=2))
    assert len(rows) == len(networks[0])
    for row in rows:
        rates = [network[row["batch_size"], row["defence"], row["level"]] for network in networks]
        assert row["asr"] == pytest.approx(sum(rates) / 2)
        assert row["squares"] == pytest.approx((rates[0] - rates[1]) ** 2 / 2)


def test_gdbrs_chain_inputs_are_those_of_a_pass():
    generator = torch.Generator().manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Sigmoid(), torch.nn.Flatten())
    model = torch.nn.Sequential(*base, torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    model.input_shape = (1, 4, 4)
    x = torch.rand(7, 1, 4, 4, generator=generator)
    torch.testing.assert_close(below(model, x, chunk=3), base(x).detach())


def test_gdbrs_clients_with_dropout_share_the_remaining_gradient():
    tail = torch.nn.Sequential(
        torch.nn.Linear(6, 400, bias=False), torch.nn.ReLU(), torch.nn.Linear(400, 3, bias=False)
    )
    tail.input_shape = (6,)
    torch.nn.init.uniform_(tail[0].weight, 0.01, 0.2, generator=torch.Generator().manual_seed(0))
    x, labels = torch.full((1, 6), 0.5), torch.tensor([1])
    shared = {name: update.tensors["0.weight"] for name, update in updates(tail, "0", x, labels, [OFF, ONE_HALF], 1)}
    torch.testing.assert_close(shared[OFF], share(tail, x, labels, ["0"]).tensors["0.weight"])
    left = shared[ONE_HALF].any(1).double().mean()  # of one sample: a dropped unit has no gradient
    assert 0.35 < left < 0.65  # six standard deviations of 400 units
