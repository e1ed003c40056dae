"""The sliders' drawings: what they say is what they draw, and their script shows one of them, by keyboard as well."""

import re
import sys

import pytest

from fedleak import paths
from fedleak.experiments import notebooks

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
sys.path.insert(0, str(paths.root() / "book" / "_tools"))
import pages
import sliders

FRAMES = r'<div class="frame" data-at="[^"]+"( hidden)?>'


@pytest.mark.parametrize("name", sliders.SLIDERS)
def test_a_chapter_shows_its_slider(name):
    text = (paths.root() / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert name in notebooks.chapters()
    assert f"_generated/slider-{name}.md" in text


@pytest.mark.parametrize("name", sliders.SLIDERS)
def test_one_drawing_is_shown_at_first_and_every_one_is_said_in_words(name):
    slider = sliders.SLIDERS[name]()
    html = sliders.fragment(slider)
    hidden = [bool(found) for found in re.findall(FRAMES, html)]
    assert [i for i, one in enumerate(hidden) if not one] == [slider.start]
    assert len(hidden) == len(slider.frames) >= 5
    assert len({frame.words for frame in slider.frames}) > len(hidden) / 2
    assert len(html) < 50_000
    assert "nan" not in html


def test_the_angle_decides_what_is_recovered():
    said = [re.search(r"number ([\d,]+), (\d+) of 20", frame.words) for frame in sliders.angles().frames]
    conditions, right = ([int(one[k].replace(",", "")) for one in said] for k in (1, 2))
    assert conditions == sorted(conditions)
    assert right[0] == 20
    assert right[-1] < 10
    assert right.count(20) <= len(right) / 2, "it shows where something changes"


def test_the_bridge_arrives_at_what_is_withheld_and_at_the_labels():
    *_, below, above, last = [frame.words for frame in sliders.bridged().frames]
    off = [float(re.search(r"at most ([\d.]+)% of", words)[1]) for words in (below, above)]
    assert max(off) < 20
    right, size = map(int, re.search(r"(\d+) of (\d+) labels", last).groups())
    assert right >= 0.9 * size


def test_the_bars_end_at_the_marks():
    said = [
        float(found[1]) for f in sliders.system().frames if (found := re.search(r"off the marks by ([\d.]+)", f.words))
    ]
    assert said[0] > 1
    assert said[-1] == min(said) < 0.25


def test_every_attack_keeps_its_place():
    drawn = [
        re.findall(r">(original|DLG-Adam|InvG|AGIC)</text>", frame.drawing) for frame in sliders.iterations().frames
    ]
    assert all(names == ["original", "DLG-Adam", "InvG", "AGIC"] for names in drawn)


def test_the_arrow_keys_move_a_slider(tmp_path):
    try:
        pages.chromium()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    html = sliders.fragment(sliders.system()).removeprefix("```{raw} html").removesuffix("```\n")
    script = (paths.root() / "book" / "_static" / "sliders.js").read_text(encoding="utf-8")
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><title>x</title>{html}<script>{script}</script>", encoding="utf-8")
    with pages.browser() as page:
        pages.show(page, file)
        before = page.locator(".frame:visible").get_attribute("data-at")
        page.locator("input").press("ArrowRight")
        (shown,) = page.locator(".frame:visible").all()
        after = shown.get_attribute("data-at")
        said = page.locator("input").get_attribute("aria-valuetext")
    places = [frame.at for frame in sliders.system().frames]
    assert places.index(after) == places.index(before) + 1
    assert said.startswith(f"{after}: a sample of class")
