"""A chapter of its own, in a checkout of its own."""

import sys

import pytest
from fresh_modules import forget

from fedleak_book import paths

EXPERIMENTS = '''
"""A tiny chapter."""

import random

from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import MEAN, NUMBER

LOG = []


def drawn(ctx, seed, net, size, shift=0.0):
    """One number of a seed."""
    LOG.append((net, size, seed))
    ctx.images("synthetic", shape=(1, 4, 4), n_classes=3, count=6)
    for rule in ("ours", "theirs"):
        yield {"rule": rule, "iacc": random.Random(seed + size).random() / 2 + shift * (rule == "ours"), "images": 6}


def many(ctx, seeds, net):
    """All seeds at once."""
    LOG.append(list(seeds))
    for seed in reversed(seeds):
        yield {"seed": seed, "value": seed % 7}


TABLE1 = Experiment(
    "table1",
    drawn,
    quick=grid(net="a", size=[1, 2]),
    paper=grid(net="a", size=[1, 2], trials=4) + grid(net="b", size=1),
    values={"iacc": MEAN},
    trials=(2, 3),
    by="rule",
    facts="images",
    fixed=dict(shift=0.25, side=32),
)
FAST = Experiment("fast", many, quick=grid(net="a"), paper=grid(net="a"), values={"value": NUMBER}, trials=(30, 60))
'''
CLAIMS = """
from fedleak_book.evidence.claims import Claims
from fedleak_book.experiments.kinds import DIFFERENCE

CLAIMS = Claims()
NET_A = {"net": "a"}
CLAIMS.add("ahead", lambda t: (t["ours"] - t["theirs"]).min(), "table1", wide="rule", filters=NET_A, kind=DIFFERENCE)
CLAIMS.add("never", None, note="takes a GPU")
CLAIMS.add("count", lambda: 5)
"""
CLAIM = """
[[claim]]
id = "{id}"
item = "Table 1 ({id})"
anchor = "tab-tiny-1"
claim = "c"
where = "Sec. 1"
metric = "m"
direction = "higher"
kind = "at least"
published = 0.1
tolerance = 0.0
why = "w"
table = "{table}"
"""
TABLES = """
title = "Tiny"
key = "tiny2020"
[table1]
keys = ["net", "size"]
axes = { net = ["a"], size = [1, 2] }
fixed = { side = 32, images = 6.0 }
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The chapter's experiments; edit its files by ``write``."""
    (tmp_path / "fedleak").mkdir()
    for folder in ("notebooks/tiny", "data/published/tiny", "book"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "_toc.yml").touch()
    (tmp_path / "notebooks/tiny/experiments.py").write_text(EXPERIMENTS)
    (tmp_path / "notebooks/tiny/claims.py").write_text(CLAIMS)
    claims = [("ahead", "table1"), ("never", ""), ("count", "")]
    (tmp_path / "data/published/tiny/claims.toml").write_text("".join(CLAIM.format(id=i, table=t) for i, t in claims))
    (tmp_path / "data/published/tiny/tables.toml").write_text(TABLES)
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("FEDLEAK_CACHE", str(tmp_path / "units"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    forget()
    yield tmp_path
    forget()
