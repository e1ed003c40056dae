"""Draw the map of the threat models: one round of federated learning, and which attack stands where in it.

The attacks come from the package's registry. The drawing is SVG inside the page, so that it takes the page's colours,
light or dark; it is narrow and its text wraps, so that it can be read on a telephone.
"""

import textwrap
from collections.abc import Iterable
from html import escape

from generated import keep
from sphinx.application import Sphinx

from fedleak.attacks import registry
from fedleak.attacks.registry import Adversary, Attack

WIDTH, LINE, LETTERS = 420, 19, 46
"""Width of the drawing, height of a line of text and letters in it."""

PLACES = (
    (
        "Sees one client’s update",
        "a passive server without secure aggregation, or an eavesdropper",
        (
            (registry.NOBODY, "No gradients"),
            (registry.EAVESDROPPER, "The gradients alone"),
            (registry.WHITE_BOX, "Also the model"),
            (registry.WITH_AUXILIARY, "Also auxiliary data"),
        ),
    ),
    (
        "Sees an update without its last layer",
        "partial encryption, or a head that stays with the client",
        ((registry.RESTRICTED, "A lower layer, the model, auxiliary data"),),
    ),
    (
        "Sees the sum only, and changes the model",
        "a malicious server behind secure aggregation",
        ((registry.MALICIOUS_AGGREGATOR, "The aggregate and the model"),),
    ),
)


def first_possible(attacks: Iterable[Attack], steps: Iterable[tuple[Adversary, str]]) -> list[tuple[str, list[Attack]]]:
    """Put each attack under the first of these adversaries who can run it; those whom none can run are left out."""
    left, found = list(attacks), []
    for adversary, words in steps:
        can = [attack for attack in left if not attack.lacking(adversary)]
        left = [attack for attack in left if attack not in can]
        found.append((words, can))
    return found


def named(attacks: list[Attack], goal: str) -> list[str]:
    """Return the lines that name the attacks with this goal."""
    names = " · ".join(attack.name for attack in attacks if attack.goal == goal)
    return textwrap.wrap(f"{goal}: {names}", LETTERS, subsequent_indent="  ") if names else []


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return one line of text."""
    indent = 2.5 * (len(words) - len(words.lstrip()))
    return f'<text x="{x + indent:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words.strip())}</text>'


def box(y: float, height: float, kind: str) -> str:
    """Return a box over the whole width."""
    return f'<rect x="1" y="{y:g}" width="{WIDTH - 2}" height="{height:g}" rx="8" class="{kind}"/>'


def arrow(y: float, words: str) -> str:
    """Return an arrow downwards with words beside it."""
    x = 40
    return f'<path d="M{x} {y:g} v26 m-6 -8 l6 8 l6 -8" class="arrow"/>{text(x + 16, y + 18, words, "small")}'


def panel(y: float, title: str, subtitle: str, groups: list[tuple[str, list[Attack]]]) -> tuple[str, float]:
    """Return the box of one place in the round, and where it ends."""
    start, parts = y, []
    y += 24
    parts.append(text(14, y, title, "title"))
    for words in textwrap.wrap(subtitle, LETTERS + 6):
        y += LINE
        parts.append(text(14, y, words, "small"))
    for words, attacks in groups:
        lines = named(attacks, "labels") + named(attacks, "images")
        if lines:
            y += LINE + 6
            parts.append(text(14, y, words, "has"))
            for found in lines:
                y += LINE
                parts.append(text(28, y, found))
    y += 14
    return box(start, y - start, "place") + "".join(parts), y


def threat_map() -> str:
    """Return the map as a figure for a Markdown page."""
    attacks = registry.all_attacks()
    ways = ("the update as it is", "or: without its last layer", "or: through secure aggregation, the sum of all")
    y, parts = 1.0, []
    third = (WIDTH - 2 - 2 * 12) / 3
    for i, words in enumerate(("client 1", "client 2", "client U")):
        x = 1 + i * (third + 12)
        parts.append(f'<rect x="{x:g}" y="1" width="{third:g}" height="46" rx="8" class="actor"/>')
        parts += [
            text(x + third / 2, 21, words, "title", "middle"),
            text(x + third / 2, 38, "own data", "small", "middle"),
        ]
    y += 46
    for way, (title, subtitle, steps) in zip(ways, PLACES, strict=True):
        parts.append(arrow(y, way))
        drawn, y = panel(y + 28, title, subtitle, first_possible(attacks, steps))
        parts.append(drawn)
    parts.append(arrow(y, "in every case"))
    y += 28
    parts += [box(y, 46, "actor"), text(WIDTH / 2, y + 20, "server", "title", "middle")]
    parts.append(text(WIDTH / 2, y + 38, "combines updates, sends the next model to the clients", "small", "middle"))
    y += 47
    summary = "; ".join(
        f"{title}: {', '.join(a.name for _, can in first_possible(attacks, steps) for a in can) or 'none'}"
        for title, _, steps in PLACES
    )
    drawing = (
        f'<svg class="threat-map" viewBox="0 0 {WIDTH} {y:g}" role="img" '
        f'aria-labelledby="threat-map-title threat-map-text" xmlns="http://www.w3.org/2000/svg">'
        '<title id="threat-map-title">Where each attack stands in a round</title>'
        f'<desc id="threat-map-text">{escape(summary)}.</desc>{"".join(parts)}</svg>'
    )
    return f"{drawing}\n"


def write(app: Sphinx) -> None:
    """Write the fragment."""
    keep(app, {"threat_map": threat_map()})


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
