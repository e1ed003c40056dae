"""What an audit leaves out, and why: one attack after the other, and what no attack of the package covers."""

from fedleak.attacks.registry import Attack, get
from fedleak.audit.setup import Setup

BEYOND = (
    (
        "several rounds",
        "an update is attacked by itself: what many rounds of one client give away together is not measured",
    ),
    ("statistics of batch norm", "the updates hold parameters only: running means and variances would give away more"),
    (
        "other losses",
        "clients minimise the cross-entropy; label smoothing, distillation or a regression are not covered",
    ),
    (
        "membership and properties",
        "who took part in the training, and what is true of the data as a whole, is not asked",
    ),
)
"""Of every audit."""


def image_attack(setup: Setup) -> Attack:
    """Return the one image attack that is run if it is asked for: of one local step, or of several."""
    return get("InvG" if setup.steps == 1 else "AGIC")


def excluded(attack: Attack, setup: Setup) -> str:
    """Return why an attack is not tried whatever the adversary has; "" if it is tried."""
    if attack.sees == "aggregate" and setup.clients == 1:
        return "it is made for secure aggregation; here every update is seen by itself"
    if attack.apart:
        return attack.apart
    if attack.goal == "images":
        if not setup.images:
            return "it applies, but an inversion takes minutes an update; ask for a short one with images=SECONDS"
        chosen = image_attack(setup)
        return "" if attack == chosen else f"one image attack is run, {chosen.name}"
    return "a recovery takes minutes, too long for every update" if attack.cost == "minutes" else ""
