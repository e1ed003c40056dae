"""The learned attacker: a network, trained on simulated clients, infers counts from an update.

Whoever has the model and labelled auxiliary images can play the client: draw a batch of known counts, compute what the
client would send, and again. A small network learns the way back, from update to counts (simulation-based inference,
amortised: trained once for a model and a batch size, it reads any number of updates).

It is trained for the expected L1 distance of the class shares, whose minimiser also minimises the expected number of
labels that are wrong. Two more outputs a class are its quantiles (pinball loss), moved by split-conformal calibration
(Romano, Patterson and Candès, NeurIPS 2019) on batches of images that it was not trained on.
"""

from functools import cache

import torch
from torch import nn

from fedleak.attacks.labels.inputs import head_gradient, require_classes
from fedleak.attacks.labels.posterior import BATCHES
from fedleak.attacks.labels.posterior import PACE as PACE
from fedleak.attacks.labels.posterior import Learned as Learned
from fedleak.attacks.labels.reader import Reader
from fedleak.attacks.labels.simulated import ONE_STEP, Defended, Local, Prior, draw_labels, shifted
from fedleak.attacks.registry import Need, attack
from fedleak.attacks.result import Prepared, Result, once
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.models import head

ITERATIONS = 300
"""Iterations of the training."""
FEWEST = 10
"""Images of each class from which on a fifth is kept apart for calibration."""
MOST_SAMPLES = 10_000
"""Samples of a batch, at most: more are too many to simulate."""


def _local(update: Update) -> Local:
    """Return what the client is known to have done, with the batch size checked to be the same in every step."""
    if update.steps == 1:
        return ONE_STEP
    if update.lr is None:
        raise ValueError("of several local steps the learning rate is needed: pass an update with lr")
    return Local(update.samples // update.batch_size, update.lr)


def train(
    model: nn.Module,
    aux: Images,
    batch_size: int,
    *,
    bias: bool = True,
    iterations: int = ITERATIONS,
    seed: int = 0,
    level: float = 0.9,
    defence: Defended | None = None,
    seconds: float = float("inf"),
    local: Local = ONE_STEP,
    train_loss: float | None = None,
    prior: Prior = draw_labels,
    batches: int = BATCHES,
    progress: bool = False,
) -> Learned:
    """Train an attacker for a model and a batch size, on simulated clients, whose images are also moved (`shifted`).

    A fifth of the auxiliary images calibrates the intervals and is not trained on. With fewer than ten images of a
    class all are used for both, and the intervals are then too narrow. Once trained, the closed forms that it reads
    with are those of all images (not with a defence or local steps). Raises `ValueError` if the model has no linear
    head or its head no bias to share, the auxiliary data lack a class or are of others, or a number is out of range; if
    the prior draws no such labels; if the training would take longer than it may.

    Parameters
    ----------
    model
        Before the round; one forward pass of it is taken.
    aux
        Labelled images of every class.
    batch_size
        Samples of a local step, B.
    bias
        Whether the clients share the gradient of the head's bias.
    iterations
        Of the training.
    seed
        Random seed of the network and of the simulation.
    level
        The probability with which an interval is to hold its count.
    defence
        ``make(clients, seed)``, the clients' own defence where the attacker knows it (adaptive): the gradients of the
        head that it simulates go through it too. The defence has no memory, and acts on each tensor by itself.
    seconds
        Time limit of the iterations, extrapolated from the first ones.
    local
        The clients' local steps of plain SGD, if there are several. They are simulated on the head, as if the layers
        below stood still.
    train_loss
        Mean cross-entropy of the clients' images under the model, if it is known. Where it is below that of the
        auxiliary images, as it is of images that the model was trained on, simulated clients' images fit better too:
        for every batch the logits of their own classes are raised, by 0 to twice what gives the training loss.
    prior
        Draws the labels of the simulated batches; the default mixes all kinds, for an attacker without a prior.
    batches
        Simulated batches per iteration; fewer of more than 256 samples, but at least 32.
    progress
        Show a progress bar of the training.
    """
    samples = batch_size * local.steps
    if not 1 <= samples <= MOST_SAMPLES:
        raise ValueError(f"batches of 1 to {MOST_SAMPLES} samples are simulated, not of {samples}")
    if iterations < 1 or not 0 < level < 1:
        raise ValueError(f"iterations are at least 1, level is between 0 and 1; got {iterations} and {level}")
    if batches < 1:
        raise ValueError(f"batches is at least 1, got {batches}")
    if train_loss is not None and not (train_loss > 0 and local.steps == 1):
        raise ValueError(f"a training loss is above 0 and of use for one local step, got {train_loss}, {local.steps}")
    n = head(model).layer.out_features
    require_classes(aux, n)
    drawn = prior(2, samples, n, torch.Generator().manual_seed(seed))
    if drawn.shape != (2, samples) or not 0 <= int(drawn.min()) <= int(drawn.max()) < n:
        raise ValueError(f"a prior draws labels [batches, {samples}] of {n} classes, got {list(drawn.shape)}: {drawn}")
    learnt, held_out = aux.split_in_two(seed, 0.8) if (aux.class_counts >= FEWEST).all() else (aux, aux)
    reader = Reader(model, learnt, bias, train_loss)
    pools = [reader.pool(model, part, defence, local)._replace(prior=prior) for part in (shifted(learnt), held_out)]
    learned = Learned(reader, pools[0], samples, iterations, seed, level, seconds, local, batches, progress)
    learned.calibrate(pools[1], seed + 1)
    learned.defended = defence is not None
    if defence is None and local.steps == 1:  # else the noise is not that of the images alone
        reader.sharpen(model, aux)
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
    defence: Defended | None = None,
    batches: int = BATCHES,
    progress: bool = False,
) -> Prepared:
    """Prepare the attack: `train` an attacker for each batch size, number and rate of steps that an update has.

    Of an update the head's gradient is used (the bias's too, if it is shared). Several local steps are those of plain
    SGD on equal batches, or made to read like them. The result has the ends of 90 % intervals. Raises
    `WithheldParameter` when an update is read: if the gradient of the head's weights is not shared; `ValueError` as for
    `train`; when an update is read, for several local steps of different batches or an unknown rate, for an update of
    another model, or with NaN or infinite entries.

    Parameters
    ----------
    model, aux
        Before the round; labelled images of every class.
    iterations, seed, seconds, defence, batches, progress
        As for `train`.
    """
    last = head(model)
    require_classes(aux, last.layer.out_features)

    @cache
    def trained(batch_size: int, local: Local, bias: bool) -> Learned:
        how = {"iterations": iterations, "seed": seed, "seconds": seconds, "defence": defence}
        how |= {"batches": batches, "progress": progress}
        return train(model, aux, batch_size, bias=bias, local=local, **how)  # type: ignore[arg-type]

    def read(update: Update) -> Result:
        local = _local(update)
        head_gradient(update, model)  # is refused before the training
        bias = last.layer.bias is not None and last.bias in update.tensors
        return trained(update.batch_size, local, bias).read(update, model)

    return Prepared("learned", read)


recover = once(prepare)
