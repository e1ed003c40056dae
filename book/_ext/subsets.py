"""For the page on data sets: which images the subsets have that the records name."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from overview import read, records_of
from render import table

from fedleak_book.experiments import notebooks

SHORT = 80
"""Characters of positions that the page shows; the file has all."""


def used() -> Iterator[dict[str, Any]]:
    """Yield the provenance of each subset of a data set that a record of the paper profile used."""
    for chapter in notebooks.chapters():
        for facts in records_of(chapter).values():
            yield from (dataset for dataset in facts["datasets"] if dataset["subset"])


def listed(subsets: list[dict[str, Any]]) -> str:
    """Return the table of the subsets of `data/subsets.toml`."""
    digests = [subset["digest"] for subset in used()]
    return table(
        pd.DataFrame(
            {
                "Subset": f"`{subset['name']}`",
                "Images": subset["images"],
                "Official split": subset.get("official", "–"),
                "Positions": subset.get("unknown") or abbreviated(subset["positions"]),
                "Digests": ", ".join(f"`{digest}`" for digest in subset["digests"]),
                "Records": sum(map(digests.count, subset["digests"])),
            }
            for subset in subsets
        )
    )


def abbreviated(positions: str) -> str:
    """Return positions where they are few, and how they begin where they are many."""
    return positions if len(positions) <= SHORT else positions[:SHORT].rpartition(" ")[0] + " …"


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    return {"subsets": listed(read("subsets")["subset"])}
