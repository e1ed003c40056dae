"""The report: what its first three lines say, and that Markdown, HTML and figure agree with the table."""

import re

import pytest
from networks import Residual, mlp

from fedleak.attacks.registry import all_attacks
from fedleak.audit import Setup, audit
from fedleak.audit.report import percent


@pytest.fixture(scope="module")
def report():
    import torch

    torch.manual_seed(0)
    return audit(
        Setup(model=mlp(), shape=(3, 8, 8), batch_size=16, trials=5, remedy_trials=1, name="my_net *v2*"), fast=True
    )


def test_the_first_three_lines_say_what_to_whom_and_what_helps(report):
    what, whom, helps = report.headline()
    best = report.table.iloc[0]
    assert what.startswith(f"Labels: {best['attack']} recovers {percent(best['iacc'])} [")
    assert "Images: inversions apply" in what
    assert whom.startswith("Any observer")
    assert "last layer not shared" in helps
    assert "was not measured" in helps
    order = [float(value) for value in re.findall(r": (?:under |over )?(\d+) %", helps)][:-1]
    assert order == sorted(order)


def test_the_table_has_every_attack_of_the_registry_once(report):
    assert report.table["attack"].is_unique
    assert set(report.table["attack"]) == {a.name for a in all_attacks()}
    assert report.table[~report.table["applies"]]["why"].str.len().gt(10).all()
    tried = report.table[report.table["applies"]]
    for metric in ("iacc", "cacc", "exact"):
        assert (tried[f"{metric}_low"] <= tried[metric] + 1e-9).all()
        assert (tried[metric] <= tried[f"{metric}_high"] + 1e-9).all()
    values = [row["iacc"] for _, row in report.by_adversary()]
    assert values == sorted(values), "from the weakest up"
    assert values[-1] == report.table["iacc"].max()


def test_markdown_holds_every_attack_and_escapes_what_it_is_told(report):
    text = report.to_markdown("x.svg", level=2)
    assert text.startswith("## Leakage from the updates of my\\_net \\*v2\\*\n")
    for title in ("Audited setting", "Results per attack", "Leakage with each remedy", "Limits of this audit"):
        assert f"\n### {title}\n" in text
    assert all(name.replace("*", "\\*") in text for name in report.table["attack"])
    assert re.search(r"!\[Share of the labels recovered: [^\]]+\]\(x.svg\)", text)
    assert "![" not in report.to_markdown()


def test_html_is_one_page_that_needs_nothing_else(report):
    text = report.to_html()
    assert [len(re.findall(rf"<{tag}\b", text)) for tag in ("h1", "svg", "main")] == [1, 1, 1]
    assert not re.search(r"<(script|link|img|iframe)\b", text)
    assert not re.search(r'(src|href)="(?!#)', re.sub(r'xlink:href="#', "", text))
    assert re.search(r'<svg[^>]* aria-label="Share of the labels recovered: ', text)
    script = "<script>alert(1)</script>"
    named = audit(Setup(model=Residual(), shape=(20,), trials=1, adversary="no access", name=script))
    assert "<script" not in named.to_html()


def test_the_figure_shows_every_attack_that_was_run(report):
    figure = report.figure()
    axes, (legend,) = figure.axes, figure.legends
    assert any(text.get_text().startswith("prior guess (") for text in legend.get_texts())
    assert [label.get_text() for label in axes[0].get_yticklabels()] == report.ranking()
    assert len(axes[1].get_yticklabels()) == len(report.remedies) - 1
    assert "instance accuracy" in axes[1].get_xlabel()


def test_too_few_updates_are_called_that():
    few = audit(Setup(model=Residual(), shape=(20,), trials=2, batch_size=8, adversary="shared gradients"))
    assert all("Too few updates" in text for text in few.headline())
    assert "nan" not in few.to_markdown()


def test_that_nothing_applies_is_no_all_clear():
    none = audit(Setup(model=Residual(), shape=(20,), trials=3, batch_size=8, adversary="no access"))
    what, whom, helps = none.headline()
    assert what.startswith("No label attack applies")
    assert whom.startswith("Not measurable")
    assert helps == "Not measurable either."
    assert not none.measured
    assert none.to_html()


def test_a_remedy_that_was_not_tried_leaves_nothing_and_stops_nothing():
    none = audit(Setup(model=mlp(), shape=(3, 8, 8), batch_size=4, trials=5, remedy_trials=0), fast=True)
    text = none.to_markdown()
    assert none.headline()[2].startswith("No remedy was tried.")
    assert "none applies" not in text
    assert "- remedies: not measured (remedy\\_trials=0)." in text
    assert len(none.remedies) == 1


def test_nearly_all_is_not_all():
    assert [percent(value) for value in (1, 0.997, 0.5, 0.002, 0)] == ["100 %", "over 99 %", "50 %", "under 1 %", "0 %"]
