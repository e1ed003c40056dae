"""*Try the attack* on the front page, in a browser: its keyboard, what its script infers, and no JavaScript."""

import pages
import pytest
import torch
import touch

from fedleak.attacks.labels import llg
from fedleak.federated import fedsgd
from fedleak_book import paths


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The front page's part with its script and style, as a page."""
    static = paths.root() / "book" / "_static"
    css, script = ((static / name).read_text(encoding="utf-8") for name in ("custom.css", "touch.js"))
    front = (paths.root() / "book" / "index.md").read_text(encoding="utf-8")
    html = touch.fragments()["touch"].removeprefix("```{raw} html").removesuffix("```\n")
    html += front[front.index('<p class="control"') : front.index("</figure>")]
    text = f"<!doctype html><title>x</title><style>{css}</style>{html}<script>{script}</script>"
    path = tmp_path_factory.mktemp("touch") / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium(browser, alone):
    """One browser for all tests."""
    with pages.browser() as page:
        page.set_default_timeout(5000)
        yield page


@pytest.fixture(params=[pages.VIEWS[0], pages.VIEWS[-1]], ids=lambda view: "-".join(map(str, view)))
def page(request, chromium, file):
    """The page in each width and scheme, as it is at first."""
    pages.view(chromium, *request.param)
    pages.show(chromium, file)
    return chromium


def test_a_batch_is_chosen_and_attacked_by_keyboard(page):
    status = page.locator(".status")
    assert "sums are negative" in status.inner_text()  # the reader guesses first
    page.locator(".touch input").press("End")
    page.locator(".clear").press("Enter")
    assert "empty" in status.inner_text()
    for label in (3, 3, 7):
        page.locator(f".choice button:has([alt='add a {label}'])").first.press("Enter")
    assert "In the batch: 3, 3, 7." in status.inner_text()
    page.locator(".touch input").press("Home")
    assert "sums are negative" in status.inner_text()
    assert page.locator(".touch svg").get_attribute("aria-label").count("class") == 10
    page.locator(".touch input").press("End")
    page.locator(".batch [aria-label='take out this 7']").press("Enter")
    assert "In the batch: 3, 3." in status.inner_text()
    page.locator(".random").press("Enter")
    assert page.locator(".batch button").count() == 8


def test_the_script_infers_as_the_package(chromium, file):
    pages.show(chromium, file)
    model, x, y = touch.digits()
    generator = torch.Generator().manual_seed(3)
    sizes = torch.randint(1, touch.MOST + 1, (200,), generator=generator).tolist()
    batches = [torch.randint(len(y), (size,), generator=generator) for size in sizes]
    digits = "JSON.parse(document.querySelector('.touch').dataset.settings).digits"
    ran = chromium.evaluate(
        f"batches => batches.map(batch => {{ const sums = rowSums(batch.map(i => {digits}[i]));"
        " return [sums, counted(llg(sums, batch.length).map(({label}) => label))] })",
        [batch.tolist() for batch in batches],
    )
    for batch, (sums, inferred) in zip(batches, ran, strict=True):
        update = fedsgd(model, x[batch], y[batch])
        assert torch.tensor(sums) == pytest.approx(llg.class_gradients(update, model), rel=1e-4, abs=1e-6)
        assert inferred == llg.recover(update, model).tolist()


def test_without_javascript_nothing_can_be_pressed(chromium, file):
    still = chromium.context.browser.new_context(java_script_enabled=False, offline=True).new_page()
    still.goto(file.as_uri())
    assert still.locator("noscript").inner_text() == "Trying it needs JavaScript."
    assert not still.locator(".touch button, .touch input, .touch svg").filter(visible=True).count()
