"""The arena: NVFlare's own privacy filters as defences, what is read through them and what they cost."""

from fedleak_book.experiments import Experiment, grid
from fedleak_book.experiments.kinds import NUMBER
from fedleak.models import head
from notebooks.arena.updates import ALL, LEARNED, SCORES, STATES, USUAL, one_update

LR = 0.1  # by which a gradient is a difference of weights
EXCLUDED, PERCENTILE, SVT = "ExcludeVars", "PercentilePrivacy", "SVTPrivacy"
STRENGTHS = {  # the default of each is the first
    PERCENTILE: [10.0, 50.0, 90.0],  # the percentile below which nothing is shared
    SVT: [0.1, 0.5, 0.9],  # the fraction that is shared
    EXCLUDED: [0.0],  # of the last layer
}


def filtered(name, strength, model, seed):
    """A filter of this name as a defence."""
    from nvflare.app_common.filters.exclude_vars import ExcludeVars
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    from fedleak.platforms.nvflare import Filtered

    last = head(model)
    makers = {
        PERCENTILE: lambda: PercentilePrivacy(percentile=strength),
        SVT: lambda: SVTPrivacy(fraction=strength),
        EXCLUDED: lambda: ExcludeVars(
            [name for name in (last.weight, last.bias) if name]
        ),
    }
    return Filtered(makers[name](), lr=LR, seed=seed)


def settings(few, kinds=tuple(STRENGTHS), **setting):
    """No filter, and these at their strengths; in a quick run at their defaults."""
    rows = grid(defence="none", strength=0.0, **setting)
    for name in kinds:
        strengths = STRENGTHS[name][:1] if few else STRENGTHS[name]
        rows += grid(defence=name, strength=strengths, **setting)
    return rows


def attacked(few, **setting):
    """The same for every attack that need not be trained."""
    names = [name for name, attack in ALL.items() if attack not in LEARNED]
    cells = settings(few, net="lenet", state=STATES, **setting)
    return [{**cell, "attack": name} for cell in cells for name in names]


FILTERS = Experiment(
    "filters",
    one_update,
    quick=attacked(True, data="MNIST, 5,000"),
    paper=attacked(False, data="MNIST"),
    trials=(1, 10),
    values={**SCORES, "seconds": NUMBER},
    facts="reason",
    times="seconds",
    fixed={k: v for k, v in USUAL.items() if k not in ("defence", "strength")}
    | {"lr": LR},
)
