"""What tests of published values and of pages share."""

import re

from fedleak_book.evidence.published import Published


def item(**changes):
    fields = {"id": "a", "item": "Table 1", "anchor": "tab", "claim": "c", "where": "Sec. 1", "metric": "m", "why": "w"}
    return Published(**fields | {"direction": "higher", "published": 0.9, "tolerance": 0.05, "attack": True} | changes)


def cells(table):
    """Return the cells of a Markdown table's lines, without the line under its head."""
    lines = [line.replace(r"\|", "¦") for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [line for line in rows if set("".join(line)) - {"-", ":"}]


def numbers(text):
    return [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
