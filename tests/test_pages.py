"""The built pages: their links, pictures and search, and that they load and name nothing from elsewhere."""

import html.parser
import logging
import subprocess
import sys
from urllib.parse import unquote, urlsplit

import nbformat
import pages as tools
import pytest
import yaml

from fedleak_book import paths
from fedleak_book.pages import notebooks

pytestmark = pytest.mark.slow

VIEWS = (*tools.VIEWS, *((width, "light") for width in (320, 768, 1024, 1199)))
"""Where the pages are looked at: phones, tablets, half a screen of a laptop, with the theme's breaks."""


class Page(html.parser.HTMLParser):
    """The ids, links and loaded files of one page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads, self.unnamed = set(), set(), set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attribute = dict(attributes)
        self.ids.update(filter(None, [attribute.get("id"), attribute.get("name") if tag == "a" else None]))
        if tag == "a" and attribute.get("href"):
            self.links.add(attribute["href"])
        if tag in ("script", "img", "iframe", "source") and attribute.get("src"):
            self.loads.add(attribute["src"])
        if tag == "link" and attribute.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.add(attribute["href"])
        if tag == "img" and not attribute.get("alt"):
            self.unnamed.append(attribute.get("src"))


def is_outside(link):
    return bool(urlsplit(link).scheme) or link.startswith("//")


@pytest.fixture(scope="module")
def pages():
    """Build the book as `fedleak book` does, and read its pages."""
    logging.getLogger("papermill").setLevel(logging.WARNING)
    front = notebooks.build_book()
    files = [path for path in front.parent.rglob("*.html") if "_static" not in path.parts]
    return {path.resolve(): Page(path) for path in files}


def test_internal_links_lead_somewhere(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if is_outside(link):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].ids if target in pages else {parts.fragment}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append((path.name, link))
    assert not broken


def test_pages_load_nothing_from_elsewhere(pages):
    for path, page in pages.items():
        assert not [load for load in page.loads if is_outside(load) and not load.startswith("data:")], path
        for load in page.loads:
            if not is_outside(load):
                assert (path.parent / urlsplit(load).path).exists(), (path, load)


def test_pages_describe_pictures_and_name_no_machine_or_foreign_repository(pages):
    own = yaml.safe_load((paths.root() / "_config.yml").read_text())["repository"]["url"]
    for path, page in pages.items():
        assert not page.unnamed, path.name
        text = path.read_text(encoding="utf-8")
        assert str(paths.root()) not in text, path.name
        assert "executablebooks/jupyter-book" not in text  # what Jupyter Book puts there by itself
        assert own or "fa-rocket" not in text


def test_downloads_have_their_outputs_and_a_second_build_executes_nothing(pages):
    assert pages
    for name in notebooks.pages():
        assert not notebooks.is_stale(name, notebooks.QUICK)
        offered = paths.root() / "_build" / "html" / "_sources" / "notebooks" / f"{name}.ipynb"
        notebook = nbformat.read(offered, as_version=4)
        assert any(cell.get("outputs") for cell in notebook.cells)
        assert str(paths.root()) not in offered.read_text(encoding="utf-8")


def test_axe_finds_no_serious_violation(pages):
    """On a page of every kind; `make axe` looks at all of them."""
    pytest.importorskip("axe_core_python", reason="axe-core is not installed: pip install axe-core-python")
    assert pages
    check = paths.root() / "book" / "_tools" / "pages.py"
    kinds = [f"book/{name}" for name in ("index", "threat_models", "audit", "glossary", "coursework/05_agic")]
    command = [sys.executable, check, "axe", *kinds, "notebooks/agic"]
    done = subprocess.run(command, cwd=paths.root(), capture_output=True, text=True, check=False)
    if "no Chromium found" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def shown(pages, browser):
    """Yield each page of the book in a browser, in each width and scheme, with what its console logs as errors."""

    def each():
        with tools.browser() as page:
            errors = []
            page.on("console", lambda message: message.type == "error" and errors.append(message.text))
            page.on("pageerror", lambda error: errors.append(str(error)))
            for file in tools.built(paths.root() / "_build" / "html"):
                if 'http-equiv="refresh"' in file.read_text(encoding="utf-8").lower():
                    continue  # it sends the reader to the front page, which has its turn
                errors.clear()
                tools.view(page, *tools.VIEWS[0])
                tools.show(page, file)
                for view in VIEWS:
                    tools.view(page, *view)
                    yield page, f"{file.stem}, {view[0]} px, {view[1]}", errors

    return each


def slid(page):
    """Move each slider of a page to each of its places, and return the places that do not show one drawing in view."""
    return page.evaluate("""() => [...document.querySelectorAll('.slider')].flatMap(figure => {
      const input = figure.querySelector('input'), visible = frame => !frame.hidden && frame.clientHeight > 0;
      const frames = [...figure.querySelectorAll('.frame')];
      return frames.map((_, place) => {
        input.value = place;
        input.dispatchEvent(new Event('input'));
        const [frame, ...more] = frames.filter(visible), outside = figure.getBoundingClientRect().right > innerWidth;
        return more.length || frame !== frames[place] || outside ? `slider at ${place}` : '';
      }).filter(Boolean);
    })""")


def test_no_page_logs_an_error_or_is_too_wide(shown):
    faults, sliders = [], 0
    for page, place, errors in shown():
        faults += [f"{place}: {error}" for error in errors]
        faults += [f"{place}: {fault}" for fault in slid(page)]
        sliders += page.locator(".slider").count()
        if (wide := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
            faults.append(f"{place}: {wide} px too wide")
    assert faults == []
    assert sliders >= 4 * len(VIEWS)


def test_schematics_have_colours_without_javascript(pages, browser):
    assert pages
    file = paths.root() / "_build" / "html" / "notebooks" / "llg.html"
    with tools.browser(javascript=False) as page:
        tools.view(page, *tools.VIEWS[0])
        page.goto(file.as_uri())
        box = page.locator(".schematic .box").first
        fill, ink = (box.evaluate(f"box => getComputedStyle(box).{name}") for name in ("fill", "color"))
        assert fill not in ("rgb(0, 0, 0)", ink)
