"""Classifiers of transformers on padded texts of unequal lengths, with the real package: `make test-platforms`."""

import pytest
import torch
from federation import LABELS, RATE
from test_models import TRANSFORMERS, Y, inputs, make, right, stepped

from fedleak.recording import read, record

LENGTHS = torch.tensor([16, 3, 9, 5, 12, 16, 7, 4])
NAMES = ["BERT", "DistilBERT"]


class Masked(torch.nn.Module):
    """Return the logits of padded texts, whose mask follows from the padding."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(input_ids=x, attention_mask=(x != 0).long()).logits


def texts(seed):
    """Return padded tokens and their mask, `[8, 16]` each."""
    mask = (torch.arange(16) < LENGTHS[:, None]).long()
    return inputs((16,), seed=seed) * mask, mask


def trained(name, seed, folder):
    """Record two steps of a loop that passes the mask and the labels to the model; return the model before it."""
    torch.manual_seed(seed)
    model = make(*TRANSFORMERS[name][:2]).train()
    before = make(*TRANSFORMERS[name][:2])
    before.load_state_dict(model.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), RATE)
    with record(folder, model, optimiser, round=1) as saw:
        for step in range(2):
            tokens, mask = texts(seed + step)
            saw(Y)
            optimiser.zero_grad()
            model(input_ids=tokens, attention_mask=mask, labels=Y).loss.backward()
            optimiser.step()
    return before


@pytest.mark.parametrize("name", NAMES)
def test_recorded_rounds_of_padded_texts_are_verified_and_right(name, tmp_path):
    for seed in range(3):
        before = trained(name, seed, tmp_path / str(seed))
        (contribution,) = read(tmp_path / str(seed))
        assert not contribution.failed
        assert contribution.counts == (2 * torch.tensor(LABELS).bincount()).tolist()
        update = contribution.update()
        renamed = update.replace({f"inner.{n}": tensor for n, tensor in update.tensors.items()})
        assert right("iLRG", renamed, Masked(before), (16,)) >= 14


@pytest.mark.parametrize("attack", ["iLRG", "RLU, whole head", "LLG+"])
@pytest.mark.parametrize("name", NAMES)
def test_updates_of_padded_texts_are_read_as_those_of_full_ones(name, attack):
    for seed in range(3):
        rates = []
        for tokens in (inputs((16,), seed=seed), texts(seed)[0]):
            torch.manual_seed(seed)
            before, update = stepped(Masked(make(*TRANSFORMERS[name][:2])), tokens)
            rates.append(right(attack, update, before, (16,)))
        assert rates[1] >= rates[0] - 1
        if attack == "iLRG":
            assert rates[1] >= 7
