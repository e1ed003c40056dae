"""Five cartoons of equal layout, one per threat model: clients at the left, what they send, and the server."""

from html import escape
from typing import NamedTuple

from pictures import raw

WIDTH, HEIGHT, MIDDLE = 360, 140, 76


class Cartoon(NamedTuple):
    """A threat model: its title, the number of clients, the words of the three boxes, and where the attacker is."""

    title: str
    clients: int
    sent: tuple[str, ...]
    server: tuple[str, ...]
    attacker: str
    """``"wire"`` or ``"server"``."""
    sent_class: str = "wirebox"
    presets: bool = False
    """Whether the server sends each client a model of its choice."""


CARTOONS = (
    Cartoon("Eavesdropper: LLG", 1, ("one update,", "read on its way"), ("server", "honest"), "wire"),
    Cartoon("Curious server: RLU, AGIC", 1, ("one update",), ("server", "has the model"), "server"),
    Cartoon("Last layer withheld: GDBR", 1, ("one update", "without its", "last layer"), ("server",), "server"),
    Cartoon("Secure aggregation: arena", 3, ("the sum", "of all updates"), ("server", "curious"), "server", "withheld"),
    Cartoon("Malicious server: LIA-SA", 3, ("the sum", "of all updates"), ("server", "sets models"), "server",
            "withheld", True),
)  # fmt: skip


def box(x: float, y: float, width: float, height: float, lines: tuple[str, ...], look: str) -> str:
    """Return a box with its words in the middle."""
    first = y + height / 2 + 4.5 - 8 * (len(lines) - 1)
    words = "".join(
        f'<text x="{x + width / 2:g}" y="{first + 16 * i:g}" text-anchor="middle" class="small">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return f'<rect class="box {look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>{words}'


def arrow(start: tuple[float, float], end: tuple[float, float], tip: str) -> str:
    """Return an arrow."""
    (x, y), (u, v) = start, end
    return f'<path class="wire" d="M{x:g} {y:g}L{u:g} {v:g}" marker-end="url(#{tip})"/>'


def drawing(cartoon: Cartoon, number: int) -> str:
    """Return a cartoon as SVG."""
    tip = f"cartoon-tip-{number}"
    marker = f'<marker id="{tip}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    parts = [f'<defs>{marker}<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>']
    parts.append(f'<text x="{WIDTH / 2:g}" y="15" text-anchor="middle" class="head">{escape(cartoon.title)}</text>')
    parts.append(
        box(130, 42, 100, 68, cartoon.sent, f"{cartoon.sent_class} {'attacker' * (cartoon.attacker == 'wire')}")
    )
    parts.append(box(262, 42, 94, 68, cartoon.server, "attacker" * (cartoon.attacker == "server")))
    parts.append(arrow((230, MIDDLE), (260, MIDDLE), tip))
    for k in range(cartoon.clients):
        y = MIDDLE + 34 * (k - (cartoon.clients - 1) / 2)
        parts += [box(4, y - 13, 70, 26, ("client",), ""), arrow((74, y), (128, MIDDLE), tip)]
    if cartoon.presets:
        parts.append(f'<path class="wire" d="M309 110V136H39V126" marker-end="url(#{tip})"/>')
    words = ", ".join((cartoon.title, f"{cartoon.clients} clients" if cartoon.clients > 1 else "one client",
                       " ".join(cartoon.sent), " ".join(cartoon.server)))  # fmt: skip
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>'


def fragments() -> dict[str, str]:
    """Return the cartoons as one figure."""
    drawn = "".join(drawing(cartoon, number) for number, cartoon in enumerate(CARTOONS))
    caption = (
        "Who sees what, in five threat models. Red: the attacker. Dashed: secure aggregation, which hides single "
        "updates. The malicious server sends every client a model of its choice."
    )
    figure = f'<figure class="drawing schematic cartoons">{drawn}<figcaption>{caption}</figcaption></figure>'
    return {"cartoons": raw(figure)}
