"""The page of the threat models: every registered attack stands where its adversary can run it."""

import sys

from fedleak import paths
from fedleak.attacks import registry

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import threat_models
from render import plain

ALL = registry.all_attacks()


def test_every_attack_stands_in_some_place():
    placed = set()
    for _, _, steps in threat_models.PLACES:
        for (adversary, _), (_, attacks) in zip(steps, threat_models.first_possible(ALL, steps), strict=True):
            assert not [attack.name for attack in attacks if attack.lacking(adversary)]
            placed |= {attack.name for attack in attacks}
    assert placed == {attack.name for attack in ALL}


def test_an_attack_stands_under_the_first_adversary_who_can_run_it():
    _, _, steps = threat_models.PLACES[0]
    found = {words: {a.name for a in attacks} for words, attacks in threat_models.first_possible(ALL, steps)}
    assert "LLG" in found["The gradients alone"]
    assert "LLG*" in found["Also the model"]
    assert "LLG+" in found["Also auxiliary data"]
    assert not any("LIA-SA" in names for names in found.values())


def test_the_map_has_a_card_for_each_place_with_its_attacks():
    _, *cards = threat_models.threat_map().split("{grid-item-card} ")
    for (title, _, steps), card in zip(threat_models.PLACES, cards, strict=True):
        assert card.startswith(f"{title}\n")
        for words, attacks in threat_models.first_possible(ALL, steps):
            (group,) = (part for part in card.split("\n\n") if part.startswith(f"**{words}**\n"))
            for attack in attacks:
                (line,) = (line for line in group.splitlines() if line.startswith(f": {attack.goal}: "))
                assert plain(attack.name) in line.split(": ")[2].split(" · ")


def test_every_adversary_is_compared_with_the_sok():
    assert set(threat_models.SOK) == set(registry.ADVERSARIES)


def test_every_registered_attack_is_in_the_tables():
    text = threat_models.threat_models()
    for attack in ALL:
        assert text.count(f"| **{plain(attack.name)}** |") == 3
