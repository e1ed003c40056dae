"""LLG: Algorithm 1 and Eqs. 18-20 against transcriptions of the paper, and exact recovery where it must be exact."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedleak import Update
from fedleak.attacks.labels import llg
from fedleak.data import Images, load
from fedleak.federated import fedavg, fedsgd
from fedleak.metrics import counts as count_labels
from fedleak.models import batch_dependent, build, head_pass

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)


def algorithm_1(gradients, impact, offsets, size, stop):
    """Algorithm 1 line by line; `stop`: the negative gradients in ascending order, at most `size` of them."""
    g, extracted = list(gradients), []
    for i in sorted(range(len(g)), key=lambda i: g[i]) if stop else range(len(g)):
        if stop and len(extracted) >= size:
            break
        if g[i] < 0:
            extracted.append(i)
            g[i] = g[i] - impact
    g = [value - s for value, s in zip(g, offsets, strict=True)]
    while len(extracted) < size:
        i = g.index(min(g))
        extracted.append(i)
        g[i] = g[i] - impact
    return [extracted.count(i) for i in range(len(g))]


# --- Algorithm 1 -------------------------------------------------------------------------------------------------


def test_golden_extraction():
    # g = (-3, -1, 1), m = -1, no offset, 4 samples. Negative: labels 0 and 1, g becomes (-2, 0, 1).
    # Then the minimum twice: label 0 (g = -1), label 0 again (g = 0). Counts (3, 1, 0).
    g = torch.tensor([-3.0, -1.0, 1.0])
    assert llg.extract(g, torch.tensor(-1.0), torch.zeros(3), 4).tolist() == [3, 1, 0]
    # With the offset (0, 2, 2): g becomes (-2, -2, -1) after the first step; minima: 0 (g = -1), then 1. (2, 2, 0).
    assert llg.extract(g, torch.tensor(-1.0), torch.tensor([0.0, 2.0, 2.0]), 4).tolist() == [2, 2, 0]


def test_extract_works_on_any_number_of_leading_dimensions():
    generator = torch.Generator().manual_seed(0)
    g, s = torch.randn(2, 3, 5, generator=generator), torch.randn(5, generator=generator)
    counts = llg.extract(g, -0.1, s, 9)
    for i in range(2):
        for j in range(3):
            assert torch.equal(counts[i, j], llg.extract(g[i, j], torch.tensor(-0.1), s, 9))
    assert torch.equal(llg.extract(g, -0.1, 0.0, 9), llg.extract(g, -0.1, torch.zeros(5), 9))


@PROPERTY
@given(data=st.data(), n=st.integers(2, 8))
def test_extract_is_exact_for_gradients_linear_in_the_counts(data, n):
    # g = count * m + s with offsets 0 <= s < |m| / 2: g is negative just for the labels that occur, and after each
    # label is taken as often as it occurs, all that is left is 0. All values are multiples of 1/64: no rounding.
    truth = torch.tensor(data.draw(st.lists(st.integers(0, 40), min_size=n, max_size=n).filter(any)))
    s = torch.tensor(data.draw(st.lists(st.integers(0, 15), min_size=n, max_size=n))) / 64
    g = truth * -0.5 + s
    for stop in (False, True):
        counts = llg.extract(g, torch.tensor(-0.5), s, int(truth.sum()), stop_at_samples=stop)
        assert torch.equal(counts, truth)


# --- Eqs. 18-20 --------------------------------------------------------------------------------------------------


def test_golden_gradient_impact():
    # Negative gradients -2 and -1, 6 samples, 4 classes: -3 / 6 * (1 + 1/4) = -0.625. None negative: 0.
    g = torch.tensor([[-2.0, 1.0, -1.0, 5.0], [0.0, 1.0, 2.0, 3.0]])
    assert llg.gradient_impact(g, 6).tolist() == [-0.625, 0.0]


def test_golden_impact_and_offset():
    # One run, two labels, B = 2, one step. Own gradients -1 and -3: m = (-1 - 3) / (2 * 2) * (1 + 1/2) = -1.5.
    # The offset of class 0 is its gradient under label 1, 0.5, and that of class 1 its gradient under label 0, 0.25.
    impact, offset = llg.impact_and_offset(torch.tensor([[[-1.0, 0.25], [0.5, -3.0]]]), 2)
    assert impact.item() == -1.5
    assert offset.tolist() == [0.5, 0.25]


@PROPERTY
@given(
    seed=st.integers(0, 10**6),
    runs=st.integers(1, 4),
    n=st.integers(2, 6),
    batch=st.integers(1, 9),
    steps=st.integers(1, 10),
)
def test_impact_and_offset_are_the_papers_means(seed, runs, n, batch, steps):
    probes = torch.randn(runs, n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    impact, offset = llg.impact_and_offset(probes, batch, steps)
    m, s = 0.0, [[] for _ in range(n)]
    for run in range(runs):
        for i in range(n):  # Eq. 19: the batch full of label i, its own gradient
            m += probes[run, i, i].item() / (n * batch) * (1 + 1 / n) / runs
            for j in range(n):  # Eq. 20: the gradients of the other labels
                if j != i:
                    s[j].append(probes[run, i, j].item())
    assert impact.item() == pytest.approx(m / steps, rel=1e-9, abs=1e-12)
    assert offset.tolist() == pytest.approx([sum(values) / len(values) for values in s], rel=1e-9, abs=1e-12)


def test_many_extractions_are_those_of_the_loop():
    generator = torch.Generator().manual_seed(0)
    for case in range(300):
        n, samples = (int(torch.randint(low, high, (1,), generator=generator)) for low, high in ((2, 30), (1, 300)))
        g, s = torch.randn(2, n, generator=generator, dtype=torch.float64)
        m = -torch.rand((), generator=generator, dtype=torch.float64) * 10.0 ** (case % 7 - 4)
        if case % 10 == 0:  # heads with negative inputs: the impact has the wrong sign, or none
            m = -m * (case % 20 > 0)
        if case % 13 == 0:
            g, s = g.round(), s.round()  # ties
            m = m.sign()
        stop = bool(case % 2)
        given = g.clone()
        counts = llg.extract(g, m, s, samples, stop)
        assert torch.equal(g, given)  # the caller's gradients are not written to
        assert counts.tolist() == algorithm_1(g.tolist(), m.item(), s.tolist(), samples, stop), case


# --- the probes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "train", "many"), [("cnn", True, 1), ("resnet20", True, 1), ("resnet20", True, 0), ("resnet20", False, 1)]
)
def test_probe_is_fedsgd_of_every_probe_batch(name, train, many):
    # ResNet20 in training mode: batch norm makes every sample's gradient depend on its batch.
    shape = (1, 8, 8)
    model = build(name, shape, 3, seed=0).double().train(train)
    pool = load("synthetic", shape=shape, n_classes=3, count=36)
    index = many * torch.randint(len(pool), (2, 3, 4), generator=torch.Generator().manual_seed(0))
    probes = llg.probe(model, pool.x.double(), index)
    assert probes.shape == (2, 3, 3)
    for run in range(2):
        for label in range(3):
            update = fedsgd(model, pool.x[index[run, label]].double(), torch.full((4,), label))
            torch.testing.assert_close(probes[run, label], llg.class_gradients(update, model), rtol=1e-8, atol=1e-10)
    if not batch_dependent(model):  # without the probes' [run, label, class]
        found = llg.impact_and_offset_of(head_pass(model, pool.x.double()), index, 4, 2)
        torch.testing.assert_close(found, llg.impact_and_offset(probes, 4, 2))


# --- the whole attack --------------------------------------------------------------------------------------------


@PROPERTY
@given(labels=st.lists(st.integers(0, 9), min_size=1, max_size=64), attack=st.sampled_from(["LLG*", "LLG+"]))
def test_recovery_is_exact_for_untrained_models_with_unit_sum_inputs(labels, attack):
    # Weights 0: the softmax is 1/n, so g_i = 1/n - count_i / B exactly. Probes: own 1/n - 1, others 1/n; hence
    # s = 1/n and m = -(1 - 1/n)(1 + 1/n) / B = -(1 - 1/n^2) / B instead of -1/B. A label that was taken as often as it
    # occurs has count / n^2 < 1 left for counts below 100, less than one that is still to be taken: counts are exact.
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 10, bias=False)).double()
    nn.init.zeros_(model[1].weight)
    labels = torch.tensor(labels)
    update = fedsgd(model, torch.ones(len(labels), 1, 1, 1).double(), labels)
    aux = "ones" if attack == "LLG*" else Images(torch.ones(30, 1, 1, 1), torch.arange(30) % 10)
    counts = llg.recover(update, model, aux, shape=(1, 1, 1))
    assert torch.equal(counts, count_labels(labels, 10))


@pytest.mark.parametrize(("aux", "steps"), [(None, 1), ("zeros", 3), ("ones", 3), ("random", 1)])
def test_recover_is_its_public_parts(aux, steps):
    model, y = build("cnn", (1, 8, 8), 4, seed=0), torch.tensor([[0, 0, 1, 3]] * steps)
    x = torch.rand(*y.shape, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    update = fedavg(model, x, y, lr=0.1)
    counts = llg.recover(update, model, aux, seed=3)
    g = llg.class_gradients(update, model)
    torch.testing.assert_close(g.float(), update.tensors["7.weight"].sum(1))
    if aux is None:
        assert torch.equal(counts, llg.extract(g, llg.gradient_impact(g, update.samples), 0.0, update.samples))
    elif aux != "random":
        image = torch.full((1, 1, 8, 8), float(aux == "ones"))
        probes = llg.probe(model, image, torch.zeros(1, 4, 1, dtype=torch.long)).double()
        impact, offset = llg.impact_and_offset(probes, 4, update.steps)
        assert torch.equal(counts, llg.extract(g, impact, offset, update.samples))
    assert torch.equal(counts, llg.recover(update, model, aux, seed=3))
    assert counts.sum() >= update.samples
    assert counts.min() >= 0


def test_only_auxiliary_data_stop_llg_at_the_number_of_samples():
    # Three negative rows, the head's inputs having been negative, but two samples: labels 1 and 2 are most negative.
    model = build("cnn", (1, 8, 8), 4, seed=0)
    pool = load("synthetic", shape=(1, 8, 8), n_classes=4, count=48)
    gradient = torch.zeros_like(model[-1].weight)
    gradient[:, 0] = torch.tensor([-1.0, -3.0, -2.0, 5.0])
    update = Update({"7.weight": gradient}, "gradient", samples=2)
    assert llg.recover(update, model).tolist() == [1, 1, 1, 0]
    assert llg.recover(update, model, "zeros").tolist() == [1, 1, 1, 0]
    assert llg.recover(update, model, pool).tolist() == [0, 1, 1, 0]
