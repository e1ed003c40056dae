"""Print the built book into one PDF: `python book/_tools/pdf.py [HTML_FOLDER] [OUT.pdf]`.

Chromium prints page by page, in the order of the table of contents. A link to another page of the book leads to that
page's beginning in the PDF; links to other files of the book (downloads) are taken out.
"""

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from chromium import Chromium, ChromiumMissing
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject, NullObject

from fedleak import paths

PREPARE = """for (const one of document.querySelectorAll('details.sd-dropdown')) one.open = true;
document.querySelector('#jb-print-toc')?.remove();
for (const one of document.querySelectorAll('h1 .headerlink')) one.remove();
const columns = [...document.querySelectorAll('.wide-table table')].map((table) => table.rows[0].cells.length);
({title: document.querySelector('.bd-article h1')?.textContent ?? document.title, wide: Math.max(0, ...columns) > 7})"""
"""Opens what is folded (but not the code that the chapters hide); returns the title, and whether a table is wide."""


def documents() -> list[str]:
    """Return the names of the book's pages in reading order."""

    def names(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from (node[key] for key in ("root", "file") if key in node)
            for value in node.values():
                yield from names(value)
        elif isinstance(node, list):
            for value in node:
                yield from names(value)

    return list(names(yaml.safe_load((paths.root() / "_toc.yml").read_text(encoding="utf-8"))))


def relink(writer: PdfWriter, starts: dict[Path, int]) -> None:
    """Lead links to pages of the book to where they begin in the PDF, and take out those to other local files."""
    for page in writer.pages:
        kept = ArrayObject()
        for one in page.get("/Annots") or ():
            link = one.get_object()
            address = urlsplit(str(link.get("/A", {}).get("/URI", "")))
            if address.scheme == "file":
                start = starts.get(Path(unquote(address.path)))
                if start is None:
                    continue
                where = [writer.pages[start].indirect_reference, NameObject("/XYZ"), *(NullObject(),) * 3]
                del link["/A"]
                link[NameObject("/Dest")] = ArrayObject(where)
            kept.append(one)
        if kept:
            page[NameObject("/Annots")] = kept
        elif "/Annots" in page:
            del page["/Annots"]


def print_book(folder: Path, out: Path) -> int:
    """Write the PDF and return its number of pages.

    Raises
    ------
    FileNotFoundError
        If a page of the table of contents has not been built.
    ChromiumMissing
        If there is no browser.
    """
    files = [folder.resolve() / f"{name}.html" for name in documents()]
    if missing := [file.name for file in files if not file.is_file()]:
        raise FileNotFoundError(f"not in {folder}: {', '.join(missing)}; build the book first (make book)")
    writer, starts = PdfWriter(), {}
    with Chromium() as browser:
        for file in files:
            browser.open(file)
            browser.view()
            page = browser.run(PREPARE)
            starts[file] = len(writer.pages)
            printed = PdfReader(io.BytesIO(browser.pdf(landscape=page["wide"])))
            writer.append(printed, outline_item=page["title"].strip(), import_outline=False)
    relink(writer, starts)
    writer.add_metadata({"/Title": "fedleak: what a federated-learning update gives away"})
    writer.compress_identical_objects()
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("wb") as stream:
        writer.write(stream)
    return len(writer.pages)


def main() -> int:
    """Print the book; return how to exit."""
    parser = argparse.ArgumentParser(description="Print the built book into one PDF.")
    parser.add_argument("folder", nargs="?", type=Path, default=paths.root() / "_build" / "html")
    parser.add_argument("out", nargs="?", type=Path, default=paths.root() / "_build" / "fedleak.pdf")
    asked = parser.parse_args()
    try:
        pages = print_book(asked.folder, asked.out)
    except (ChromiumMissing, FileNotFoundError) as error:
        print(f"pdf: {error}", file=sys.stderr)
        return 1
    print(f"wrote {asked.out}, {pages} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
