"""What a lecture says of its rows: sentences whose numbers are filled in when the page is made, and trials' code."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any


class Number(float):
    """A measured number with its 95 % interval over n trials; ``f"{x:.2f}"`` shows it, ``f"{x:.2f ci}"`` both."""

    low: float
    high: float
    n: int

    def __new__(cls, value: float, low: float = math.nan, high: float = math.nan, n: int = 0) -> "Number":
        """Make a number of its value, the ends of its interval (NaN: none) and the number of trials."""
        made = super().__new__(cls, value)
        made.low, made.high, made.n = float(low), float(high), n
        return made

    def __format__(self, how: str) -> str:
        plain, _, more = how.partition(" ")
        if math.isnan(self):
            raise ValueError("a sentence names a number that was not measured")
        shown = format(float(self), plain)
        if more == "ci" and not math.isnan(self.low):
            shown += f" [{format(self.low, plain)}, {format(self.high, plain)}]"
        return shown.replace("-", "−")


def say(text: str) -> None:
    """Show Markdown whose numbers come from rows: ``say(f"LLG+ finds {found:.0%} of the labels.")``.

    In the book, in JupyterLab and on GitHub the cell shows the sentences; its code is hidden.
    """
    from IPython.display import Markdown, display

    display(Markdown(inspect.cleandoc(text)))


def source(trial: Callable[..., Any]) -> None:
    """Show the code of a trial."""
    say(f"```python\n{inspect.getsource(trial)}```")


def figure_of(row: Mapping[str, Any]) -> str:
    """Return the figure or table that a value is in; its panel only where the lecture shows it apart (``fig-x-5a``)."""
    item = str(row["item"])
    if not (found := re.match(r"((?:Fig\.|Table) ([0-9IVX]+))(?: \((\w)\))?", item)):
        return item.partition(" (")[0]
    apart = found[3] and str(row.get("anchor", "")).endswith(f"-{found[2]}{found[3]}")
    return found[0] if apart else found[1]


def slug(heading: str) -> str:
    """Return what a heading is linked by, on GitHub and in the book."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
