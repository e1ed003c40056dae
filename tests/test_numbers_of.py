"""The comparison of the numbers of two built books."""

import numbers_of
from typer.testing import CliRunner

PAGE = "<html><head><title>9</title></head><body><nav>7</nav><p>{}</p></body></html>"


def test_numbers_that_changed_are_listed_by_page(tmp_path):
    texts = {
        "before": {"a": "1,000 of ResNet18, \u22120.5 or 85\u00a0%", "b": "3 and 3", "gone": "4"},
        "after": {"a": "85% and -0.5: <b>1000</b>", "b": "3 and 2", "new": "5e-06"},
    }
    for book, pages in texts.items():
        (tmp_path / book).mkdir()
        for name, text in pages.items():
            (tmp_path / book / f"{name}.html").write_text(PAGE.format(text), encoding="utf-8")
    rows = numbers_of.compared(tmp_path / "before", tmp_path / "after")
    assert [row for row in rows if row[2] == row[3]] == [("a.html", n, 1, 1) for n in ("-0.5", "1000", "85%")]
    assert [row for row in rows if row[2] != row[3]] == [
        ("b.html", "2", 0, 1),
        ("b.html", "3", 2, 1),
        ("gone.html", "4", 1, 0),
        ("new.html", "5e-06", 0, 1),
    ]
    app = numbers_of.typer.Typer()
    app.command()(numbers_of.main)
    result = CliRunner().invoke(app, [str(tmp_path / "before"), str(tmp_path / "after")])
    assert (result.exit_code, "4 of 7 numbers changed" in result.stdout, "85%" in result.stdout) == (1, True, False)
    assert CliRunner().invoke(app, [str(tmp_path / "after"), str(tmp_path / "after")]).exit_code == 0
