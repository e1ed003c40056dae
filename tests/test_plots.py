"""The figures: the same style for the same attack, recorded rows as lines, this run's on top."""

import io
import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from fedleak.experiments.records import NOW, RECORDED
from notebooks import plots


def table(sources=(NOW,), panels=("(a) MNIST",), attacks=("LLG", "LLG+"), sizes=(1, 2, 8)):
    rows = []
    for source in sources:
        for panel in panels:
            for attack in attacks:
                for size in sizes:
                    mean = 0.9 - 0.01 * size
                    row = {"source": source, "panel": panel, "attack": attack, "batch_size": size, "mean": mean}
                    rows.append({**row, "low": mean - 0.05, "high": mean + 0.05})
    return pd.DataFrame(rows).sample(frac=1, random_state=0)  # the order of the rows does not matter


def draw(data, **options):
    return plots.curves(data, x="batch_size", hue="attack", panel="panel", xlabel="B", ylabel="ASR", **options)


def test_an_attack_has_one_style_and_no_two_have_the_same():
    names = ["LLG", "LLG*", "LLG+", "DLG", "random guess"]
    style = plots.style_of(names)
    assert style == {name: plots.STYLE[name] for name in names}
    mixed = plots.style_of(["LLG+", "cnn", "lenet"])
    assert mixed["LLG+"] == plots.STYLE["LLG+"]
    assert len(set(mixed.values())) == 3
    assert plots.style_of(["cnn", "lenet"]) == plots.style_of(["cnn", "lenet"])
    many = [f"model {i}" for i in range(30)]
    assert len(set(plots.style_of(many).values())) == 30


@pytest.mark.parametrize("source", [NOW, RECORDED])
def test_one_source_is_drawn_as_lines_with_bands(source):
    figure = draw(table([source]))
    (axes,) = figure.axes
    assert len(axes.lines) == 2
    assert len(axes.collections) == 2  # the bands, no markers
    for line in axes.lines:
        assert list(line.get_xdata()) == [1, 2, 8]
        assert list(line.get_ydata()) == pytest.approx([0.89, 0.88, 0.82])
    low, high = axes.collections[0].get_datalim(axes.transData).intervaly
    assert (low, high) == pytest.approx((0.77, 0.94))
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "2", "8"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("B", "ASR", "(a) MNIST")
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert sorted(texts) == ["95 % interval of the mean", "LLG", "LLG+"]


def test_this_run_stands_on_top_of_the_recorded_lines():
    figure = draw(table([RECORDED, NOW]))
    (axes,) = figure.axes
    assert len(axes.lines) == 2
    assert len(axes.collections) == 4  # two bands, two sets of markers
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert texts[-2:] == ["line: recorded run", "hollow: this run"]


def test_panels_fill_a_grid_and_the_rest_is_hidden():
    figure = draw(table(panels=["(a)", "(b)", "(c)"]), columns=2)
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]
    assert [axes.get_ylabel() for axes in figure.axes] == ["ASR", "", "ASR", ""]
    assert {axes.get_title() for axes in figure.axes[:3]} == {"(a)", "(b)", "(c)"}


def test_axes_can_be_linear_and_free():
    (axes,) = draw(table(), log2=False, ylim=None).axes
    assert axes.get_xscale() == "linear"
    (fixed,) = draw(table()).axes
    assert fixed.get_xscale() == "log"
    assert fixed.get_ylim() == (0, 1.03)


def test_the_theme_keeps_text_as_text_and_gives_the_same_file_every_time():
    with mpl.rc_context():
        plots.use_theme()
        assert mpl.rcParams["svg.fonttype"] == "none"
        drawn = []
        for _ in range(2):
            file = io.BytesIO()
            draw(table([RECORDED, NOW])).savefig(file, format="svg", metadata={"Date": None})
            drawn.append(file.getvalue())
    assert drawn[0] == drawn[1]
    assert b"(a) MNIST" in drawn[0]


def test_missing_values_leave_a_gap_and_no_error():
    data = table()
    data.loc[data["batch_size"] == 2, ["low", "high"]] = np.nan
    (axes,) = draw(data).axes
    assert len(axes.lines) == 2


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_type_can_be_read_where_a_page_shrinks_the_figure(columns):
    """Nine pixels at least where a figure gets 688 of them, as in a window 1,300 wide; eight in the 640 on a phone."""
    plots.use_theme()
    figure = draw(table(panels=list("abcd")[:columns], sizes=(1, 2, 4, 8, 16, 32)), columns=columns)
    stream = io.StringIO()
    figure.savefig(stream, format="svg")
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", stream.getvalue())]
    width = 72 * figure.get_size_inches()[0]
    assert min(sizes) * min(4 / 3, 688 / width) >= 9  # a point is 4/3 pixels
    assert min(sizes) * 640 / width >= 8
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == (["1", "", "4", "", "16", ""] if columns > 2 else ["1", "2", "4", "8", "16", "32"])
