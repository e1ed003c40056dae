"""The front page's and the README's findings: their pictures and their numbers are those of the records."""

import re
import sys
from collections import Counter
from html import unescape

import pytest

from fedleak import paths
from fedleak.experiments.status import COUNTED

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
sys.path.insert(0, str(paths.root() / "book" / "_tools"))
import findings
import pictures

FOUND = dict(findings.pictures())
PAGES = [paths.root() / "book" / "index.md", paths.root() / "README.md"]


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_the_committed_picture_is_of_todays_records(path):
    drawn = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(encoding="utf-8"), re.S)
    assert unescape(drawn[1]) == FOUND[path].says()


def said():
    """Every sentence with a number, from the pictures' own lines."""
    clients, compression, relu, guess, training = (one.lines for one in FOUND.values())
    counts = clients.loc[100]
    assert counts["a random vector"] == 1
    yield f"{counts['one constant']:.0%} of the counts of 100 clients right"
    share = compression.loc[32]
    yield f"finds {share['compression, 80 %']:.0%} of the labels of a batch of 32"
    yield f"leaves {share['as released, 80 %']:.0%}"
    lost = relu.loc[16]
    yield f"{lost['ResNet20, one ReLU more']:.0%} of the labels of a batch of 16"
    yield f"without it {lost['ResNet20, as released']:.0%}"
    printed, free = guess.drop(columns="a guess without gradient"), guess["a guess without gradient"]
    ends = printed.agg(["min", "max"], axis=1).mul(100).round().astype(int)
    yield "prints {} to {} % where labels are random".format(*ends.loc["random"])
    yield "{} to {} % where they are even".format(*ends.loc["uniform"])
    yield f"{free['random']:.0%} and {free['uniform']:.0%}"
    least = training.loc[8]
    yield f"finds {least['best published attack']:.0%} of the labels of unbalanced batches of 8"
    yield f"learns from simulated clients finds {least['learned attacker']:.0%}, a guess {least['a guess']:.0%}"
    most = training.loc[512]
    three = [f"{most[who]:.0%}" for who in ("best published attack", "learned attacker", "a guess")]
    yield "of batches of 512 it is {}, {} and {}".format(*three)


def test_where_the_learned_attacker_ends():
    found = findings.rows("learned", "judged").pivot_table(
        index=["data", "batch_size", "composition"], columns="attack", values="iacc"
    )
    assert (found["SPEAR"]["CIFAR-10", 8] == 1).all()
    even = found.loc["MNIST"].xs("balanced", level="composition").loc[32:]
    behind = 100 * (even["prior guess"] - even["learned"])
    front = " ".join(PAGES[0].read_text(encoding="utf-8").split())
    assert f"the one that learns trails it on MNIST by {behind.min():.0f} to {behind.max():.0f} on the mean." in front
    large = found.xs("balanced", level="composition").query("batch_size > 8")
    rivals = large.drop(columns=["learned", "RLU, whole head", "prior guess", "random guess"]).max(axis=1)
    most = 100 * (rivals - large["prior guess"]).max()
    assert f"from 32 on the best published attack is at most {most:.0f} points above the guess" in front


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_sentences_say_what_the_pictures_show(page):
    text = " ".join(page.read_text(encoding="utf-8").split())
    missing = [words for words in said() if words.replace("%", " %").replace("  %", " %") not in text]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_finding_has_its_picture(page):
    text = page.read_text(encoding="utf-8")
    assert all(f"{path.parent.name}/{path.name})" in text for path in FOUND)


def test_every_value_is_a_square_of_its_status():
    rows = [{"status": status, "beyond": False} for status in COUNTED for _ in range(7)]
    html = pictures.statuses([{"title": "A: b", "rows": [*rows, {**rows[0], "beyond": True}]}])
    strip, legend = html.split("<ul")
    assert Counter(re.findall(r'class="status-(\w+)"', strip)) == dict.fromkeys(COUNTED.values(), 7)
    assert re.findall(r"<b>(\d+)</b>", legend) == ["7"] * len(COUNTED)
    assert set(pictures.WORDS) == set(COUNTED.values())
    assert f"A, {len(rows)} values" in strip
    assert "7 not attempted" in strip
