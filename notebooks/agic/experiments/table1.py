"""AGIC: Table I, Figs. 9 and 10, the weights of layers and of total variation."""

from fedleak_book.experiments import Experiment, grid
from notebooks.agic.clients import CIFAR10, CURVE, EVAL, GIVEN, LEVEL, PATH, PHOTOS
from notebooks.agic.clients import PLAIN, QUALITY, STATES, VARIANTS, inverted
from notebooks.agic.clients import on_the_way, quality


# --- the weights of layers and of total variation ---
SHAPES = [dict(shape="none", beta=1.0)] + [
    dict(shape=s, beta=b) for b in (0.5, 2.0) for s in ("log", "exp", "linear")
]


def weight_shapes(ctx, seeds, data, net, side, shape, beta, iterations):
    """AGIC on the gradients of four images, with one function of the layers' weights."""
    sizes = dict(batch_size=4, iterations=iterations, relu=False)
    x, images, _ = inverted(
        ctx, seeds, data, net, side, "AGIC", **sizes, shape=shape, beta=beta
    )
    yield from quality(ctx, seeds, x, images[iterations], data, side)


TABLE1 = Experiment(
    "table1",
    weight_shapes,
    quick=[PHOTOS | s | dict(iterations=20) for s in SHAPES],
    paper=[
        CIFAR10 | s | dict(data=data, iterations=1000)
        for data in ("cifar10", "cifar100")
        for s in SHAPES
    ],
    trials=(1, 4),
    fixed=dict(batch_size=4, schedule=LEVEL) | GIVEN,
    **QUALITY,
)
BETAS = dict(beta=[1.0, 2.0, 20.0, 50.0], iterations=2000)


def weighted(ctx, seeds, data, net, side, state, trained, beta, iterations):
    """AGIC on one image's gradient by the ratio of the weights and the state of the network."""
    sizes = dict(iterations=iterations, snapshots=CURVE, trained=trained)
    more = {"beta": beta, **VARIANTS.get(state, {})}
    x, images, _ = inverted(ctx, seeds, data, net, side, "AGIC", **sizes, **more)
    yield from on_the_way(ctx, seeds, x, images, data, side, pictures=state == PLAIN)


FIG9 = Experiment(
    "fig9",
    weighted,
    quick=grid(**PHOTOS, state=STATES, trained=0, beta=[1.0, 50.0], iterations=30)
    + grid(**PHOTOS, state="trained", trained=40, beta=[1.0, 50.0], iterations=30),
    paper=grid(**CIFAR10, state=STATES, trained=0, **BETAS)
    + grid(**CIFAR10, state="trained", trained=150, **BETAS),
    trials=(2, 4),
    fixed=dict(batch_size=1, schedule=LEVEL, total_variation=1e-4) | EVAL,
    tables=("fig9", "fig10"),
    **PATH,
)
