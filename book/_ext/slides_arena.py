"""The drawings of the arena's and the learned attacker's sliders."""

import torch
from render import number
from slides import FLOOR, WIDTH, Frame, Slider, bar, pairs, rule, text

from fedleak.attacks.contest import contest
from fedleak_book.experiments import Context
from notebooks.show import ATTACKS


def answers() -> Slider:
    """Return the arena's slider: the answers of one attack after the other to the same update of a trained network."""
    from notebooks.arena import updates as u

    context, size = Context("cpu"), 32
    setting = {"net": "lenet", "data": "MNIST, 5,000", "state": "trained", "batch_size": size}
    case, truth = u.make_case(context, 2, u.Setting(**setting))
    rivals = ["LLG*", "ZLG+", "iLRG", "LLG+", "LLG", "RLU", "after Decaf", "RLU, whole head"]
    chosen = ["random guess", "prior guess", *rivals]
    found = {attempt.attack.name: attempt.counts for attempt in contest(**case, attacks=[u.ALL[n] for n in chosen])}
    right = {name: int(torch.minimum(counts, truth).sum()) for name, counts in found.items()}
    frames = []
    for name in sorted(found, key=right.__getitem__):
        drawing = "".join([rule(FLOOR), *pairs(found[name], truth, 40, WIDTH - 60, float(truth.max()))])
        exact = int((found[name] == truth).sum())
        words = f"{right[name]} of {size} labels right, {exact} of {len(truth)} counts"
        frames.append(Frame(ATTACKS.get(name, name), drawing, words))
    message = (
        "True counts of a trained LeNet's batch (grey), and the attack's counts, green where they are right. The "
        "attacks are ordered by how many labels they get right in this one batch; a random "
        "guess can be ahead there by luck."
    )
    return Slider("Attack", message, frames)


def fits() -> Slider:
    """Learned attacker: the batches of two that fit the observation, and the answer of a formula."""
    wrong = {"a": (0.1, 0.6), "b": (0.2, 0.9)}  # what the model gives to the other class
    four = [(label, p) for label, members in wrong.items() for p in members]
    batches = [(first[0] + second[0], (first, second)) for first in four for second in four]
    entries = [(names.count("a"), sum(-p if y == "a" else p for y, p in members) / 2) for names, members in batches]
    mean_a, mean_b, frames = -sum(wrong["a"]) / 2, sum(wrong["b"]) / 2, []
    for observed in (-0.5, -0.4, -0.25, -0.15, -0.05, 0.05, 0.2, 0.35, 0.6):
        near = [count for count, members in entries if abs(members - observed) < 0.15 + 1e-9]
        shares = [near.count(count) / len(near) for count in range(3)]
        formula = (2 * mean_b - 2 * observed) / (mean_b - mean_a)
        errors = [sum(abs(answer - count) * share for count, share in enumerate(shares)) for answer in range(3)]
        answer = errors.index(min(errors))
        parts = [rule(FLOOR)]
        for count, share in enumerate(shares):
            x = 90 + 190 * count
            parts.append(bar(x, FLOOR, 120 * share, 90, "hit" if count == answer else "truth"))
            parts.append(text(x + 45, FLOOR - 120 * share - 6, f"{round(share * len(near))} of {len(near)}"))
            parts.append(text(x + 45, FLOOR + 17, f"{count} of class a"))
        place = 135 + 190 * min(max(formula, -0.3), 2.3)
        parts.append(f'<path class="line line-3" d="M{place:.0f} {FLOOR}v-140"/>')
        parts.append(text(place, FLOOR + 34, f"the formula: {number(formula)}"))
        words = f"{len(near)} batches fit; the best answer is {answer}, the formula's {formula:.1f}"
        frames.append(Frame(f"{observed:+.2f}".replace("-", "−"), "".join(parts), words.replace("-", "−")))
    message = "Bars count the batches that fit within 0.15. Green: the best answer. Line: the formula's answer."
    return Slider("Entry of the update", message, frames)
