"""Look at the built book in the installed Chromium: `python book/_tools/pages.py pdf | axe [PAGE...]`.

A page goes by its name in the table of contents, such as ``notebooks/llg``.
"""

import io
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer
from sphinx_external_toc.parsing import parse_toc_yaml

from fedleak_book import paths

if TYPE_CHECKING:  # the tests import this module, most of them without a browser
    from playwright.sync_api import Page
    from pypdf import PdfWriter

BUILD = paths.root() / "_build"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VIEWS = ((1300, "light"), (1300, "dark"), (420, "light"), (420, "dark"))
GRAVE = ("serious", "critical")
READY = "() => Promise.all([window.MathJax?.startup?.promise, document.fonts.ready]).then(() => null)"
"""Waits until a page's equations are set."""
UNCOLOURED = "() => [...document.querySelectorAll('.highlight pre')].slice(5).forEach(one => one.textContent += '')"
"""Takes the colours off all code blocks but five: axe would look at every word of hundreds of them."""
UNFOLDED = """() => {
  document.querySelectorAll('details.sd-dropdown').forEach(one => one.open = true);
  document.querySelectorAll('#jb-print-toc, h1 .headerlink').forEach(one => one.remove());
  const columns = [...document.querySelectorAll('.wide-table table')].map(table => table.rows[0].cells.length);
  const title = document.querySelector('.bd-article h1')?.textContent ?? document.title;
  return [title.trim(), Math.max(0, ...columns) > 7];
}"""
"""Opens what is folded (but not the code that the chapters hide); returns the title, and whether a table is wide."""

app = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False)


def chromium() -> str:
    """Return the browser's path: what the variable ``CHROMIUM`` names, or the first of the usual names.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    asked = os.environ.get("CHROMIUM")
    browser = next(filter(None, map(shutil.which, [asked] if asked else NAMES)), None)
    if browser is None:
        looked = asked or ", ".join(NAMES)
        raise FileNotFoundError(f"no Chromium found ({looked}): apt install chromium, or name one in CHROMIUM")
    return browser


@contextmanager
def browser(javascript: bool = True) -> Iterator["Page"]:
    """Start Chromium without a network, and with or without JavaScript; yield its one page."""
    from playwright.sync_api import sync_playwright

    switches = ["--disable-gpu", "--disable-quic", "--allow-file-access-from-files"]
    path = chromium()
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=switches) as started:
        yield started.new_page(offline=True, java_script_enabled=javascript)


def show(page: "Page", file: Path) -> None:
    """Open a built page and wait until its equations are set."""
    page.goto(file.as_uri())
    page.evaluate(READY)


def view(page: "Page", width: int, scheme: str) -> None:
    """Show the open page at a width in pixels, light or dark."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")


def built(html: Path, names: Sequence[str] = ()) -> list[Path]:
    """Return the files of these pages, by default of all.

    Raises
    ------
    FileNotFoundError
        If one has not been built, or none has.
    """
    html = html.resolve()
    files = [html / f"{name.removesuffix('.html')}.html" for name in names]
    files = files or sorted(file for file in html.rglob("*.html") if "_static" not in file.relative_to(html).parts)
    missing = [file.relative_to(html).as_posix() for file in files if not file.is_file()]
    if missing or not files:
        raise FileNotFoundError(f"{', '.join(missing) or 'no page'} in {html}: build the book first (make book)")
    return files


def relink(writer: "PdfWriter", starts: dict[Path, int]) -> None:
    """Lead links to pages of the book to where they begin in the PDF, and take out those to other local files."""
    from pypdf.generic import ArrayObject, Fit, NameObject

    for page in writer.pages:
        annotations = ArrayObject()
        for annotation in page.get("/Annots") or ():
            link = annotation.get_object()
            address = urlsplit(str(link.get("/A", {}).get("/URI", "")))
            if address.scheme == "file":
                start = starts.get(Path(unquote(address.path)))
                if start is None:
                    continue
                del link["/A"]
                target = [writer.pages[start].indirect_reference, NameObject("/XYZ"), *Fit.xyz().fit_args]
                link[NameObject("/Dest")] = ArrayObject(target)
            annotations.append(annotation)
        page[NameObject("/Annots")] = annotations


@app.command()
def pdf(html: Path = BUILD / "html", out: Path = BUILD / "fedleak.pdf") -> None:
    """Print the book into one PDF, page by page in the order of the contents.

    A link to another page of the book leads to where that begins in the PDF; links to downloads are taken out.
    """
    from pypdf import PdfReader, PdfWriter

    writer, starts = PdfWriter(), {}
    margin = dict.fromkeys(("top", "bottom", "left", "right"), "0.6in")
    files = built(html, list(parse_toc_yaml(paths.root() / "_toc.yml")))
    with browser() as page:
        for file in files:
            show(page, file)
            title, wide = page.evaluate(UNFOLDED)
            starts[file] = len(writer.pages)
            printed = page.pdf(format="A4", landscape=wide, print_background=True, margin=margin)
            writer.append(PdfReader(io.BytesIO(printed)), outline_item=title, import_outline=False)
    relink(writer, starts)
    writer.add_metadata({"/Title": "fedleak: what a federated-learning update gives away"})
    writer.compress_identical_objects()
    out.parent.mkdir(parents=True, exist_ok=True)
    writer.write(out)
    print(f"wrote {out}, {len(writer.pages)} pages")


def violations(html: Path, names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield axe-core's violations on the pages (by default all), each with its page, width and scheme."""
    from axe_core_python.sync_playwright import Axe

    with browser() as page:
        page.route(re.compile("mathjax"), lambda route: route.abort())  # tens of thousands of elements, not ours
        for file in built(html, names):
            show(page, file)
            page.evaluate(UNCOLOURED)
            for width, scheme in VIEWS[:3]:
                view(page, width, scheme)
                about = {"page": file.relative_to(html.resolve()).as_posix(), "width": width, "scheme": scheme}
                results = Axe().run(page, options={"resultTypes": ["violations"]})
                yield from (about | violation for violation in results["violations"])


@app.command()
def axe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PAGE]...")] = None, html: Path = BUILD / "html"
) -> None:
    """List the violations of accessibility, light and dark, wide and narrow; fail if one is serious or critical."""
    count = Counter()
    for violation in violations(html, names or ()):
        count[violation["impact"] in GRAVE] += 1
        print("{impact}: {page} ({width} px, {scheme}): {id}, {help}".format_map(violation))
        for node in violation["nodes"][:5]:
            print("   ", *node["target"])
        if (more := len(violation["nodes"]) - 5) > 0:
            print(f"    and {more} more")
    print(f"{count[True]} serious or critical violations, {count[False]} lesser ones")
    raise typer.Exit(int(count[True] > 0))


if __name__ == "__main__":
    try:
        app()
    except (FileNotFoundError, ModuleNotFoundError) as error:
        sys.exit(f"pages: {error}")
