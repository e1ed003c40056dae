"""NVFlare's own privacy filters as defences; the arena has the experiments on them."""

from fedleak.models import head

LR = 0.1  # by which a gradient is a difference of weights
EXCLUDED, PERCENTILE, SVT = "ExcludeVars", "PercentilePrivacy", "SVTPrivacy"
STRENGTHS = {  # the default of each is the first
    PERCENTILE: [10.0, 50.0, 90.0],  # the percentile below which nothing is shared
    SVT: [0.1, 0.5, 0.9],  # the fraction that is shared
    EXCLUDED: [0.0],  # of the last layer
}
DEFAULTS = {name: strengths[:1] for name, strengths in STRENGTHS.items()}
COSTLY = {name: STRENGTHS[name] for name in (PERCENTILE, SVT)}


def make_filter(name, strength, model, seed):
    """Make the defence of a filter's name; NVFlare is an extra."""
    from nvflare.app_common.filters.exclude_vars import ExcludeVars
    from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    from fedleak.platforms.nvflare import Filtered

    last = head(model)
    makers = {
        PERCENTILE: lambda: PercentilePrivacy(percentile=strength),
        SVT: lambda: SVTPrivacy(fraction=strength),
        EXCLUDED: lambda: ExcludeVars([n for n in (last.weight, last.bias) if n]),
    }
    return Filtered(makers[name](), lr=LR, seed=seed)
