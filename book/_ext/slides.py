"""Elements of a slider's drawings."""

from collections.abc import Iterable, Sequence

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


def rule(y: float, start: float = 30, opacity: float = 1) -> str:
    """Return a horizontal line."""
    return f'<path class="axis" d="M{start:.0f} {y:.1f}H{WIDTH - 10}" opacity="{opacity}"/>'


def chart(
    name: str,
    values: Tensor,
    kinds: Iterable[str],
    ticks: Iterable[float],
    most: float,
    marks: Tensor | None = None,
    samples: tuple[str, Sequence[int]] | None = None,
) -> str:
    """Return a bar of a kind per value, up or down from zero, of at most `most`.

    `marks` are dotted lines across the bars. `samples` are the name of a line below and each class's number there, a
    dot for each.
    """
    step = 560 / len(values)
    parts = [text(10, 14, name, "start")]
    for y in ticks:
        height = 105 - 75 * y / most
        parts += [text(64, height + 4, f"{y:+.3g}".replace("-", "−") if y else "0", "end")]
        parts += [rule(height, 70, 0.25 if y else 1)]
    for i, (value, kind) in enumerate(zip(values.tolist(), kinds, strict=True)):
        parts.append(bar(70 + (i + 0.1) * step, 105, 75 * value / most, 0.7 * step, kind))
        if len(values) <= 10:
            parts.append(text(70 + (i + 0.45) * step, FLOOR + 16, i))
    for i, mark in enumerate([] if marks is None else marks.tolist()):
        line = f"M{70 + i * step:.1f} {105 - 75 * mark / most:.1f}h{0.9 * step:.1f}"
        parts.append(f'<path class="line line-3" d="{line}"/>')
    if samples:
        parts += [text(10, FLOOR + 16, "class", "start"), text(10, FLOOR + 34, samples[0], "start")]
        parts += [text(70 + (i + 0.45) * step, FLOOR + 34, "●" * number) for i, number in enumerate(samples[1])]
    return "".join(parts)


def pairs(recovered: Tensor, truth: Tensor, start: float, width: float, most: float) -> Iterable[str]:
    """Yield two bars per class, true and recovered count, each with its number."""
    step = width / len(truth)
    for i, (true_count, recovered_count) in enumerate(zip(truth.tolist(), recovered.tolist(), strict=True)):
        x = start + i * step
        kind = "hit" if true_count == recovered_count else "miss"
        yield bar(x, FLOOR, 120 * min(true_count / most, 1), step * 0.36, "truth")
        yield bar(x + step * 0.4, FLOOR, 120 * min(recovered_count / most, 1), step * 0.36, kind)
        yield text(x + step * 0.4, FLOOR + 17, i)
        if step > 40:
            yield text(x + step * 0.4, FLOOR + 34, f"{true_count}/{recovered_count}")
