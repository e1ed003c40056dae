"""The network of the learned attacker: it predicts class shares and their intervals from a head gradient's features."""

import itertools
import math
import time
from collections.abc import Collection, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from fedleak.attacks.labels.counts import round_to_total
from fedleak.attacks.labels.learned.reader import Reader
from fedleak.attacks.labels.learned.simulated import LocalSteps, Observation, Pool
from fedleak.attacks.result import Result
from fedleak.errors import extra
from fedleak.federated import Update

BATCHES, LEARNING_RATE = 256, 1e-3
"""Simulated batches per training iteration (fewer if a batch has more samples than this); Adam's peak learning rate."""
PASSES, MAX_DRAWN_AT_ONCE, MAX_INPUTS_AT_ONCE = 2, 4096, 2**25
"""Number of iterations that a simulated batch serves if the caller asks for fewer than `BATCHES` in each; most batches,
and most of the network's inputs, that are then kept."""
TIMED_ITERATIONS = 5
"""Number of iterations from which the duration of the training is extrapolated."""
WIDTH, HEADS, BLOCKS = 96, 4, 2
"""Width, number of attention heads and number of blocks of the transformer."""
FEATURE_SCALES = (1.0, 10.0, 100.0)
"""The network's inputs are ``asinh(scale * x)`` for each scale: they have heavy tails, and small ones matter too."""
CALIBRATION_BATCHES, SCALING_ITERATIONS = 2048, 8
"""Number of simulated batches that calibrate the intervals, and of iterations whose batches scale the features."""


@extra("audit")
def _with_progress(iterations: Collection[int]) -> Collection[int]:
    from tqdm import tqdm

    return tqdm(iterations, desc="learned attacker", unit="iteration", leave=False)


ALTERED_UPDATE = (
    "the rows of the last layer's gradient do not sum to 0, as a cross-entropy's do: noise, missing entries, "
    "rounding or weight decay have changed the update; simulated clients do not know of that, "
    "and counts and intervals may be off"
)

OTHER_GRADIENT = (
    "the gradient of the last layer's weight is not the one that is simulated: something else in the model uses the "
    "weight; counts and intervals may be off"
)


class ShareNetwork(nn.Module):
    """A transformer that predicts class shares, and the distances of two quantiles from them.

    Each class's row of features is a token. All tokens share an input layer, to which each class adds weights.
    """

    def __init__(self, features: int, forms: int, n_classes: int):
        super().__init__()
        self.shared_layer = nn.Linear(features, WIDTH)
        self.class_weights = nn.Parameter(torch.zeros(n_classes, features, WIDTH))
        self.class_embedding = nn.Parameter(0.02 * torch.randn(n_classes, WIDTH))
        block = partial(nn.TransformerEncoderLayer, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.Sequential(*(block(WIDTH, HEADS, 2 * WIDTH) for _ in range(BLOCKS)))
        self.output_layer = nn.Linear(WIDTH, 3)
        nn.init.zeros_(self.output_layer.weight[0])  # before training the shares are the first closed form's
        nn.init.zeros_(self.output_layer.bias[0])
        self.form_weights = nn.Parameter(torch.eye(forms)[0])

    def forward(self, rows: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
        """Return shares ``[..., n]`` and distances below and above ``[..., 2, n]``.

        `rows` are the features ``[..., n, features]``, `logs` the logarithms of the closed forms' shares
        ``[..., forms, n]``, which the network corrects.
        """
        weights = self.class_weights + self.shared_layer.weight.mT  # one product instead of two
        tokens = torch.einsum("...nf,nfw->...nw", rows, weights) + self.shared_layer.bias
        out = self.output_layer(self.blocks(tokens + self.class_embedding)).mT
        shares = (out[..., 0, :] + torch.einsum("f,...fn->...n", self.form_weights, logs)).softmax(-1)
        return shares, nn.functional.softplus(out[..., 1:, :])


class LearnedAttacker:
    """An attacker that `train` has trained for one model, batch size and number of steps, for any number of updates."""

    def __init__(
        self,
        reader: Reader,
        pool: Pool,
        batch_size: int,
        iterations: int,
        seed: int,
        level: float,
        seconds: float,
        local: LocalSteps,
        batches: int = BATCHES,
        progress: bool = False,
    ):
        self.reader, self.batch_size, self.level, self.local = reader, batch_size, level, local
        self.is_faithful = True
        """Whether no comparison found that simulated gradients differ from the model's own."""
        self.defended = False
        """Whether the simulated clients had a defence, so that a changed update is expected."""
        generator = torch.Generator().manual_seed(seed)  # on the CPU: the same numbers on every device
        first, _ = pool.draw(SCALING_ITERATIONS * batches, batch_size, generator)
        sizes = reader.compute_features(first).abs().flatten(1)
        pieces = sizes.split(1000, dim=1)  # torch.quantile limits the size of its input
        self.feature_unit = torch.cat([piece.quantile(0.9, dim=0) for piece in pieces]).clamp(min=1e-12)
        columns = self._scale_features(first, self._log_shares(first))
        # A neuron that is dead on all auxiliary images may be active for a client. Its feature has no scale here, so
        # that it would decide alone: real features are cut at the range of the simulated ones.
        self.feature_min, self.feature_max = columns.amin(0), columns.amax(0)
        self.feature_mean, self.feature_std = columns.mean(0), columns.std(0).clamp(min=1e-3)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = ShareNetwork(columns.shape[-1], 2 + reader.bias, reader.n_classes)
        self.network = network.to(columns.device)
        steps = _with_progress(range(iterations)) if progress else range(iterations)
        self._train(pool, steps, generator, seconds, batches)
        self.margin = torch.zeros((), device=columns.device)

    @torch.no_grad()
    def read(self, update: Update, model: nn.Module) -> Result:
        """Recover the counts behind one update, and intervals that contain them with the stated probability.

        If an unknown defence has changed the update, the result's `violated_assumptions` say so (`Reader.is_altered`).

        Samples, local steps and model have to be those for which the attacker was trained.

        Raises
        ------
        ValueError
            The update has other samples or steps, is of another model, or has an entry that is NaN or infinite.
        WithheldParameter
            The head's gradient is not shared.
        """
        for quantity, expected, actual in (
            ("samples", self.batch_size, update.samples),
            ("local steps", self.local.steps, update.steps),
        ):
            if expected != actual:
                raise ValueError(f"this attacker was trained for {expected} {quantity}, the update is of {actual}")
        observation = self.reader.read(update, model)
        violated = () if self.is_faithful else (OTHER_GRADIENT,)
        if self.is_faithful and not self.defended and self.reader.is_altered(update, model):
            violated = (ALTERED_UPDATE,)
        shares, *ends = self._predict(observation)
        low, high = self._intervals(*ends)[:, 0]
        return Result(self._round(shares)[0], low, high, violated_assumptions=violated)

    @torch.no_grad()
    def counts(self, observation: Observation) -> Tensor:
        """Recover the counts for any number of observations, ``[..., n]``."""
        return self._round(self._predict(observation)[0])

    @torch.no_grad()
    def intervals(self, observation: Observation) -> Tensor:
        """Return the lower and upper ends of the counts' intervals for any number of observations, ``[2, ..., n]``."""
        return self._intervals(*self._predict(observation)[1:])

    def _round(self, shares: Tensor) -> Tensor:
        return round_to_total(self.batch_size * shares, self.batch_size)

    def _intervals(self, low: Tensor, high: Tensor) -> Tensor:
        return (self.batch_size * torch.stack([low - self.margin, high + self.margin])).clamp(0, self.batch_size)

    @torch.no_grad()
    def calibrate(self, pool: Pool, seed: int, batches: int = BATCHES) -> None:
        """Choose the intervals' margin for which they cover simulated batches of held-out images as often as stated."""
        drawn = max(1, CALIBRATION_BATCHES * min(batches, BATCHES) // BATCHES)
        observation, counts = pool.draw(drawn, self.batch_size, torch.Generator().manual_seed(seed))
        _, low, high = self._predict(observation)
        truth = counts / self.batch_size
        outside = torch.maximum(low - truth, truth - high).flatten()
        rank = min(1.0, self.level * (1 + 1 / len(outside)))  # split-conformal: the new batch counts too
        self.margin = outside.sort().values[min(len(outside) - 1, int(rank * len(outside)))]

    def _log_shares(self, observation: Observation) -> Tensor:
        return (self.reader.estimate_shares(observation, self.batch_size) + 0.5 / self.batch_size).log()

    def _scale_features(self, observation: Observation, logs: Tensor) -> Tensor:
        features = self.reader.compute_features(observation)
        scaled = features / self.feature_unit.view(features.shape[-2:])
        return torch.cat([*((scale * scaled).asinh() for scale in FEATURE_SCALES), logs.mT, logs.exp().mT], -1)

    def _predict(self, observation: Observation) -> tuple[Tensor, Tensor, Tensor]:
        return self._predict_from_inputs(*self._network_inputs(observation))

    def _network_inputs(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Return the network's inputs, `rows` and `logs`; they do not depend on learned parameters."""
        logs = self._log_shares(observation)
        columns = self._scale_features(observation, logs).clamp_(self.feature_min, self.feature_max)
        return (columns - self.feature_mean) / self.feature_std, logs

    def _predict_from_inputs(self, rows: Tensor, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shares, distances = self.network(rows, logs)
        low, high = (distances / self.batch_size**0.5).unbind(-2)
        return shares, shares.detach() - low, shares.detach() + high

    def _simulate(
        self, pool: Pool, size: int, per_draw: int, passes: int, at_once: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield the network's inputs and the true shares of `size` batches.

        Those of `per_draw` iterations are drawn together, `at_once` batches at a time, and serve `passes` times. With
        several passes the first `TIMED_ITERATIONS` have batches of their own.
        """
        for draw in itertools.count():
            is_first = passes > 1 and draw == 0
            pieces = []
            for piece in torch.arange(size * (TIMED_ITERATIONS if is_first else per_draw)).split(at_once):
                observation, counts = pool.draw(len(piece), self.batch_size, generator)
                pieces.append((*self._network_inputs(observation), counts / self.batch_size))
            drawn = [torch.cat(parts) for parts in zip(*pieces, strict=True)]
            del pieces
            for _ in range(1 if is_first else passes):
                n_drawn = len(drawn[0])
                order = torch.randperm(n_drawn, generator=generator) if n_drawn > size else torch.arange(size)
                for chosen in order.to(drawn[0].device).split(size):
                    yield tuple(part[chosen] for part in drawn)
            del drawn

    @torch.enable_grad()
    def _train(
        self, pool: Pool, steps: Collection[int], generator: torch.Generator, seconds: float, batches: int
    ) -> None:
        iterations = len(steps)
        optimiser = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, fused=batches < BATCHES)
        rising = 0.1 if iterations != 10 else 0.2  # torch divides by the number of rising iterations minus one
        one_cycle = torch.optim.lr_scheduler.OneCycleLR
        schedule = one_cycle(optimiser, LEARNING_RATE, total_steps=iterations, pct_start=rising)
        tail, started, drawing = (1 - self.level) / 2, time.perf_counter(), 0.0
        most = max(32, min(BATCHES, BATCHES**2 // self.batch_size))
        size, per_draw, passes = max(1, most * min(batches, BATCHES) // BATCHES), 1, 1
        if size < most:
            passes = PASSES
            limit = min(MAX_DRAWN_AT_ONCE, MAX_INPUTS_AT_ONCE // self.feature_mean.numel())
            per_draw = math.ceil(iterations / passes / math.ceil(iterations / passes * size / limit))
        simulated = self._simulate(pool, size, per_draw, passes, most, generator)
        for iteration in steps:
            if iteration == TIMED_ITERATIONS:
                learning = time.perf_counter() - started - drawing
                expected_seconds = (learning + drawing / passes) * iterations / TIMED_ITERATIONS
                if expected_seconds > seconds:
                    raise ValueError(
                        f"its training would take about {expected_seconds:.0f} s here, and {seconds:.3g} s are allowed"
                    )
            drawn_from = time.perf_counter()
            rows, logs, truth = next(simulated)
            drawing += time.perf_counter() - drawn_from
            shares, low, high = self._predict_from_inputs(rows, logs)
            below, above = truth - low, high - truth
            pinball = sum(torch.maximum(tail * distance, (tail - 1) * distance) for distance in (below, above))
            loss = ((shares - truth).abs() + pinball).sum(-1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
