"""The network behind the learned attacker: from what is seen of an update to class shares and their intervals."""

import time
from collections.abc import Collection
from functools import partial

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.reader import Reader
from fedleak.attacks.labels.simulated import Local, Observation, Pool
from fedleak.attacks.result import Result
from fedleak.errors import extra
from fedleak.federated import Update

BATCHES, RATE = 256, 1e-3
"""Simulated batches in each iteration of the training (fewer of more samples than this), and Adam's highest learning
rate."""
PACE = 5
"""Iterations after which it is foreseen how long all of them take."""
WIDTH, HEADS, BLOCKS = 96, 4, 2
"""Width, attention heads and blocks of the transformer."""
SCALES = (1.0, 10.0, 100.0)
"""Features are seen as ``asinh(scale * x)``: they have heavy tails, and small values tell as well."""
CALIBRATION, SCALING = 2048, 8
"""Batches that calibrate the intervals; iterations whose number of batches scales the features."""


@extra("audit")
def _with_progress(iterations: Collection[int]) -> Collection[int]:
    from tqdm import tqdm

    return tqdm(iterations, desc="learned attacker", unit="iteration", leave=False)


ALTERED = (
    "the rows of the last layer's gradient do not sum to 0, as a cross-entropy's do: noise, missing entries, "
    "rounding or weight decay have changed the update; simulated clients do not know of that, "
    "and counts and intervals may be off"
)


class Network(nn.Module):
    """From features of the classes' rows to class shares, and to the distances of two quantiles from them.

    Rows are read alike, each with weights of its class added, and attend to one another.
    """

    def __init__(self, features: int, forms: int, n_classes: int):
        super().__init__()
        self.shared = nn.Linear(features, WIDTH)
        self.class_weights = nn.Parameter(torch.zeros(n_classes, features, WIDTH))
        self.place = nn.Parameter(0.02 * torch.randn(n_classes, WIDTH))
        block = partial(nn.TransformerEncoderLayer, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.Sequential(*(block(WIDTH, HEADS, 2 * WIDTH) for _ in range(BLOCKS)))
        self.last = nn.Linear(WIDTH, 3)
        nn.init.zeros_(self.last.weight[0])  # it begins with the first closed form's answer
        nn.init.zeros_(self.last.bias[0])
        self.trust = nn.Parameter(torch.eye(forms)[0])

    def forward(self, rows: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
        """Return shares ``[..., n]`` and distances below and above ``[..., 2, n]``.

        `rows` are the features ``[..., n, features]``, `logs` the logarithms of the closed forms' shares
        ``[..., forms, n]``: what it learns is a correction.
        """
        weights = self.class_weights + self.shared.weight.mT  # one product for both
        read = torch.einsum("...nf,nfw->...nw", rows, weights) + self.shared.bias
        out = self.last(self.blocks(read + self.place)).mT
        shares = (out[..., 0, :] + torch.einsum("f,...fn->...n", self.trust, logs)).softmax(-1)
        return shares, nn.functional.softplus(out[..., 1:, :])


class Learned:
    """An attacker trained for one model and batch size, to be kept and reused; made by `train`."""

    def __init__(
        self,
        reader: Reader,
        pool: Pool,
        batch_size: int,
        iterations: int,
        seed: int,
        level: float,
        seconds: float,
        local: Local,
        batches: int = BATCHES,
        progress: bool = False,
    ):
        self.reader, self.batch_size, self.level, self.local = reader, batch_size, level, local
        self.defended = False
        """Whether it was trained on clients with a defence, whose updates are changed."""
        generator = torch.Generator().manual_seed(seed)  # on the CPU: the same numbers on every device
        first, _ = pool.draw(SCALING * batches, batch_size, generator)
        parts = reader.features(first).abs().flatten(1).split(1000, dim=1)  # quantile limits the size of its input
        self.unit = torch.cat([part.quantile(0.9, dim=0) for part in parts]).clamp(min=1e-12)
        columns = self._columns(first, self._logs(first))
        self.centre, self.spread = columns.mean(0), columns.std(0).clamp(min=1e-3)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = Network(columns.shape[-1], 2 + reader.bias, reader.n_classes)
        self.network = network.to(columns.device)
        steps = _with_progress(range(iterations)) if progress else range(iterations)
        self._fit(pool, steps, generator, seconds, batches)
        self.margin = torch.zeros((), device=columns.device)

    def read(self, update: Update, model: nn.Module) -> Result:
        """Read one update: counts, and an interval for each, which holds it with the stated probability.

        An update changed by an unknown defence is read too; `violated_assumptions` then says so (`altered`).

        Raises `WithheldParameter` if the head's gradient is not shared; `ValueError` if the update is another one, is
        not of the model, or has an entry that is NaN or infinite.

        Parameters
        ----------
        update
            The update, of as many samples and local steps as the attacker was trained for.
        model
            The one that it was trained for.
        """
        for what, expected, given in (
            ("samples", self.batch_size, update.samples),
            ("local steps", self.local.steps, update.steps),
        ):
            if expected != given:
                raise ValueError(f"this attacker was trained for {expected} {what}, the update is of {given}")
        observation = self.reader.read(update, model)
        unmet = (ALTERED,) if not self.defended and self.reader.altered(update, model) else ()
        low, high = self.intervals(observation)[:, 0]
        return Result(self.counts(observation)[0], low, high, violated_assumptions=unmet)

    @torch.no_grad()
    def counts(self, observation: Observation) -> Tensor:
        """Return the recovered counts for any number of gradients, ``[..., n]``."""
        return round_to_total(self.batch_size * self._outputs(observation)[0], self.batch_size)

    @torch.no_grad()
    def intervals(self, observation: Observation) -> Tensor:
        """Return the intervals' ends for any number of gradients, ``[2, ..., n]``."""
        _, low, high = self._outputs(observation)
        return (self.batch_size * torch.stack([low - self.margin, high + self.margin])).clamp(0, self.batch_size)

    @torch.no_grad()
    def calibrate(self, pool: Pool, seed: int) -> None:
        """Widen or narrow all intervals to the stated coverage on simulated batches of held-out images."""
        observation, counts = pool.draw(CALIBRATION, self.batch_size, torch.Generator().manual_seed(seed))
        _, low, high = self._outputs(observation)
        truth = counts / self.batch_size
        outside = torch.maximum(low - truth, truth - high).flatten()
        rank = min(1.0, self.level * (1 + 1 / len(outside)))  # the conformal quantile counts the new batch too
        self.margin = outside.sort().values[min(len(outside) - 1, int(rank * len(outside)))]

    def _logs(self, observation: Observation) -> Tensor:
        return (self.reader.estimates(observation, self.batch_size) + 0.5 / self.batch_size).log()

    def _columns(self, observation: Observation, logs: Tensor) -> Tensor:
        features = self.reader.features(observation)
        scaled = features / self.unit.view(features.shape[-2:])
        return torch.cat([*((scale * scaled).asinh() for scale in SCALES), logs.mT, logs.exp().mT], -1)

    def _outputs(self, observation: Observation) -> tuple[Tensor, Tensor, Tensor]:
        return self._answers(*self._inputs(observation))

    def _inputs(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Return the network's inputs, rows and logarithms of shares, which have no learned parameters."""
        logs = self._logs(observation)
        return (self._columns(observation, logs) - self.centre) / self.spread, logs

    def _answers(self, rows: Tensor, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shares, distances = self.network(rows, logs)
        low, high = (distances / self.batch_size**0.5).unbind(-2)
        return shares, shares.detach() - low, shares.detach() + high

    @torch.enable_grad()
    def _fit(
        self, pool: Pool, steps: Collection[int], generator: torch.Generator, seconds: float, batches: int
    ) -> None:
        iterations = len(steps)
        optimiser = torch.optim.Adam(self.network.parameters(), lr=RATE)
        rising = 0.1 if iterations != 10 else 0.2  # torch divides by the number of rising iterations less one
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=iterations, pct_start=rising)
        tail, begun = (1 - self.level) / 2, time.perf_counter()
        at_once = max(32, min(BATCHES, BATCHES**2 // self.batch_size))  # closed forms cost less for many at once
        portion = max(1, at_once * min(batches, BATCHES) // BATCHES)
        for done in steps:
            if done == PACE and (takes := (time.perf_counter() - begun) * iterations / PACE) > seconds:
                raise ValueError(f"its training would take about {takes:.0f} s here, and {seconds:.3g} s are allowed")
            place = done % (at_once // portion) * portion  # one simulation serves several iterations
            if place == 0:
                simulated, counts = pool.draw(at_once, self.batch_size, generator)
                drawn = (*self._inputs(simulated), counts / self.batch_size)
            rows, logs, truth = (part[place : place + portion] for part in drawn)
            shares, low, high = self._answers(rows, logs)
            below, above = truth - low, high - truth
            pinball = sum(torch.maximum(tail * off, (tail - 1) * off) for off in (below, above))
            loss = ((shares - truth).abs() + pinball).sum(-1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
