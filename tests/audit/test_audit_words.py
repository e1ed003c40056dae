"""The words of texts, by the rows of the embedding that move."""

import copy
import functools
import math

import pytest
import torch
from audit_networks import Text, mlp
from runs import train
from torch import nn

from fedleak import Update
from fedleak.attacks.registry import WHITE_BOX, get
from fedleak.attacks.words import word_embeddings
from fedleak.audit import Setup, audit, audit_run, guard
from fedleak.audit.case import prepare
from fedleak.audit.guard import Limits
from fedleak.audit.tables import count_words
from fedleak.federated.defences import PureNoise, protect
from fedleak.federated.restricted import Withhold

NOISE_SEED = 987654321
"""Not that of a test's weights: noise that is a multiple of the weights is taken for weight decay."""


def test_the_embeddings_rows_are_the_words_of_the_texts():
    case = prepare(Setup(model=Text(), shape=(8,), batch_size=4))
    done = case.trial(0)
    assert word_embeddings(case.model, done.updates[0]) == {"words": "words.weight"}
    words = get("embedding rows")(done.updates[0], case.model, adversary=WHITE_BOX)
    assert words.tolist() == sorted(set(done.x.flatten().tolist()))
    with pytest.raises(ValueError, match="no embedding that takes its inputs"):
        get("embedding rows")(done.updates[0], mlp(), adversary=WHITE_BOX)
    noisy = protect(done.updates[0], PureNoise(0.1, NOISE_SEED))
    with pytest.raises(ValueError, match=r"all rows of 'words\.weight' move: noise"):
        get("embedding rows")(noisy, case.model, adversary=WHITE_BOX)


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.0), (5, 0.9)])
def test_weight_decay_does_not_hide_the_words(steps, momentum):
    model, tokens = Text(), torch.tensor([[1, 2, 3, 4], [3, 4, 9, 9]])
    after = copy.deepcopy(model)
    optimiser = torch.optim.SGD(after.parameters(), lr=0.1, momentum=momentum, weight_decay=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(after(tokens), torch.tensor([0, 5])).backward()
        optimiser.step()
    update = Update.from_states(model.state_dict(), after.state_dict(), 2 * steps, steps, 0.1)
    assert get("embedding rows")(update, model, adversary=WHITE_BOX).tolist() == [1, 2, 3, 4, 9]
    decayed = {name: p.grad + 0.01 * p.detach() for name, p in after.named_parameters()}
    update = Update(decayed, "gradient", 2, 1, 0.1)
    assert get("embedding rows")(update, after, adversary=WHITE_BOX).tolist() == [1, 2, 3, 4, 9]


def train_by_sgd(model, tokens, steps, **options):
    """Return the update of some steps on these texts, of classes 0, 1, ..."""
    after = copy.deepcopy(model)
    optimiser = torch.optim.SGD(after.parameters(), **options)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(after(tokens), torch.arange(len(tokens))).backward()
        optimiser.step()
    return Update.from_states(model.state_dict(), after.state_dict(), steps * len(tokens), steps, options["lr"])


@pytest.mark.parametrize(("steps", "lr", "decay"), [(1, 0.1, 1e-4), (60, 0.01, 1e-4), (100, 0.05, 1e-5)])
def test_rounding_of_many_steps_and_padding_are_no_words(steps, lr, decay):
    model, tokens = Text(), torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]])
    model.words = nn.Embedding(1000, 16, padding_idx=0)
    update = train_by_sgd(model, tokens, steps, lr=lr, weight_decay=decay)
    assert get("embedding rows")(update, model, adversary=WHITE_BOX).tolist() == [5, 6, 7, 8, 9]


class Looped(Text):
    """Looks the words up one at a time, with a keyword, and a token of its own after them."""

    def forward(self, tokens):
        rows = [self.words(input=tokens[:, k]) for k in range(tokens.shape[1])]
        return self.fc(self.body(torch.stack([*rows, self.words(input=tokens[:, 0] * 0 + 49)], 1).mean(1)).relu())


class Rare(nn.Module):
    """A table of frequent words and a narrow one of rare words, as in adaptive input embeddings."""

    def __init__(self):
        super().__init__()
        self.frequent, self.rare = nn.Embedding(10, 8, max_norm=1.0), nn.Embedding(40, 4)
        self.up, self.fc = nn.Linear(4, 8), nn.Linear(8, 6)

    def forward(self, x):
        rows = torch.zeros(*x.shape, 8)
        rows[x < 10] = self.frequent(x[x < 10])
        rows[x >= 10] = self.up(self.rare(x[x >= 10] - 10))
        return self.fc(rows.mean(1))


@pytest.mark.parametrize("make", [Looped, Rare])
def test_words_that_are_looked_up_in_several_calls_or_tables(make):
    model = make()
    report = audit(Setup(model=model, shape=(8,), batch_size=2, trials=2, remedy_trials=0), fast=True)
    assert report.words.right == report.words.of == report.words.named > 0


def test_the_second_of_two_tables_is_read_where_the_first_is_withheld():
    class Two(Text):
        def __init__(self):
            super().__init__()
            self.weights = nn.Embedding(50, 6)

        def forward(self, tokens):
            return super().forward(tokens) + self.weights(tokens).sum(1)

    update = train_by_sgd(model := Two(), torch.tensor([[1, 2], [3, 4]]), 1, lr=0.1).without("words.weight")
    assert get("embedding rows")(update, model, adversary=WHITE_BOX).tolist() == [1, 2, 3, 4]


def test_an_update_of_another_model_or_with_nan_is_refused():
    model = Text()
    update = train_by_sgd(model, torch.tensor([[1, 2], [3, 4]]), 1, lr=0.1)
    other = update.replace({**update.tensors, "words.weight": torch.zeros(60, 16)})
    with pytest.raises(ValueError, match="is it an update of this model"):
        get("embedding rows")(other, model, adversary=WHITE_BOX)
    broken = update.replace({**update.tensors, "words.weight": update.tensors["words.weight"] * math.nan})
    with pytest.raises(ValueError, match="NaN or infinite"):
        get("embedding rows")(broken, model, adversary=WHITE_BOX)


def test_a_series_with_numbers_and_categories():
    class Series(nn.Module):
        def __init__(self):
            super().__init__()
            self.hour, self.day, self.fc = nn.Embedding(24, 4), nn.Embedding(7, 4), nn.Linear(10, 3)

        def forward(self, x):
            rows = self.hour(x[..., 2].long()), self.day(x[..., 3].long())
            return self.fc(torch.cat([x[..., :2], *rows], -1).mean(1))

    x = torch.cat([torch.randn(300, 3, 2), torch.randint(7, (300, 3, 2)).float()], -1)
    data = x, torch.arange(300) % 3
    words = audit(Setup(model=Series(), data=data, batch_size=2, trials=2, remedy_trials=0), fast=True).words
    assert words.right == words.of == words.named > 0


class Tables(nn.Module):
    """Categories of four columns, looked up in several ways."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.columns = nn.ModuleList(nn.Embedding(n, 8) for n in (50, 50, 50, 3)) if kind == "columns" else None
        self.embedding = nn.Embedding(200, 8) if kind in ("offsets", "turned", "a token in front") else None
        self.rows = nn.Parameter(torch.randn(50, 8)) if kind == "a parameter" else None
        self.head = nn.Linear(40 if kind == "a token in front" else 32, 4)

    def forward(self, x):
        if self.columns is not None:
            rows = torch.stack([column(x[:, k] % len(column.weight)) for k, column in enumerate(self.columns)], 1)
        elif self.rows is not None:
            rows = nn.functional.embedding(x, self.rows)
        elif self.kind == "offsets":
            rows = self.embedding(x + 50 * torch.arange(4))
        else:
            front = self.kind == "a token in front"
            rows = self.embedding(nn.functional.pad(x, (1, 0), value=199) if front else x.t()).transpose(0, 1 - front)
        return self.head(rows.flatten(1))


@pytest.mark.parametrize("kind", ["columns", "offsets", "turned", "a token in front", "a parameter"])
def test_rows_that_are_looked_up_otherwise_than_by_the_inputs(kind):
    data = torch.randint(50, (400, 4)), torch.arange(400) % 4
    setup = Setup(model=Tables(kind), data=data, batch_size=4, trials=2, remedy_trials=0, adversary="white-box model")
    report = audit(setup)
    (words,) = [v for v in guard.verdicts(report, Limits(mean=0.99)) if v.case == "words"]
    assert words.status == ("not measurable" if kind == "a parameter" else "leak")
    assert kind == "a parameter" or report.words.right == report.words.of == report.words.named > 0


def test_a_client_with_all_words_does_not_hide_those_of_others():
    model = Text()
    update = prepare(Setup(model=model, shape=(8,), batch_size=4)).trial(0).updates[0]
    noisy = protect(update, PureNoise(0.1, NOISE_SEED))
    for order in ([update, noisy], [noisy, update]):
        words = functools.reduce(lambda counted, u: count_words(counted, u, model), order, None)
        assert (words.updates, words.unread) == (1, 1)
        assert words.named > 0
        assert "1 updates more do not reveal theirs" in words.text()


def test_words_that_no_attack_reads_are_not_measurable():
    noise = [PureNoise(1e-9, NOISE_SEED)]
    report = audit(Setup(model=Text(), shape=(8,), batch_size=4, trials=2, remedy_trials=0, defences=noise), fast=True)
    (words,) = [v for v in guard.verdicts(report, Limits(mean=1.0)) if v.case == "words"]
    assert words.status == "not measurable"
    withheld = audit(Setup(model=Text(), shape=(8,), trials=2, defences=[Withhold(["words.weight"])]), fast=True)
    assert withheld.words.why == "no nn.Embedding that takes the inputs is trained and shared"
    (words,) = [v for v in guard.verdicts(withheld, Limits(mean=1.0)) if v.case == "words"]
    assert words.status == "not measurable"


def test_words_come_first_in_the_report_of_a_text_model(tmp_path):
    report = audit(Setup(model=Text(), shape=(8,), batch_size=4, trials=3, remedy_trials=0), fast=True)
    what, _, _ = report.headline()
    assert what.startswith("The words: the embedding rows that change reveal ")
    assert report.words.right == report.words.of == report.words.named
    assert "Images" not in what
    assert guard.exit_code(guard.verdicts(report, Limits(mean=0.9999))) == guard.LEAK
    with_padding = Text()
    with_padding.words = nn.Embedding(50, 16, padding_idx=0)
    data = torch.randint(3, (60, 8)), torch.arange(60) % 6
    padded = audit(Setup(model=with_padding, data=data, trials=3, remedy_trials=0), fast=True).words
    assert (padded.named, padded.right, padded.of) == (6, 6, 6), "the padding is no word"

    def pool(seed):
        return torch.randint(50, (60, 8), generator=torch.Generator().manual_seed(seed)), torch.arange(60) % 6

    for node in "abc":
        train(tmp_path, 1, node, [8], ord(node), make=Text, pool=pool)
    recorded = audit_run(tmp_path, Setup(model=Text, shape=(8,), remedy_trials=0))
    assert "no texts were recorded for comparison" in recorded.headline()[0]
    assert recorded.words.updates == 3
