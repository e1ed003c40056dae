"""LLG: Fig. 5, LLG+ on several networks."""

from fedleak.attacks.labels import llg
from fedleak_book.experiments import Experiment, grid
from notebooks.llg.clients import ASR, LR, PLAIN, RESIDUAL, SIZES, STEPS
from notebooks.llg.clients import client, counted, sets, success


def architectures(ctx, seed, data, algorithm, net, batch_size):
    """LLG+ through its public function."""
    images, auxiliary = sets(ctx, data)
    model = ctx.build(net, images.shape, images.n_classes, seed=seed)
    update, index = client(
        model, images, "unbalanced", batch_size, STEPS[algorithm], seed
    )
    counts = llg.recover(update, model, auxiliary, seed=seed)
    asr = success(counts, counted(images, index))
    yield {"asr": asr, "images": len(images) + len(auxiliary)}


SGD, AVG, BOTH = (dict(data="mnist", algorithm=a) for a in (*STEPS, list(STEPS)))
FEW = dict(data="mnist5k", algorithm=list(STEPS), batch_size=4)


FIG5 = Experiment(
    "fig5",
    architectures,
    quick=grid(**FEW, net=PLAIN) + grid(**FEW, net=RESIDUAL, trials=2),
    paper=grid(**BOTH, net=PLAIN, batch_size=SIZES)
    + grid(**BOTH, net=RESIDUAL, batch_size=SIZES[:5], trials=20)
    + grid(**SGD, net=RESIDUAL, batch_size=SIZES[5:], trials=20)
    + grid(**AVG, net=RESIDUAL, batch_size=SIZES[5:], trials=10),
    trials=(5, 50),
    values=ASR,
    facts="images",
    fixed={"composition": "unbalanced", "lr": LR},
)
