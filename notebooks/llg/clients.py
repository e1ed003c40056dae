"""LLG: what the chapter's trials share: data sets, a client's update, probes, success, defences."""

import torch

from fedleak import metrics
from fedleak.attacks.labels import llg
from fedleak.attacks.labels.llg import dummy_images
from fedleak.data import compose, draw
from fedleak.federated import fedavg
from fedleak.federated.defences import ClippedNoise, PureNoise, Sparsification
from fedleak.data import title
from fedleak.models import head, head_pass
from fedleak_book.experiments.kinds import rate
from fedleak_book.experiments.training import Federation

VARIANTS = ["LLG", "LLG*", "LLG+"]
SIZES = [1, 2, 4, 8, 16, 32, 64, 128]
STEPS = {"FedSGD": 1, "FedAvg": 10}
LR = 0.1  # of the local steps
WHOLE = "the whole update"  # is clipped
ASR = dict(asr=rate("batch_size", {"algorithm": STEPS}))
ACCURACY = dict(accuracy=rate(10_000))
SMALL = dict(data="mnist5k", users=75, participants=20, iterations=200)
BRIEF = SMALL | dict(iterations=20)  # rounds of ten steps
FULL = dict(data="mnist", users=750, participants=100, iterations=1000)
TRAINED = dict(net="cnn", composition="unbalanced", batch_size=8, samples=80, lr=LR)
LOADED = {
    "celeba-hair": ("celeba-hair", {"crop": False}),
    "patterns-100": ("synthetic", {"shape": (3, 32, 32), "n_classes": 100}),
    "patterns-5": ("synthetic", {"shape": (3, 32, 32), "n_classes": 5}),
}


def sets(ctx, data):
    """The victims' images, and those that the attacker draws from."""
    name, options = LOADED.get(data, (data, {}))
    return [ctx.images(name, split, **options) for split in ("train", "test")]


def client(model, images, composition, size, steps, seed, lr=LR):
    """One client's update, and which images are behind it, [steps, B]."""
    generator = torch.Generator().manual_seed(seed)
    labels = compose(composition, size, images.n_classes, 1, generator, steps=steps)[0]
    index = draw(images, labels, generator)
    return fedavg(model, images.x[index], images.y[index], lr=lr), index


def counted(images, index):
    """True label counts of a client, [n]."""
    return metrics.counts(images.y[index].flatten(), images.n_classes).cpu()


def success(counts, truth):
    """Attack success rate of counts [n]."""
    return metrics.attack_success_rate(counts.cpu(), truth).item()


def probes(model, source, sizes, seed):
    """Class gradients of the probe batches, {B: [run, label, class]}, from one pass over all images."""
    n = head(model).layer.out_features
    labels = {B: torch.arange(n)[:, None].expand(llg.RUNS, n, B) for B in sizes}
    if isinstance(source, str):
        generator, most = torch.Generator().manual_seed(seed), llg.RUNS * n * max(sizes)
        images = dummy_images(source, most, model.input_shape, generator)
        images = images.to(next(model.parameters()).device)
        all_of = {B: torch.arange(llg.RUNS * n * B) % len(images) for B in sizes}
        index = {B: all_of[B].view(y.shape) for B, y in labels.items()}
    else:
        images = source.x
        index = {
            B: draw(source, y, torch.Generator().manual_seed(seed))
            for B, y in labels.items()
        }
    passed = head_pass(model, images)
    device = images.device
    return {
        B: passed.row_sums(index[B].to(device), y.to(device)).double()
        for B, y in labels.items()
    }


def facts(images, auxiliary, index):
    """What a trial really had: images of the data set, different ones of the client, its steps."""
    distinct, side = index.unique().numel(), images.shape[-1]
    whole = len(images) + len(auxiliary)
    return {"images": whole, "held": distinct, "steps": len(index), "side": side}


def extracted(g, dummy, auxiliary, size, steps):
    """Label counts by every LLG variant, from class gradients [..., n] and the probes'."""
    samples = size * steps
    on_dummy, on_real = (
        llg.impact_and_offset(p, size, steps) for p in (dummy, auxiliary)
    )
    return {
        "LLG": llg.extract(g, llg.gradient_impact(g, samples), 0.0, samples),
        "LLG*": llg.extract(g, *on_dummy, samples),
        "LLG+": llg.extract(g, *on_real, samples, stop_at_samples=True),
    }


class ReleasedCompression:
    """What LLG's released code calls compression: no compression, kept for Fig. 7 (c, f).

    It ranks the n class sums of the head's gradient, takes the share `discard` with the
    smallest magnitudes, and uses those CLASS numbers as positions in the list of parameter
    tensors: these are set to zero as a whole.
    """

    def __init__(self, discard, head_weight):
        if not 0 <= discard < 1:
            raise ValueError(f"discard is in [0, 1), got {discard}")
        self.discard, self.head_weight = discard, head_weight

    def __call__(self, updates, clients):
        """The updates with whole tensors zeroed."""
        sums = updates[self.head_weight].sum(dim=2)
        zeroed = sums.abs().argsort(dim=1)[:, : round(self.discard * sums.shape[1])]
        return {
            name: t * (zeroed != position).all(dim=1).view(-1, *[1] * (t.dim() - 1))
            for position, (name, t) in enumerate(updates.items())
        }


def make_defence(kind, level, seed, clients=1, whole=False, averaged=1):
    """The defence of this name and level.

    `whole` clips the norm of the whole update. `averaged`: σ is that of the mean of this many updates, so that each of
    them gets √averaged times as much noise.
    """
    scale = averaged**0.5
    makers = {
        "none": lambda: None,
        "noise": lambda: PureNoise(level * scale, seed),
        "dp": lambda: ClippedNoise(level, 0.1 * scale, seed, whole),
        "sparse": lambda: Sparsification(level, clients),
        "released": lambda: ReleasedCompression(level, "7.weight"),
    }
    return makers[kind]()


def federated(ctx, seed, images, users):
    """A fresh network and its users, each with 80 unbalanced samples."""
    model = ctx.build("cnn", images.shape, images.n_classes, seed=seed)
    options = dict(users=users, samples=80, composition="unbalanced", seed=seed)
    return Federation.of(model, images, **options)


PAPER = ["mnist", "svhn", "cifar100", "celeba-hair"]
QUICK = ["mnist5k", "photos", "patterns-100", "patterns-5"]  # what stands in for them
PLACES = {title(name): [name, other] for name, other in zip(PAPER, QUICK)}
TITLE = {name: title for title, names in PLACES.items() for name in names}
PLAIN, RESIDUAL = ["cnn", "lenet"], ["resnet20", "resnet20-relu"]
STRENGTHS = {
    "none": [0.0], "noise": [0.01, 0.1, 1.0], "dp": [10.0, 5.0, 1.0],
    "sparse": [0.2, 0.4, 0.8], "released": [0.2, 0.4, 0.8],
}  # fmt: skip
LEVELS = [(kind, level) for kind, levels in STRENGTHS.items() for level in levels]
