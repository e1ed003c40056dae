"""Attacks that recover inputs exactly: images from a fully connected first layer, and texts by DAGER."""

import pytest
import torch
from torch import nn

from fedleak.attacks import text
from fedleak.attacks.images import dlg, first_layer
from fedleak.federated import fedsgd
from fedleak.models import build
from fedleak.models.zoo import Normalise


def mlp(width: int = 128) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(27, width), nn.ReLU(), nn.Linear(width, 5))


def pictures(n: int) -> torch.Tensor:
    return torch.rand(n, 3, 3, 3, generator=torch.Generator().manual_seed(n))


def test_the_first_layer_gives_a_single_image_exactly():
    x = pictures(1)
    update = fedsgd(mlp(), x, torch.tensor([2]))
    assert torch.allclose(first_layer.reconstruct(update, mlp(), shape=(3, 3, 3)), x, atol=1e-4)


def test_images_from_a_batch_are_images_of_the_batch():
    x = pictures(4)
    images = first_layer.reconstruct(fedsgd(mlp(512), x, torch.arange(4)), mlp(512), shape=(3, 3, 3))
    assert 0 < len(images) <= 4
    assert torch.cdist(images.flatten(1), x.flatten(1)).amin(1).max() < 1e-3


def test_the_first_layer_behind_a_normalisation_is_refused():
    model = nn.Sequential(Normalise(), *mlp())
    with pytest.raises(ValueError, match="begin"):
        first_layer.reconstruct(fedsgd(model, pictures(1), torch.tensor([0])), model, shape=(3, 3, 3))


def test_a_first_layers_inputs_are_not_clipped_in_silence():
    x = 4 * pictures(1) - 2
    with pytest.warns(UserWarning, match="box"):
        first_layer.reconstruct(fedsgd(mlp(), x, torch.tensor([2])), mlp(), shape=(3, 3, 3))
    rows = x.flatten(1)
    model = nn.Linear(27, 5)
    assert torch.allclose(first_layer.reconstruct(fedsgd(model, rows, torch.tensor([2])), model), rows, atol=1e-4)


class Classifier(nn.Module):
    """A transformer with one block over texts of five tokens out of nine."""

    def __init__(self, causal: bool):
        super().__init__()
        torch.manual_seed(1)
        self.input_shape = (5,)
        self.words, self.places = nn.Embedding(9, 32), nn.Embedding(5, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.fc = nn.Linear(32, 3)
        self.mask = torch.ones(5, 5).triu(1).bool() if causal else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x) + self.places(torch.arange(5))
        return self.fc(self.block(x, src_mask=self.mask).mean(1))


TEXTS = torch.tensor([[1, 2, 3, 4, 5], [5, 2, 8, 1, 1], [0, 3, 3, 7, 5]])


@pytest.mark.parametrize("causal", [True, False])
def test_dager_recovers_texts_with_their_order(causal):
    model = Classifier(causal)
    texts = text.recover(fedsgd(model, TEXTS, torch.tensor([0, 1, 2])), model)
    assert sorted(texts.tolist()) == sorted(TEXTS.tolist())


def test_words_by_place_miss_no_word_and_exclude_most():
    model = Classifier(True)
    words = text.words_by_place(fedsgd(model, TEXTS, torch.tensor([0, 1, 2])), model)
    assert words[torch.arange(5), TEXTS].all()
    assert words.double().mean() < 0.6


def test_dager_refuses_more_tokens_than_inputs():
    model, x = Classifier(True), torch.randint(9, (20, 5), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="rank"):
        text.recover(fedsgd(model, x, torch.zeros(20, dtype=torch.long)), model)


def test_lbfgs_stores_its_images_by_iteration():
    model = build("cnn", (1, 8, 8), 3, seed=0).double()
    update = fedsgd(model, torch.rand(1, 1, 8, 8, dtype=torch.double), torch.tensor([1]))
    film = dlg.match(update, model, iterations=3, shape=(1, 8, 8), snapshots=(1, 3)).snapshots
    assert list(film) == [1, 3]
    assert film[1].shape == (1, 1, 1, 8, 8)
    assert not torch.equal(film[1], film[3])
