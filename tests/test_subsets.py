"""The list of subsets: as many images as the records say, each once and within its split."""

import sys

import pytest

from fedleak import paths

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import overview
import subsets

LISTED = overview.read("subsets")["subset"]


def positions(text):
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("one", LISTED, ids=lambda one: f"{one['name']}, {one['images']}")
def test_a_subset_has_its_images_once_and_within_the_split(one):
    if "unknown" in one:
        assert "positions" not in one
        return
    found = list(positions(one["positions"]))
    assert len(found) == len(set(found)) == one["images"]
    start = one["official"].startswith("files")
    assert start <= min(found) <= max(found) < start + int(one["official"].split(", ")[1].replace(",", ""))


def test_a_subset_of_the_list_is_one_of_the_records():
    recorded = {(one["name"], one["images"], one["digest"]) for one in subsets.used()}
    assert {(one["name"], one["images"], digest) for one in LISTED for digest in one["digests"]} <= recorded


def test_the_page_shows_short_positions_whole_and_the_beginning_of_long_ones():
    lines = {line.split(" | ")[0]: line for line in subsets.listed(LISTED).splitlines()}
    assert "| 1,117 | train, 50,000 | 0-1116 |" in lines["| `cifar100/train`"]
    assert " …" in lines["| `tiny-imagenet/train`"]
    assert "without its official file name" in lines["| `imagenet/all`"]
