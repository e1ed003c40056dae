"""The tools around the built book: PDF, accessibility, pictures. What needs a browser is skipped without one."""

import pages
import pytest
from typer.testing import CliRunner

PAGE = "<!doctype html><html lang=en><head><title>{0}</title></head><body><main><h1>{0}</h1>{1}</main></body></html>"


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A built book of two pages that link to each other, to a file and to elsewhere."""
    links = '<p id=there>Hello</p><a href="b.html#there">b</a> <a href="x.zip">x</a>'
    links += '<a href="https://example.org/">e</a>'
    (tmp_path / "a.html").write_text(PAGE.format("First", links))
    (tmp_path / "b.html").write_text(PAGE.format("Second", '<p id=there>World <a href="a.html">a</a></p>'))
    monkeypatch.setattr(pages, "parse_toc_yaml", lambda _: ["a", "b"])
    monkeypatch.setattr(pages, "BUILD", tmp_path)
    return tmp_path


def test_a_book_that_is_not_built_is_named(tmp_path, book):
    (book / "b.html").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.html"):
        pages.pdf(book, tmp_path / "out.pdf")
    with pytest.raises(FileNotFoundError, match="no page"):
        pages.built(tmp_path / "nothing")


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
def test_pages_become_one_pdf_with_working_links(book):
    out = book / "out" / "book.pdf"
    pages.pdf(book, out)
    from pypdf import PdfReader

    reader = PdfReader(out)
    assert len(reader.pages) == 2
    assert [item.title for item in reader.outline] == ["First", "Second"]
    assert "Hello" in reader.pages[0].extract_text()
    assert "World" in reader.pages[1].extract_text()
    first, second = ([link.get_object() for link in page.get("/Annots", ())] for page in reader.pages)
    assert [link["/A"]["/URI"] for link in first if "/A" in link] == ["https://example.org/"]
    assert [link["/Dest"][0].get_object() for link in first if "/Dest" in link] == [reader.pages[1].get_object()]
    assert [link["/Dest"][0].get_object() for link in second] == [reader.pages[0].get_object()]
    assert str(book).encode() not in out.read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("browser")
def test_axe_finds_what_is_wrong_and_only_that(book):
    pytest.importorskip("axe_core_python", reason="axe-core is not installed: pip install axe-core-python")
    assert not [violation for violation in pages.violations(book) if violation["impact"] in pages.GRAVE]
    faint = "<style>@media (prefers-color-scheme: dark) { p { color: #ccc } }</style><p>faint</p>"
    (book / "b.html").write_text(PAGE.format("Second", f'<img src="x.png">{faint}'))
    grave = [violation for violation in pages.violations(book, ["b"]) if violation["impact"] in pages.GRAVE]
    where = {(violation["id"], violation["width"], violation["scheme"]) for violation in grave}
    assert where == {("image-alt", *violation) for violation in pages.VIEWS[:3]} | {("color-contrast", 1300, "dark")}
    ran = CliRunner().invoke(pages.app, ["axe", "b", "--html", str(book)])
    assert ran.exit_code == 1
    assert "critical: b.html (420 px, light): image-alt" in ran.output
    assert "4 serious or critical violations" in ran.output
