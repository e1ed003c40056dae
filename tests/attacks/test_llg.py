"""LLG: Algorithm 1 and Eqs. 18-20 against transcriptions of the paper, and exact recovery where it must be exact."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedleak import Update
from fedleak.attacks.labels import llg
from fedleak.data import load
from fedleak.federated import fedavg, fedsgd
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


# --- Eqs. 18-20 --------------------------------------------------------------------------------------------------


def test_golden_gradient_impact():
    # Negative gradients -2 and -1, 6 samples, 4 classes: -3 / 6 * (1 + 1/4) = -0.625. None negative: 0.
    g = torch.tensor([[-2.0, 1.0, -1.0, 5.0], [0.0, 1.0, 2.0, 3.0]])
    assert llg.gradient_impact(g, 6).tolist() == [-0.625, 0.0]


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
