"""GDBR: what the experiments share; a module stands here for each table or figure.

A trial runs at the scale of the pixels that its declaration names, or at every plausible choice of what the paper does not
print; ``data/published/gdbr/choices.toml`` has the choices. The lecture's section on a figure shows the rows of the
experiment with its name; the evidence page has all of them.
"""

from fedleak_book.experiments import grid
from fedleak_book.experiments.kinds import MEAN, NUMBER, difference, rate
from notebooks.gdbr.clients import NETS, NONE, OWN, PAIRS, STORED

FACTS = ("images", "held", "aux", "side")
OF_BATCH = ("images", "held", "side")
POSITIVE = dict(init="positive", form="paper")
PENULTIMATE = dict(layer=1, redrawn="network")
OF_64 = PENULTIMATE | dict(batch_size=64)
KINDS = dict(
    insacc=rate("batch_size"),
    clsacc=rate(10),
    elsewhere=MEAN,
    gain=difference("batch_size", form="paper"),
)  # what the averaged columns are


def kinds(*names):
    """What some columns are that are averaged; a number where nothing else is said."""
    return {name: KINDS.get(name, NUMBER) for name in names}


def pairs(full, nets=NETS, large=10, **axes):
    """Settings of some networks, each on its data: 20 trials for small ones, fewer for large ones."""
    settings = []
    for net in nets:
        small = net in ("lenet", "mlp6")
        most = 20 if small else 5 if "resnet50" in net else large
        trials = most if full else 3 if small else 2
        if data := PAIRS[net][full]:
            settings += grid(net=net, data=data, trials=trials, **axes)
    return settings


SCANNED = dict(values=kinds("insacc", "clsacc"), facts=FACTS, trials=(1, 20))


# --- batch norm's modes and dropout ---
VGG, ALEXNET = dict(net="vgg11", data="cifar10"), dict(net="alexnet", data="svhn")
RESNET_OWN = dict(net="resnet18-conv", batch_norm=OWN)
OTHERS = grid(**VGG, batch_norm=[NONE, STORED], trials=5)
QUICK = grid(net="alexnet", data="photos", batch_norm=NONE, trials=1)


def first(alexnet, vgg):
    """Settings with these numbers of trials: AlexNet with dropout, and VGG-11 with batch statistics."""
    settings = grid(**ALEXNET, batch_norm=NONE, trials=alexnet)
    return settings + grid(**VGG, batch_norm=OWN, trials=vgg)
