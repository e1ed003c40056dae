"""Elements of a slider's drawings."""

from collections.abc import Iterable

from torch import Tensor

from notebooks.film import WIDTH, Frame, Slider, text

__all__ = ["FLOOR", "WIDTH", "Frame", "Slider", "bar", "pairs", "rule", "text"]
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
