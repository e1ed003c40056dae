"""Elements of a slider's drawings."""

from collections.abc import Iterable

from torch import Tensor

from notebooks.film import WIDTH, Frame, Slider, text

__all__ = ["FLOOR", "WIDTH", "Frame", "Slider", "bar", "chart", "pairs", "rule", "text"]
FLOOR = 190


def bar(x: float, base: float, height: float, width: float, kind: str) -> str:
    """Return a bar that rises from its base, or hangs below it where the height is negative."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{base - max(height, 0):.1f}" width="{width:.1f}"'
        f' height="{abs(height):.1f}"/>'
    )


def rule(y: float, start: float = 30, end: float = WIDTH - 10) -> str:
    """Return a horizontal line."""
    return f'<path class="axis" d="M{start:.0f} {y:.1f}H{end:.0f}"/>'


def chart(
    names: tuple[str, str], most: float, ticks: Iterable[float], classes: Iterable[tuple[float, str, int]]
) -> str:
    """Return a bar per class, up or down from zero, of at most `most`, and below it a dot for each of its samples.

    `names` are those of the bars and of the dots; a class has the value and the kind of its bar, and its samples.
    """
    parts = [text(10, 14, names[0], "start"), text(10, FLOOR + 16, "class", "start")]
    parts.append(text(10, FLOOR + 34, names[1], "start"))
    for y in ticks:
        parts.append(text(64, 104 - 80 * y / most, f"{y:+g}".replace("-", "−") if y else "0", "end"))
        parts.append(
            f'<path class="axis" d="M70 {100 - 80 * y / most:.1f}h{WIDTH - 80}" opacity="{0.25 if y else 1}"/>'
        )
    for i, (value, kind, samples) in enumerate(classes):
        parts.append(bar(86 + i * 54, 100, 80 * value / most, 34, kind))
        parts += [text(103 + i * 54, FLOOR + 16, i), text(103 + i * 54, FLOOR + 34, "●" * samples)]
    return "".join(parts)


def pairs(recovered: Tensor, truth: Tensor, start: float, width: float, most: float) -> Iterable[str]:
    """Yield two bars per class, true and recovered count, each with its number."""
    step = width / len(truth)
    for i, (true_count, recovered_count) in enumerate(zip(truth.tolist(), recovered.tolist(), strict=True)):
        x = start + i * step
        for k, (value, kind) in enumerate(
            ((true_count, "truth"), (recovered_count, "hit" if true_count == recovered_count else "miss"))
        ):
            yield bar(x + k * step * 0.4, FLOOR, 120 * min(value / most, 1), step * 0.36, kind)
        yield text(x + step * 0.4, FLOOR + 17, i)
        if step > 40:
            yield text(x + step * 0.4, FLOOR + 34, f"{true_count}/{recovered_count}")
