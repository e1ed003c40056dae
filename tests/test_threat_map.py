"""The map of the threat models: every registered attack stands where its adversary can run it."""

import sys
import xml.etree.ElementTree as ET

from fedleak import paths
from fedleak.attacks import registry

sys.path.insert(0, str(paths.root() / "book" / "_ext"))
import threat_map

ALL = registry.all_attacks()
DRAWING = threat_map.threat_map()
SVG = "{http://www.w3.org/2000/svg}"


def test_every_attack_stands_in_some_place():
    placed = set()
    for _, _, steps in threat_map.PLACES:
        for (adversary, _), (_, attacks) in zip(steps, threat_map.first_possible(ALL, steps), strict=True):
            assert not [attack.name for attack in attacks if attack.lacking(adversary)]
            placed |= {attack.name for attack in attacks}
    assert placed == {attack.name for attack in ALL}


def test_an_attack_stands_under_the_first_adversary_who_can_run_it():
    _, _, steps = threat_map.PLACES[0]
    found = {words: {a.name for a in attacks} for words, attacks in threat_map.first_possible(ALL, steps)}
    assert "LLG" in found["The gradients alone"]
    assert "LLG*" in found["Also the model"]
    assert "LLG+" in found["Also auxiliary data"]
    assert not any("LIA-SA" in names for names in found.values())


def test_the_drawing_is_well_formed_named_and_within_its_box():
    root = ET.fromstring(DRAWING)
    width, height = map(float, root.get("viewBox").split()[2:])
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text
    for attack in ALL:
        assert attack.name in root.find(f"{SVG}desc").text
    for line in root.iter(f"{SVG}text"):
        assert 0 < float(line.get("y")) < height
        if line.get("text-anchor") == "start":  # 14 px letters are 8 px wide or less on average
            assert float(line.get("x")) + 7.6 * len(line.text) < width
    assert "\n\n" not in DRAWING.strip()  # a blank line would end the HTML block
