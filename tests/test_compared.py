"""The page that compares fedleak with other code: what it says of recorded runs is what is recorded."""

import pandas as pd

from fedleak import paths

PAGE = (paths.root() / "book" / "compared.md").read_text(encoding="utf-8")


def rows(chapter, name):
    return pd.read_csv(paths.recorded(chapter) / f"{name}.csv")


def test_compression_real_and_as_released():
    found = rows("llg", "fig7").query("algorithm == 'FedSGD' and level == 0.8").groupby("defence")["asr"].mean()
    said = (
        f"LLG+ at θ = 0.8 names {found['sparse']:.2f} of the labels under real compression and {found['released']:.2f}"
    )
    assert said in PAGE


def test_the_released_rule_of_rlu():
    lost = -rows("rlu", "variants").query("form == 'released code'").groupby("setting")["gain"].mean()
    trained = lost.drop("untrained")
    assert (len(trained), lost["untrained"]) == (10, 0)
    assert f"by {trained.min():.2f} to {trained.max():.2f} in ten settings on trained networks" in PAGE
