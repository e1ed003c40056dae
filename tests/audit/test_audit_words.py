"""The words of texts in an audit, by the rows of the embedding that move."""

import functools

import pytest
import torch
from networks import Text
from runs import train
from torch import nn

from fedleak.audit import Setup, audit, audit_run, guard
from fedleak.audit.case import prepare
from fedleak.audit.guard import Limits
from fedleak.audit.tables import count_words
from fedleak.federated.defences import PureNoise, protect
from fedleak.federated.restricted import Withhold
from fedleak.models.inputs import has_integer_inputs

NOISE_SEED = 987654321
"""Not that of a test's weights: noise that is a multiple of the weights is taken for weight decay."""


class Looped(Text):
    """Looks the words up one at a time, with a keyword, and a token of its own after them."""

    def forward(self, tokens):
        rows = [self.words(input=tokens[:, k]) for k in range(tokens.shape[1])]
        return self.fc(self.body(torch.stack([*rows, self.words(input=tokens[:, 0] * 0 + 49)], 1).mean(1)).relu())


def test_words_that_are_looked_up_one_at_a_time_are_counted():
    report = audit(Setup(model=Looped(), shape=(8,), batch_size=2, trials=2, remedy_trials=0), fast=True)
    assert report.words.right == report.words.of == report.words.named > 0


class Columns(nn.Module):
    """Categories of four columns, each with a table of its own."""

    def __init__(self):
        super().__init__()
        self.columns, self.head = nn.ModuleList(nn.Embedding(n, 8) for n in (50, 50, 50, 3)), nn.Linear(32, 4)

    def forward(self, x):
        rows = [column(x[:, k] % len(column.weight)) for k, column in enumerate(self.columns)]
        return self.head(torch.cat(rows, 1))


def test_rows_of_several_tables_are_counted():
    data = torch.randint(50, (400, 4)), torch.arange(400) % 4
    setup = Setup(model=Columns(), data=data, batch_size=4, trials=2, remedy_trials=0, adversary="white-box model")
    words = audit(setup).words
    assert words.right == words.of == words.named > 0


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


class LookedUp(Text):
    """Looks its tokens up without calling the embedding."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        if how == "parameter":
            self.words, self.table = None, nn.Parameter(torch.randn(50, 16))
        elif how == "one-hot":
            self.words = nn.Linear(50, 16, bias=False)

    def forward(self, tokens):
        if self.how == "one-hot":
            rows = self.words(nn.functional.one_hot(tokens.long(), 50).float())
        else:
            rows = nn.functional.embedding(tokens, self.table if self.words is None else self.words.weight)
        return self.fc(self.body(rows.mean(1)).relu())


@pytest.mark.parametrize(
    ("how", "has_data"),
    [("function", False), ("function", True), ("parameter", True), ("one-hot", False), ("one-hot", True)],
)
def test_words_that_are_looked_up_in_another_way_are_not_measurable(how, has_data, tmp_path):
    def pool(seed):
        return torch.randint(50, (60, 8), generator=torch.Generator().manual_seed(seed)), torch.arange(60) % 6

    setup = Setup(
        model=LookedUp(how), shape=(8,), data=pool(1) if has_data else None, trials=2, remedy_trials=0, batch_size=8
    )
    train(tmp_path, 1, "a", [8], 1, make=lambda: LookedUp(how), pool=pool)
    for report in (audit(setup, fast=True), audit_run(tmp_path, setup)):
        (words,) = [v for v in guard.verdicts(report, Limits(mean=1.0)) if v.case == "words"]
        assert words.status == "not measurable"
        assert "Images" not in report.headline()[0]


class Frozen(nn.Module):
    """Features without a gradient, and a last layer of zeros, whose outputs are constant."""

    def __init__(self, has_gradient, zero):
        super().__init__()
        self.has_gradient, self.body, self.fc = has_gradient, nn.Linear(12, 8), nn.Linear(8, 3)
        if zero:
            nn.init.zeros_(self.fc.weight)

    def forward(self, x):
        with torch.set_grad_enabled(self.has_gradient):
            features = self.body(x)
        return self.fc(features)


@pytest.mark.parametrize(("has_gradient", "zero"), [(False, False), (True, True)])
def test_features_and_constant_outputs_are_no_words(has_gradient, zero):
    assert not has_integer_inputs(Frozen(has_gradient, zero))


def test_words_come_first_in_the_report_of_a_text_model():
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


def test_words_of_a_recorded_run_are_counted(tmp_path):
    def pool(seed):
        return torch.randint(50, (60, 8), generator=torch.Generator().manual_seed(seed)), torch.arange(60) % 6

    for node in "abc":
        train(tmp_path, 1, node, [8], ord(node), make=Text, pool=pool)
    assert audit_run(tmp_path, Setup(model=Text, shape=(8,), remedy_trials=0)).words.updates == 3
