"""A published value for the tests of what is made of one."""

from fedleak.experiments.published import Published


def item(**changes):
    said = {"id": "a", "item": "Table 1", "anchor": "tab", "claim": "c", "where": "Sec. 1", "metric": "m", "why": "w"}
    return Published(**said | {"direction": "higher", "published": 0.9, "tolerance": 0.05, "attack": True} | changes)
