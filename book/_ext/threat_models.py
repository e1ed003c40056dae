"""Write the page of the threat models from the package's registry: each attack's adversary and requirements."""

from collections.abc import Iterable

import pandas as pd
from render import cards, plain, table

from fedleak.attacks import registry
from fedleak.attacks.registry import Adversary, Attack
from fedleak.federated.defences import protections

PLACES = (
    (
        "Sees one client’s update",
        "A passive server without secure aggregation, or an eavesdropper.",
        (
            (registry.NOBODY, "No gradients"),
            (registry.EAVESDROPPER, "The gradients alone"),
            (registry.WHITE_BOX, "Also the model"),
            (registry.WITH_AUXILIARY, "Also auxiliary data"),
        ),
    ),
    (
        "Sees an update without its last layer",
        "Partial encryption, or a head that stays with the client.",
        ((registry.RESTRICTED, "A lower layer, the model, auxiliary data"),),
    ),
    (
        "Sees the sum only, and changes the model",
        "A malicious server behind secure aggregation.",
        ((registry.MALICIOUS_AGGREGATOR, "The aggregate and the model"),),
    ),
)


def first_possible(attacks: Iterable[Attack], steps: Iterable[tuple[Adversary, str]]) -> list[tuple[str, list[Attack]]]:
    """List each attack under the first adversary that can run it; attacks that none of them can run are left out."""
    remaining, first = list(attacks), []
    for adversary, words in steps:
        can = [attack for attack in remaining if not attack.lacking(adversary)]
        remaining = [attack for attack in remaining if attack not in can]
        first.append((words, can))
    return first


def threat_map() -> str:
    """Return a card for each point of view of an adversary, with the attacks that become possible there."""
    rows = []
    for title, text, steps in PLACES:
        for words, attacks in first_possible(registry.all_attacks(), steps):
            text += f"\n\n**{words}**"
            for goal in ("labels", "images", "words"):
                names = " · ".join(plain(attack.name) for attack in attacks if attack.goal == goal)
                text += f"\n: {goal}: {names}" if names else ""
        rows.append({"title": title, "text": text})
    return cards(pd.DataFrame(rows), columns="1")


def threat_models() -> str:
    """Return the tables of the registered attacks: goals, requirements, and adversaries."""
    attacks = registry.all_attacks()
    needs = [need for need in registry.Need if any(need in attack.uses for attack in attacks)]
    names = pd.DataFrame({"Attack": [f"**{plain(attack.name)}**" for attack in attacks]})
    about = pd.DataFrame(
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
    required = pd.DataFrame(
        {need.value: "needs" if need in a.needs else "takes" if need in a.uses else "·" for need in needs}
        for a in attacks
    )
    possible = pd.DataFrame(
        {adversary.name: "·" if a.lacking(adversary) else "can" for adversary in registry.ADVERSARIES} for a in attacks
    )
    return (
        f"## The attacks\n\n{table(names.join(about))}\n"
        "## What each attack needs\n\n"
        f"*takes*: optional; the attack uses it where it is available.\n\n{table(names.join(required))}\n"
        f"## Adversaries that can run each attack\n\n{table(names.join(possible))}"
    )


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


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    return {"threat_map": threat_map(), "threat_models": threat_models(), "measured_defences": measured_defences()}
