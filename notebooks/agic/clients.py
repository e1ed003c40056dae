"""AGIC: what the trials share: images, networks, local batches, an attack on many updates at once, scores."""

import copy
import dataclasses

import numpy as np
import torch

from fedleak import metrics
from fedleak.attacks.images import agic, dlg, invg
from fedleak.data import draw
from fedleak.data.sources import folder_of
from fedleak.federated import fedavg
from fedleak_book.experiments import networks
from fedleak_book.experiments.kinds import MEAN, NUMBER
from fedleak.models import head
from fedleak.models.zoo import Normalise

NETWORK = 0  # seed of the one network that all trials of a table share
SCORES = dict.fromkeys(("psnr", "ssim", "lpips"), NUMBER)
STORED, OWN = "evaluation mode", "training mode"  # whose statistics batch norm takes
EVAL = dict(batch_norm=STORED)  # the paper prints none


def pool(ctx, data, side):
    """A data set at a size: CIFAR's test images, or what stands in for them."""
    if data == "synthetic":
        return ctx.images(data, shape=(3, side, side), n_classes=100, count=400)
    return ctx.images(data, "train" if data == "photos" else "test", size=side)


PRETRAINED, WEIGHTS = "squeezenet1_1", "weights/squeezenet1_1_caffe_folded.pth"


def pretrained(ctx):
    """SqueezeNet 1.1 as trained on ImageNet, its last 1 x 1 convolution a fully connected head behind the mean.

    The ReLU between the two is omitted, so that the outputs are the head's.
    """
    from torchvision.models import squeezenet1_1  # takes seconds to import

    folder = folder_of(ctx.data_root or None)
    if folder is None or not (folder / WEIGHTS).is_file():
        raise FileNotFoundError(f"FEDLEAK_DATA names no folder with {WEIGHTS}")
    state = torch.load(folder / WEIGHTS, weights_only=True, map_location=ctx.device)
    whole, head_layer = squeezenet1_1(), torch.nn.Linear(512, 1000)
    whole.load_state_dict(state)
    weight, bias = state["classifier.1.weight"], state["classifier.1.bias"]
    head_layer.load_state_dict({"weight": weight.flatten(1), "bias": bias})
    scale = Normalise()
    for name, values in (
        ("mean", (0.485, 0.456, 0.406)),
        ("std", (0.229, 0.224, 0.225)),
    ):
        setattr(scale, name, torch.tensor(values)[:, None, None])
    pooled = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    model = torch.nn.Sequential(scale, whole.features, *pooled, head_layer)
    model.input_shape = (3, 224, 224)
    return model.to(ctx.device).eval()


def network(ctx, net, data, side, trained):
    """The chapter's one network in evaluation mode, untrained or after some steps of Adam in batches of 64."""
    if net == PRETRAINED:
        return ctx.once(("network", net), lambda: pretrained(ctx))

    def train():
        images = pool(ctx, data, side)
        model = ctx.build(net, images.shape, images.n_classes, seed=NETWORK)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        networks.train(model, images, trained, NETWORK, optimiser=adam)
        return model.eval()

    return ctx.once(("network", net, data, side, trained), train)


FALLING, LEVEL = "sign, falling rate", "no sign, steady rate"
BENT, SIGNED = "no sign, falling rate", "sign, steady rate"
DESCENTS = {FALLING: {}, BENT: dict(signed=False)}
DESCENTS |= {SIGNED: dict(decay=()), LEVEL: dict(signed=False, decay=())}
# iterations to score at
CURVE = (20, 40, 60, 100, 150, *range(200, 801, 100), *range(1000, 2000, 250))
CURVE += tuple(range(2000, 10000, 1000))
WHOLE = 10_000  # the paper's number of iterations


def scheduled(descent, schedule, **changes):
    """An attack's descent under one of the schedules: Adam by the gradient or its sign, the rate falling or not."""
    return dataclasses.replace(descent, **DESCENTS[schedule], **changes)


def batches(ctx, seeds, data, side, steps, batch_size):
    """For every seed local batches without a repeated label: x [N, steps, B, C, H, W], y [N, steps, B]."""
    images, index = pool(ctx, data, side), []
    present = images.class_counts.cpu() > 0
    for s in seeds:
        generator = torch.Generator().manual_seed(s)
        labels = torch.randperm(images.n_classes, generator=generator)
        labels = labels[present[labels]].repeat(2)[: steps * batch_size]
        index.append(draw(images, labels, generator))
    index = torch.stack(index).view(len(seeds), steps, batch_size)
    return images.x[index], images.y[index]


def inferred(updates, model, truth):
    """Labels by GI's rule, and the share that is right; where there are more samples than classes, the true ones."""
    if updates[0].samples > head(model).layer.out_features:
        return truth.flatten(1), 1.0
    labels = torch.stack([invg.inferred(u, model) for u in updates])
    shares = [
        torch.isin(a, b.flatten()).double().mean().item() for a, b in zip(labels, truth)
    ]
    return labels, float(np.mean(shares))


def scored(recovered, truth):
    """Mean PSNR, SSIM and LPIPS of a batch, paired with its originals."""
    recovered = metrics.paired(recovered, truth)
    perceived = metrics.lpips(recovered, truth)
    return {
        "psnr": metrics.psnr(recovered, truth).mean().item(),
        "ssim": metrics.ssim(recovered, truth).mean().item(),
        "lpips": np.nan if perceived is None else perceived.mean().item(),
    }


def hexed(image):
    """An image as text, a byte a value, for the table."""
    return bytes((image.clamp(0, 1) * 255).round().byte().flatten().tolist()).hex()


def unhexed(text):
    """The square image of three channels in a table's text, [3, H, W]."""
    values = torch.tensor(list(bytes.fromhex(text)))
    side = round((len(values) / 3) ** 0.5)
    return values.view(3, side, side) / 255


def inverted(
    ctx,
    seeds,
    data,
    net,
    side,
    method,
    batch_size=1,
    steps=1,
    iterations=1,
    schedule=LEVEL,
    snapshots=(),
    trained=0,
    batch_norm=STORED,
    total_variation=1e-4,
    **weighting,
):
    """All seeds' updates in one optimisation: originals [N, samples, ...], {iteration: images}, share of right labels.

    Images are of the end, and of those `snapshots` that come before it.
    """
    model = network(ctx, net, data, side, trained)
    if batch_norm != STORED:
        model = copy.deepcopy(model).train()
    x, y = batches(ctx, seeds, data, side, steps, batch_size)
    share = {"lr": 1e-4, "share": "delta"} if steps > 1 else {"lr": 1.0}
    updates = [fedavg(model, a, b, **share) for a, b in zip(x, y)]
    more = {"iterations": iterations, "seed": list(seeds)}
    more["snapshots"] = tuple(t for t in snapshots if t < iterations)
    labels, right = y.flatten(1), 1.0
    smooth = dict(total_variation=total_variation)
    if method == "DLG-Adam":
        done = invg.invert_many(updates, model, labels, descent=dlg.DLG_ADAM, **more)
    elif method == "InvG":
        more["descent"] = scheduled(invg.INVG, schedule, **smooth)
        done = invg.invert_many(updates, model, labels, **more)
    else:
        if steps > 1:
            labels, right = inferred(updates, model, y)
        if method == "one batch":
            weighting = dict(beta=1.0, relu=False)
        more["descent"] = scheduled(agic.AGIC, schedule, **smooth)
        more["weights"] = agic.layer_weights(**weighting)
        done = agic.invert_many([updates], [model], [labels], **more)
    return x.flatten(1, 2), {**done.snapshots, iterations: done.images}, right


def inverted_once(ctx, seeds, data, net, side, method, schedule, **how):
    """The same, once for all names of a schedule: DLG-Adam goes by the gradient, at a steady rate, under any."""
    of = data, net, side, method
    how["schedule"] = LEVEL if method == "DLG-Adam" else schedule
    invert = lambda: inverted(ctx, seeds, *of, **how)  # noqa: E731
    return ctx.once(("inverted", *of, *seeds, *how.values()), invert, most=1)


def quality(ctx, seeds, truth, recovered, data, side):
    """A row a seed: the scores of its batch, and how many images it was drawn from."""
    images = len(pool(ctx, data, side))
    for s, images_found, images_true in zip(seeds, recovered, truth):
        yield {"seed": s, **scored(images_found, images_true), "images": images}


def qualities(ctx, seeds, truth, images, data, side, by):
    """`quality` of every entry of `shown`, whose key is in column `by`."""
    for key, recovered in images.items():
        for row in quality(ctx, seeds, truth, recovered, data, side):
            yield {**row, by: key}


def on_the_way(ctx, seeds, truth, images, data, side, pictures=True):
    """`quality` at every snapshot, and at the end the first image beside its original; ``level`` is "whole" at `WHOLE`."""
    for t, recovered in images.items():
        level = "whole" if t == WHOLE else str(t)
        at = {"iteration": t, "final": t == max(images), "level": level}
        for row, a, b in zip(
            quality(ctx, seeds, truth, recovered, data, side), recovered, truth
        ):
            if at["final"] and pictures:
                at |= {"found": hexed(a[0]), "original": hexed(b[0])}
            yield {**row, **at}


SCORED = 2  # version of what is scored: since 2, SSIM is Wang et al.'s
QUALITY = dict(values=SCORES, facts="images", version=SCORED)
PATH = QUALITY | dict(by=("iteration", "final"), facts=("images", "found", "original"))
LABELLED = SCORES | dict(labels_right=MEAN)
ENDED = QUALITY | dict(by=("iteration", "final"), values=LABELLED)
GIVEN = dict(total_variation=1e-4, trained=0) | EVAL
PHOTOS = dict(data="photos", net="resnet20-1", side=12)
SYNTHETIC = PHOTOS | dict(data="synthetic")
CIFAR10 = dict(data="cifar10", net="resnet20-4", side=32)
CIFAR100 = CIFAR10 | dict(data="cifar100")
IMAGENET = dict(data="imagenet", side=224)


METHODS = ["DLG-Adam", "InvG", "AGIC"]
PLAIN = "untrained"
VARIANTS = {
    "untrained, no ReLU modifier": {"relu": False},
    "untrained, BN 1": {"norms": "one"},
}
STATES = [PLAIN, *VARIANTS]
RULES = ("no labels", "labels")
