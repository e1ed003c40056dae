"""The learned attacker: a network that is trained on simulated clients infers counts from an update.

With the model and labelled auxiliary images an attacker simulates clients: it draws batches of known counts, and
computes their updates. A small network learns the inverse, from update to counts. The inference is amortised: it is
trained once per model and batch size, and then reads any number of updates. Where an embedding shares the head's
weight, its part of the gradient is simulated too.

The loss is the L1 distance of the class shares, whose minimiser also minimises the expected number of wrong labels. Two
more outputs per class are quantiles (pinball loss), moved by split-conformal calibration (Romano, Patterson and Candès,
NeurIPS 2019) on batches of images that were not trained on.
"""

from functools import cache

import torch
from torch import nn

from fedleak.attacks.labels.inputs import head_gradient, require_classes
from fedleak.attacks.labels.learned.posterior import BATCHES
from fedleak.attacks.labels.learned.posterior import TIMED_ITERATIONS as TIMED_ITERATIONS
from fedleak.attacks.labels.learned.posterior import LearnedAttacker as LearnedAttacker
from fedleak.attacks.labels.learned.reader import Reader, require_few_classes
from fedleak.attacks.labels.learned.simulated import (
    ONE_STEP,
    LocalSteps,
    MakeDefence,
    Prior,
    draw_labels,
    shifted_copies,
)
from fedleak.attacks.labels.learned.table import is_faithful, make_table
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.data import Images
from fedleak.errors import whole_number
from fedleak.federated import Update
from fedleak.models import head

ITERATIONS = 300
"""Number of training iterations."""
MIN_IMAGES_TO_SPLIT = 10
"""Fewest images per class of which a fifth is held out for calibration."""
MOST_SAMPLES = 10_000
"""Most samples of a simulated batch."""


def _local_steps(update: Update) -> LocalSteps:
    """Return the client's local steps; raise `ValueError` if their batches differ or the rate is unknown."""
    if update.steps == 1:
        return ONE_STEP
    if update.lr is None:
        raise ValueError("of several local steps the learning rate is needed: pass an update with lr")
    return LocalSteps(update.samples // update.batch_size, update.lr)


def train(
    model: nn.Module,
    aux: Images,
    batch_size: int,
    *,
    bias: bool = True,
    iterations: int = ITERATIONS,
    seed: int = 0,
    level: float = 0.9,
    defence: MakeDefence | None = None,
    seconds: float = float("inf"),
    local: LocalSteps = ONE_STEP,
    train_loss: float | None = None,
    prior: Prior = draw_labels,
    batches: int = BATCHES,
    progress: bool = False,
) -> LearnedAttacker:
    """Train an attacker for a model and a batch size, on clients simulated from images and their shifted copies.

    A fifth of the auxiliary images calibrates the intervals and is not trained on. With fewer than ten images of a
    class all are used for both, and the intervals are then too narrow. After the training and the calibration the
    closed forms are computed anew from all images (not with a defence or local steps), so that the intervals' coverage,
    an average over classes and batches, is measured and not guaranteed.

    Parameters
    ----------
    model
        The model before the round; it runs once on the images and once on their copies. With batch norm in training
        mode its statistics are those of all of them.
    aux
        Labelled images of every class.
    batch_size
        Samples of a local step, B.
    bias
        Whether the clients share the gradient of the head's bias.
    iterations
        Number of training iterations.
    seed
        Random seed of the network and of the simulation.
    level
        Probability with which an interval should contain its count.
    defence
        ``make(clients, seed)``, the clients' defence if the attacker knows it (an adaptive attacker): the simulated
        gradients go through it. The defence has no memory and acts tensor by tensor.
    seconds
        Time limit of the iterations, extrapolated from the first ones.
    local
        The clients' local steps of plain SGD. They are simulated on the head alone, with the layers below frozen and
        without what a tied embedding adds.
    train_loss
        Mean cross-entropy of the clients' images under the model, if it is known. If it is below that of the auxiliary
        images, as after training on the clients' images, the true classes' logits are raised in the simulation: per
        batch by a uniform share, up to twice the shift that gives this loss.
    prior
        Draws the labels of the simulated batches; the default is for an attacker without a prior.
    batches
        Simulated batches per iteration, at most 256. If a batch has more than 256 samples they are fewer in proportion,
        down to an eighth. If fewer than the default are asked for, each serves two iterations.
    progress
        Whether to show a progress bar.

    Raises
    ------
    ValueError
        The model has no linear head, or the head no bias to share; the auxiliary data lack a class or have others; a
        number is out of range; the prior draws labels of other classes or shape; the training would take too long.
    """
    samples = batch_size * local.steps
    if not 1 <= samples <= MOST_SAMPLES:
        raise ValueError(f"batches of 1 to {MOST_SAMPLES} samples are simulated, not of {samples}")
    whole_number("iterations", iterations), whole_number("batches", batches)
    if not 0 < level < 1:
        raise ValueError(f"level is between 0 and 1, got {level}")
    if train_loss is not None and not (train_loss > 0 and local.steps == 1):
        raise ValueError(f"a training loss is above 0 and of use for one local step, got {train_loss}, {local.steps}")
    if bias and head(model).layer.bias is None:
        raise ValueError("the head has no bias whose gradient could be shared: pass bias=False")
    n = head(model).layer.out_features
    require_few_classes(n)
    require_classes(aux, n)
    drawn = prior(2, samples, n, torch.Generator().manual_seed(seed))
    if drawn.shape != (2, samples) or not 0 <= int(drawn.min()) <= int(drawn.max()) < n:
        raise ValueError(f"a prior draws labels [batches, {samples}] of {n} classes, got {list(drawn.shape)}: {drawn}")
    whole = make_table(model, aux, bias)
    trained_on = held_out = torch.arange(len(aux), device=whole.labels.device)
    if bool((aux.class_counts >= MIN_IMAGES_TO_SPLIT).all()):
        trained_on, held_out = (part.to(trained_on) for part in aux.split_indices(seed, 0.8))
    tables = [whole.take(trained_on), whole.take(held_out)]
    reader, copies = Reader(model, tables[0], bias, train_loss), shifted_copies(aux.take(trained_on))
    if copies is not None:
        tables[0] = tables[0].joined(make_table(model, copies, bias))
    pools = [reader.make_pool(model, table, defence, local)._replace(prior=prior) for table in tables]
    learned = LearnedAttacker(reader, pools[0], samples, iterations, seed, level, seconds, local, batches, progress)
    learned.calibrate(pools[1], seed + 1, batches)
    learned.is_faithful, learned.defended = is_faithful(whole, model, aux), defence is not None
    if defence is None and local.steps == 1:  # otherwise the noise is not that of the images alone
        reader.reweight(model, whole)
    return learned


@attack(
    "learned",
    needs={Need.HEAD_GRADIENT, Need.SAMPLE_COUNT, Need.MODEL, Need.AUXILIARY_DATA},
    summary="A network trained on simulated clients reads the counts off the last layer's gradient.",
    options={"iterations", "batches", "progress", "seconds", "defence"},
    prepares=True,
)
def prepare(
    model: nn.Module,
    aux: Images,
    *,
    iterations: int = ITERATIONS,
    seed: int = 0,
    seconds: float = float("inf"),
    defence: MakeDefence | None = None,
    batches: int = BATCHES,
    progress: bool = False,
) -> Prepared:
    """Prepare the attack, which trains an attacker for each batch size and each kind of local steps that it meets.

    It reads the head's gradient (the bias's too, if it is shared) and returns 90 % intervals with the counts. Several
    local steps have to be plain SGD on equal batches, or converted to it.

    Parameters
    ----------
    model, aux
        The model before the round; labelled images of every class.
    iterations, seed, seconds, defence, batches, progress
        As for `train`.

    Raises
    ------
    ValueError
        As for `train`; in ``recover``: local steps with unequal batches or an unknown rate, an update of another model,
        or entries that are NaN or infinite.
    WithheldParameter
        In ``recover``: the gradient of the head's weights is not shared.
    """
    last = head(model)
    require_classes(aux, last.layer.out_features)

    @cache
    def train_attacker(batch_size: int, local: LocalSteps, bias: bool) -> LearnedAttacker:
        options = {"iterations": iterations, "seed": seed, "seconds": seconds, "defence": defence}
        options |= {"batches": batches, "progress": progress}
        return train(model, aux, batch_size, bias=bias, local=local, **options)  # type: ignore[arg-type]

    def read(update: Update) -> Result:
        local = _local_steps(update)
        head_gradient(update, model)  # raises before the training
        bias = last.layer.bias is not None and last.bias in update.tensors
        return train_attacker(update.batch_size, local, bias).read(update, model)

    return Prepared("learned", read)


recover = once(prepare)
