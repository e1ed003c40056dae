"""The front page's attack to touch: its script computes what the package computes, and it works by keyboard."""

import sys

import pytest
import torch

from fedleak import paths
from fedleak.attacks.labels import llg
from fedleak.federated import fedsgd

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
sys.path.insert(0, str(paths.root() / "book" / "_tools"))
import pages
import touch


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    try:
        pages.chromium()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    html = touch.fragment().removeprefix("```{raw} html").removesuffix("```\n")
    script = (paths.root() / "book" / "_static" / "touch.js").read_text(encoding="utf-8")
    file = tmp_path_factory.mktemp("touch") / "page.html"
    file.write_text(f"<!doctype html><title>x</title>{html}<script>{script}</script>", encoding="utf-8")
    with pages.browser() as page:
        pages.show(page, file)
        yield page


def test_the_script_finds_what_the_package_finds(page):
    model, x, y = touch.digits()
    generator = torch.Generator().manual_seed(3)
    sizes = torch.randint(1, touch.MOST + 1, (200,), generator=generator).tolist()
    batches = [torch.randint(len(y), (size,), generator=generator) for size in sizes]
    held = "JSON.parse(document.querySelector('.touch').dataset.held).digits"
    ran = page.evaluate(
        f"batches => batches.map(batch => {{ const sums = rowSums(batch.map(i => {held}[i]));"
        " return [sums, counted(llg(sums, batch.length).map(one => one.label))] })",
        [batch.tolist() for batch in batches],
    )
    for batch, (sums, named) in zip(batches, ran, strict=True):
        update = fedsgd(model, x[batch], y[batch])
        assert torch.tensor(sums) == pytest.approx(llg.class_gradients(update, model), rel=1e-4, abs=1e-6)
        assert named == llg.recover(update, model).tolist()


def test_a_batch_is_chosen_and_read_by_keyboard(page):
    assert "sums are negative" in page.locator(".told").inner_text()  # the reader guesses first
    page.locator(".touch input").press("End")
    page.locator(".clear").press("Enter")
    assert "empty" in page.locator(".told").inner_text()
    for label in (3, 3, 7):
        page.locator(f".choice button:has([alt='add a {label}'])").first.press("Enter")
    assert "In the batch: 3, 3, 7." in page.locator(".told").inner_text()
    page.locator(".touch input").press("Home")
    assert "sums are negative" in page.locator(".told").inner_text()
    assert page.locator(".touch svg").get_attribute("aria-label").count("class") == 10
    page.locator(".touch input").press("End")
    page.locator(".batch [aria-label='take out this 7']").press("Enter")
    assert "In the batch: 3, 3." in page.locator(".told").inner_text()
    page.locator(".random").press("Enter")
    assert page.locator(".batch button").count() == 8
