"""The tools around the built book: PDF and accessibility check. What needs a browser is skipped without one."""

import sys

import pytest

from fedleak import paths

sys.path.insert(0, str(paths.root() / "book" / "_tools"))
import axe
import chromium
import pdf

PAGE = "<!doctype html><html lang=en><head><title>{0}</title></head><body><main><h1>{0}</h1>{1}</main></body></html>"


@pytest.fixture
def browser():
    try:
        chromium.find()
    except chromium.ChromiumMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A built book of two pages that link to each other, to a file and to elsewhere."""
    links = (
        '<p id=there>Hello</p><a href="b.html#there">b</a> <a href="x.zip">x</a> <a href="https://example.org/">e</a>'
    )
    (tmp_path / "a.html").write_text(PAGE.format("First", links))
    (tmp_path / "b.html").write_text(PAGE.format("Second", '<p id=there>World <a href="a.html">a</a></p>'))
    monkeypatch.setattr(pdf, "documents", lambda: ["a", "b"])
    return tmp_path


def test_a_missing_browser_is_named(monkeypatch, book, capsys):
    monkeypatch.setenv("CHROMIUM", "no-such-browser")
    with pytest.raises(chromium.ChromiumMissing, match=r"CHROMIUM=no-such-browser.*install one"):
        chromium.find()
    monkeypatch.setattr(sys, "argv", ["pdf.py", str(book), str(book / "out.pdf")])
    assert pdf.main() == 1
    assert "pdf: no Chromium found" in capsys.readouterr().err
    assert not (book / "out.pdf").exists()


def test_a_book_that_is_not_built_is_named(tmp_path, book, monkeypatch, capsys):
    (book / "b.html").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.html; build the book first"):
        pdf.print_book(book, tmp_path / "out.pdf")
    monkeypatch.setattr(sys, "argv", ["axe.py", str(tmp_path / "nothing")])
    assert axe.main() == 1
    assert "build the book first" in capsys.readouterr().err


def test_the_pdf_has_the_pages_in_the_order_of_the_contents():
    found = pdf.documents()
    assert found[0] == "book/index"
    assert len(found) == len(set(found))
    assert found.index("notebooks/llg") < found.index("book/scoreboard")


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
def test_pages_become_one_pdf_with_working_links(book):
    from pypdf import PdfReader

    out = book / "out" / "book.pdf"
    assert pdf.print_book(book, out) == 2
    reader = PdfReader(out)
    assert [item.title for item in reader.outline] == ["First", "Second"]
    assert "Hello" in reader.pages[0].extract_text()
    assert "World" in reader.pages[1].extract_text()
    first, second = ([one.get_object() for one in page.get("/Annots", ())] for page in reader.pages)
    assert [one["/A"]["/URI"] for one in first if "/A" in one] == ["https://example.org/"]
    assert [one["/Dest"][0].get_object() for one in first if "/Dest" in one] == [reader.pages[1].get_object()]
    assert [one["/Dest"][0].get_object() for one in second] == [reader.pages[0].get_object()]
    assert str(book).encode() not in out.read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
def test_axe_finds_what_is_wrong_and_only_that(book):
    pytest.importorskip("axe_core_python", reason="axe-core is not installed: pip install axe-core-python")
    assert axe.grave(book) == []
    (book / "b.html").write_text(PAGE.format("Second", '<img src="x.png"><p style="color:#ccc">faint</p>'))
    found = axe.grave(book)
    assert {(one["page"], one["id"]) for one in found} == {("b.html", "image-alt"), ("b.html", "color-contrast")}
    assert {(one["width"], one["dark"]) for one in found} == set(axe.VIEWS)
