"""The figures: the same style for the same attack, rows as lines with bands."""

import pandas as pd
import pytest

from notebooks import plots


def table(panels=("(a) MNIST",), attacks=("LLG", "LLG+"), sizes=(1, 2, 8)):
    axes = {"panel": panels, "attack": attacks, "batch_size": sizes}
    rows = pd.MultiIndex.from_product(axes.values(), names=axes.keys()).to_frame(index=False)
    mean = 0.9 - 0.01 * rows["batch_size"]
    rows = rows.assign(mean=mean, low=mean - 0.05, high=mean + 0.05)
    return rows.sample(frac=1, random_state=0)  # the order of the rows does not matter


def draw(data, **options):
    return plots.curves(data, x="batch_size", hue="attack", panel="panel", xlabel="B", ylabel="ASR", **options)


def test_rows_are_lines_with_bands():
    figure = draw(table())
    (axes,) = figure.axes
    for line in axes.lines:
        assert list(line.get_xdata()) == [1, 2, 8]
        assert list(line.get_ydata()) == pytest.approx([0.89, 0.88, 0.82])
    assert len(axes.lines) == len(axes.collections) == 2
    assert axes.collections[0].get_datalim(axes.transData).intervaly == pytest.approx((0.77, 0.94))
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "2", "8"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("B", "ASR", "(a) MNIST")
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert sorted(texts[:2]) == ["LLG", "LLG+"]
    assert texts[2:] == ["95 % interval of the mean"]
