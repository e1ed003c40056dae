"""Differential privacy of one client's part in a round: the ε of Gaussian mechanisms, and errors of claims."""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.errors import extra
from fedleak.federated.update import Update
from fedleak.models.inputs import forward

DELTA = 1e-5
"""Default δ."""
NEIGHBOURS = {
    "sample": "one sample added or removed",
    "client": "one client's data replaced by any other",
    "client added": "one client added or removed",
}


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Compute ε of a Gaussian mechanism at δ exactly (Balle & Wang 2018, Theorem 8).

    Parameters
    ----------
    mu
        Distance of the means for two neighbours, in standard deviations of the noise; infinity without noise.
    delta
        δ, in [0, 1).
    """
    if mu > 0 and (mu == math.inf or not delta):
        return math.inf
    from scipy import optimize, special  # half a second to import

    def excess_delta(epsilon: float) -> float:
        log_tail = epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
        return float(special.ndtr(mu / 2 - epsilon / mu) - math.exp(min(log_tail, 0.0)) - delta)

    if mu <= 0 or excess_delta(0.0) <= 0:
        return 0.0
    return float(optimize.brentq(excess_delta, 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))))


TINY = 1e-30
"""Standard deviation of noise that changes nothing."""
MIN_PRV_NOISE = 0.3
"""Noise multiplier below which bounds replace the PRV accountant for sampled mechanisms."""


@cache
def account_epsilon(history: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """Compute ε of a sequence of Gaussian mechanisms, with sampling by Opacus' PRV accountant.

    Parameters
    ----------
    history
        Noise multiplier (standard deviation over sensitivity), rate of Poisson sampling and steps, as in Opacus.
    delta
        δ, in (0, 1).
    """
    if all(rate == 1 for _, rate, _ in history):
        terms = [steps / noise**2 if noise else math.inf for noise, _, steps in history]
        return gaussian_epsilon(math.sqrt(sum(terms)) if terms else math.inf, delta)
    if not all(noise for noise, _, _ in history):
        return math.inf
    with extra("book"):
        from opacus.accountants import PRVAccountant, RDPAccountant
    # With little noise the PRV accountant's grid takes gigabytes: use Renyi's bound and that without sampling.
    has_little_noise = min(noise for noise, _, _ in history) < MIN_PRV_NOISE
    accountant = RDPAccountant() if has_little_noise else PRVAccountant()
    accountant.history = list(history)
    unsampled = gaussian_epsilon(math.sqrt(sum(steps / noise**2 for noise, _, steps in history)), delta)
    return min(float(accountant.get_epsilon(delta)), unsampled)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """A claim that one client's part in one round is (ε, δ)-differentially private.

    Parameters
    ----------
    neighbours
        The neighbouring relation, a key of `NEIGHBOURS`.
    history
        The Gaussian mechanisms of the round, as for `account_epsilon`; empty if the noise is unknown.
    delta
        δ, in [0, 1).
    clipped
        Whether the norm is bounded to which the noise is relative.
    poisson
        Whether batches are drawn by Poisson sampling, which the server cannot see.
    aggregated
        Whether the noise is added to the sum or mean of all clients' updates, after the server has received them.
    stated
        Stated ε; by default it is computed from the other fields.
    by
        Party that states the claim or adds the noise.
    unprotected
        Names of the tensors that the mechanism does not clip or add noise to.

    Raises
    ------
    ValueError
        For values out of their range.
    """

    neighbours: Literal["sample", "client", "client added"]
    history: tuple[tuple[float, float, int], ...] = ()
    delta: float = DELTA
    clipped: bool = True
    poisson: bool = True
    aggregated: bool = False
    stated: float | None = None
    by: str = ""
    unprotected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.delta < 1 or (self.stated is not None and not self.stated >= 0):
            raise ValueError(f"ε is at least 0 and δ in [0, 1), got ε = {self.stated}, δ = {self.delta}")
        for noise, rate, steps in self.history:
            if not (0 <= noise < math.inf and 0 < rate <= 1 and steps > 0):
                raise ValueError(
                    "a mechanism has a noise multiplier of at least 0, a sampling rate in (0, 1] and at least one "
                    f"step, got {noise}, {rate}, {steps}"
                )

    @property
    def claimed(self) -> float:
        """The claimed ε."""
        if self.stated is not None:
            return self.stated
        return account_epsilon(self.history, self.delta) if self.clipped else math.inf

    @property
    def epsilon(self) -> float | None:
        """ε against an observer of the update, without `unprotected` tensors; None if it cannot be computed."""
        if not self.clipped or self.aggregated:
            return math.inf
        return account_epsilon(self.mechanisms, self.delta) if self.history else None

    @property
    def mechanisms(self) -> tuple[tuple[float, float, int], ...]:
        """The mechanisms in effect, like `history`: without Poisson sampling each sample is in each epoch."""
        unsampled = tuple((z, 1.0, math.ceil(q * n - 1e-9)) for z, q, n in self.history)
        return self.history if self.poisson else unsampled

    def wrong(self) -> list[str]:
        """Return the errors of the claim; empty if it is correct."""
        reasons = []
        if self.aggregated:
            reasons.append(
                "the noise is added after aggregation: the claim is of the model that is published. Whoever sees this "
                "client's update, as the server does, sees it without noise, and for it no ε is finite"
            )
        if not self.clipped:
            reasons.append(
                "nothing bounds the norm of what a client shares: no ε is finite, however much noise is added"
            )
        if not reasons and self.epsilon is not None and self.epsilon > 1.001 * self.claimed + 0.011:  # PRV's own error
            why = "the noise is too small for what clipping leaves"
            if not self.poisson:
                why = (
                    "the batches are not drawn by Poisson sampling, so that no secret amplifies the privacy (what "
                    "follows takes every sample once an epoch)"
                )
            reasons.append(f"{why}: ε = {self.epsilon:.3g} follows")
        if self.unprotected:
            names = ", ".join(map(repr, self.unprotected))
            reasons.append(f"the mechanism passes on {names} without noise: no ε holds for that")
        return reasons


@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """Gradients of DP-SGD (Abadi et al. 2016) by Opacus: each sample's gradient is clipped, and noise is added.

    Raises `ValueError` for values out of their range.

    Parameters
    ----------
    noise_multiplier, max_grad_norm
        As in Opacus: the noise on the sum has the standard deviation ``noise_multiplier * max_grad_norm``.
    sample_rate
        Probability that a sample is in the batch, in (0, 1]; 1 if the batch contains all samples of the client.
    poisson_sampling
        Whether samples are drawn independently, as amplification by sampling requires, instead of shuffled batches.
    """

    noise_multiplier: float
    max_grad_norm: float
    sample_rate: float = 1.0
    poisson_sampling: bool = True

    def __post_init__(self) -> None:
        if not (self.noise_multiplier > 0 and self.max_grad_norm > 0 and 0 < self.sample_rate <= 1):
            raise ValueError(f"noise and norm are positive, the rate is in (0, 1]; got {self}")

    def privacy(self, stated: float | None = None, delta: float = DELTA) -> Privacy:
        """Return the claim for one step; `stated` is an ε that is stated elsewhere."""
        history = ((self.noise_multiplier, self.sample_rate, 1),)
        return Privacy(
            neighbours="sample", history=history, delta=delta, poisson=self.poisson_sampling, stated=stated, by="Opacus"
        )

    @extra("book")
    def releases(self, model: nn.Module, x: Tensor, y: Tensor, seed: int, size: int = 0) -> Iterator[Update]:
        """Yield gradients of one batch endlessly, each with new noise; the model is not modified.

        Raises `ValueError` for a model that Opacus does not take, such as one with batch norm.

        Parameters
        ----------
        model, x, y
            The model, and the batch ``[B, ...]`` and ``[B]``.
        seed
            Random seed of the noise.
        size
            Number of samples by which the sum is divided; by default B.
        """
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        try:
            module = GradSampleModule(copy.deepcopy(model).train())  # Opacus accepts no model in evaluation mode
        except NotImplementedError as error:
            raise ValueError(f"Opacus does not take this model: {error}") from error
        optimiser = DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=1.0),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=size or len(x),
            generator=torch.Generator(x.device).manual_seed(seed % 2**63),
        )
        nn.functional.cross_entropy(module(x), y).backward()
        optimiser.clip_and_accumulate()
        sums = [p.summed_grad for p in optimiser.params]
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        while True:
            for p, total in zip(optimiser.params, sums, strict=True):
                p.summed_grad = total.clone()  # Opacus marks a gradient with noise, and adds none again
            optimiser.add_noise()
            optimiser.scale_grad()
            gradients = {name: p.grad.detach().clone() for name, p in zip(names, optimiser.params, strict=True)}
            yield Update(gradients, "gradient", len(x))

    def release_neighbours(
        self, model: nn.Module, x: Tensor, y: Tensor, seed: int
    ) -> tuple[list[dict[str, Tensor]], list[Iterator[dict[str, Tensor]]]]:
        """Return what a canary compares: of a batch ``[B, ...]``, without and with one sample more, means and releases.

        The sample is the first one with its least likely label, and is in a release as often as sampling takes it.
        """
        with torch.no_grad():
            least = forward(model, x[:1]).argmin(1)
        batches = [(x, y), (torch.cat([x, x[:1]]), torch.cat([y, least]))]

        def run(world: int, how: DPSGD = self, number: int = 0) -> Iterator[dict[str, Tensor]]:
            releases = how.releases(model, *batches[world], seed + 10 * number + world, size=len(x))
            return (dict(update.tensors) for update in releases)

        means = [next(run(world, replace(self, noise_multiplier=TINY))) for world in (0, 1)]
        rate, generator = self.sample_rate if self.poisson_sampling else 1.0, torch.Generator().manual_seed(seed)
        worlds = [run(0, number=1), run(1)]
        mixed = (next(worlds[int(torch.rand((), generator=generator) < rate)]) for _ in count())
        return means, [run(0), mixed]


def find_tensors_without_noise(
    before: Mapping[str, Tensor], trained: Mapping[str, Tensor], sent: Mapping[str, Tensor]
) -> list[str]:
    """Name the tensors that are sent without noise: their change is a multiple of the trained change.

    Parameters
    ----------
    before, trained, sent
        States of the model before training, after training, and as sent by the client.
    """
    names = []
    for name in sent.keys() & trained.keys() & before.keys():
        change, sent_change = (t[name].double().flatten() - before[name].double().flatten() for t in (trained, sent))
        factor = (change @ sent_change) / (change @ change) if len(change) > 1 else 1.0
        if sent_change.any() and (sent_change - factor * change).norm() <= 1e-4 * sent_change.norm():
            names.append(name)
    return sorted(names)
