"""The page of the threat models, from the package's registry: each attack's adversary and requirements."""

from typing import Any

import pandas as pd
from render import plain, table

from fedleak.attacks import registry
from fedleak.federated.defences import protections

STANDS = (
    (registry.NOBODY, registry.EAVESDROPPER, registry.WHITE_BOX, registry.WITH_AUXILIARY),
    (registry.RESTRICTED,),
    (registry.MALICIOUS_AGGREGATOR,),
)
"""Where an adversary stands: at each place, those that know more and more."""


def first_possible() -> dict[str, str]:
    """Return for each adversary the attacks, by goal, that become possible with what it knows."""
    possible = {}
    for adversaries in STANDS:
        remaining = list(registry.all_attacks())
        for adversary in adversaries:
            can = [attack for attack in remaining if not attack.lacking(adversary)]
            remaining = [attack for attack in remaining if attack not in can]
            goals = {goal: [plain(a.name) for a in can if a.goal == goal] for goal in ("labels", "images", "words")}
            lines = [f"- {goal}: {' · '.join(names)}" for goal, names in goals.items() if names]
            possible[adversary.name] = "\n".join(lines)
    return possible


def tables() -> dict[str, str]:
    """Return the tables of the registered attacks: goals, requirements, and adversaries."""
    attacks = registry.all_attacks()
    needs = [need for need in registry.Need if any(need in attack.uses for attack in attacks)]
    about = (
        {
            "Recovers": attack.goal,
            "Server": attack.server,
            "Sees": attack.sees,
            "Paper": f"{{cite:t}}`{attack.paper}`" if attack.paper else "–",
            "Rule": attack.equation or "–",
            "In short": attack.summary,
        }
        for attack in attacks
    )
    required = (
        {need.value: "needs" if need in a.needs else "takes" if need in a.uses else "·" for need in needs}
        for a in attacks
    )
    possible = ({who.name: "·" if a.lacking(who) else "can" for who in registry.ADVERSARIES} for a in attacks)
    names = pd.DataFrame({"Attack": [f"**{plain(attack.name)}**" for attack in attacks]})
    rows = {"registry_attacks": about, "registry_needs": required, "registry_adversaries": possible}
    return {name: table(names.join(pd.DataFrame(columns))) for name, columns in rows.items()}


def measured_defences() -> str:
    """Return the table of the registered defences."""
    against = pd.DataFrame(
        {
            "Defence": f"**{kind.name}**",
            "Strengths in the arena": ", ".join(f"{s:g}" for s in kind.strengths if s) or "–",
            "Remedies in an audit": ", ".join(f"{s:g}" for s in kind.remedies if s)
            or ("as it is" if kind.remedies else "–"),
            "Changes the averaged update": "yes" if kind.changes_training else "no",
        }
        for kind in protections().values()
    )
    return table(against)


def fragments() -> dict[str, Any]:
    """Return the fragments by name."""
    return {"possible": first_possible(), "measured_defences": measured_defences(), **tables()}
