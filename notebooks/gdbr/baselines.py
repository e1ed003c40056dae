"""GDBR: its baselines ZLG and LLG+, and the stand-ins for a last layer's gradient that is withheld (Sec. V-D 4)."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from fedleak.attacks.labels import gdbr, llg, zlg
from fedleak.attacks.labels.counts import round_to_total
from fedleak.data import draw
from fedleak.models import chain, head_pass
from notebooks.gdbr.clients import TRUE, scores, share
from torch import Tensor

Mode = Literal["stats", "stats (col)", "shuffle (col)", "mask"]


def stand_in(gradient: Tensor, mode: Mode, generator: torch.Generator) -> Tensor:
    """Make a gradient that has something in common with the true one, ``[..., n, m]``: a row a class.

    ``"stats"``: normal draws with the mean and deviation of all entries; ``"stats (col)"``: the same by column;
    ``"shuffle (col)"``: each column's entries in random order; ``"mask"``: half of the entries, chosen at random,
    replaced by the mean of these. Another mode is a `ValueError`.
    """

    def drawn(draw: Callable[..., Tensor]) -> Tensor:
        return draw(gradient.shape, generator=generator, dtype=gradient.dtype).to(
            gradient.device
        )

    if mode == "stats":
        return gradient.mean((-2, -1), keepdim=True) + gradient.std(
            (-2, -1), keepdim=True
        ) * drawn(torch.randn)
    if mode == "stats (col)":
        return gradient.mean(-2, keepdim=True) + gradient.std(-2, keepdim=True) * drawn(
            torch.randn
        )
    if mode == "shuffle (col)":
        return gradient.gather(-2, drawn(torch.rand).argsort(dim=-2))
    if mode == "mask":
        size = gradient.shape[-2] * gradient.shape[-1]
        order = drawn(torch.rand).flatten(-2).argsort(dim=-1).argsort(dim=-1)
        masked = (order < size // 2).view_as(gradient)
        mean = (gradient * masked).sum((-2, -1), keepdim=True) / max(size // 2, 1)
        return gradient.where(~masked, mean)
    raise ValueError(
        f"unknown stand-in {mode!r}; there are: {', '.join(get_args(Mode))}"
    )


def baseline_counts(passed, aux, gradient, size, generator):
    """ZLG's and LLG+'s counts from a gradient of the last layer, with the attacker's auxiliary images."""
    g, n = gradient.double().sum(1), aux.n_classes
    features, p = passed.inputs.double().sum(1).mean(), passed.probabilities.double()
    labels = torch.arange(n)[None, :, None].expand(2, n, size)
    drawn = draw(aux, labels, generator)
    offsets = llg.impact_and_offset(passed.row_sums(drawn, labels).double(), size)
    by_llg = llg.extract(g, *offsets, size, stop_at_samples=True)
    return {"ZLG": zlg.estimate(g, p.mean(0), features, size), "LLG+": by_llg}


class Attackers:
    """GDBR from the penultimate layer of a chain, and ZLG and LLG+, which need the last one's gradient, true or made up."""

    def __init__(self, tail, aux, inputs):
        self.tail, self.aux, self.bridge = tail, aux, gdbr.Bridge(tail)
        self.last = chain(tail).links[-1]
        self.features, self.passed = (
            self.bridge.observe(inputs),
            head_pass(tail, inputs),
        )

    def read(self, x, labels, truth, modes, generator):
        """The scores of each on one batch, of the baselines in every mode."""
        size, weight = len(labels), self.last.weight
        update = share(self.tail, x, labels, [self.bridge.layer, self.last.name])
        true, clear = update.gradient(weight), update.without(weight)
        answers = {("GDBR", "–"): self.bridge.recover(clear, self.features).counts}
        for mode in modes:
            substitute = true if mode == TRUE else stand_in(true, mode, generator)
            named = baseline_counts(self.passed, self.aux, substitute, size, generator)
            answers |= {(name, mode): counts for name, counts in named.items()}
        for (attack, mode), counts in answers.items():
            if counts.sum() != size:
                counts = round_to_total(counts.double(), size)
            yield {"attack": attack, "mode": mode, **scores(counts, truth)}
