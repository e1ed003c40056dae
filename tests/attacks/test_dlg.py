"""DLG inverts small models, says how far it got, and refuses what cannot be matched."""

import pytest
import torch
from torch import nn

from fedleak import WithheldParameter
from fedleak.attacks.images import dlg
from fedleak.federated import fedsgd
from fedleak.models import build


def small(seed=0):
    """Twice differentiable and small enough for L-BFGS to get all the way."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Sigmoid(), nn.Linear(12, 3)).double()


def victim(seed=0, batch=1):
    model = small(seed)
    x = torch.rand(batch, 1, 4, 4, generator=torch.Generator().manual_seed(seed)).double()
    y = torch.arange(batch) % 3
    return model, x, y, fedsgd(model, x, y)


def test_one_sample_is_reconstructed_with_its_label():
    model, x, _, update = victim()
    match = dlg.match(update, model, shape=(1, 4, 4), iterations=60)
    # The label is one-hot: its logits only ever grow, so the distance falls slowly towards 0.
    assert match.values.item() < 1e-5
    assert match.images.shape == (1, 1, 1, 4, 4)
    torch.testing.assert_close(match.images[0], x, atol=0.02, rtol=0)
    assert dlg.recover(update, model, shape=(1, 4, 4), iterations=60).tolist() == [1, 0, 0]
    images = dlg.reconstruct(update, model, shape=(1, 4, 4), iterations=60)
    torch.testing.assert_close(images, x, atol=0.02, rtol=0)
    assert images.min() >= 0
    assert images.max() <= 1


def test_the_distance_is_that_of_its_images_and_labels():
    model, _, _, update = victim(batch=2)
    for iterations in (1, 3):
        match = dlg.match(update, model, shape=(1, 4, 4), iterations=iterations)
        loss = nn.functional.cross_entropy(model(match.images[0]), match.label_logits[0].softmax(dim=1))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        pairs = zip(gradients, update.tensors.values(), strict=True)
        assert match.values.item() == pytest.approx(sum(((g - t) ** 2).sum().item() for g, t in pairs), rel=1e-6)


def test_diverging_iterates_are_never_returned():
    model = build("lenet", (1, 12, 12), 3, seed=0)
    update = fedsgd(model, torch.rand(2, 1, 12, 12), torch.tensor([0, 1]))
    huge = update.replace({name: t * 1e18 for name, t in update.tensors.items()})
    match = dlg.match(huge, model, iterations=5)
    assert torch.isfinite(match.images).all()
    assert torch.isfinite(match.label_logits).all()


def test_bad_input():
    model, _, _, update = victim()
    options = {"shape": (1, 4, 4), "iterations": 1}
    with pytest.raises(WithheldParameter, match=r"withholds '1\.weight'"):
        dlg.match(update.replace({"other": torch.ones(2)}), model, **options)
    broadcast = {**update.tensors, "3.bias": update.tensors["3.bias"][:1]}
    with pytest.raises(ValueError, match=r"3\.bias"):
        dlg.match(update.replace(broadcast), model, **options)
