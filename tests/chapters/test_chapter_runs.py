"""Experiments of a module: units, resuming, code that changed, records, claims."""

import json
import re
import shutil

import evidence
import pandas as pd
import pytest
from fresh_modules import forget

from fedleak_book import paths
from fedleak_book.commands import experiments as commands
from fedleak_book.evidence import scoreboard
from fedleak_book.evidence.results import Results, figure_of, slug
from fedleak_book.experiments import Experiment, records, running
from fedleak_book.experiments.kinds import MEAN


def page(chapter):
    return evidence.page(chapter, scoreboard.rows(chapter) if chapter in paths.papers() else ())


def rows_of(name="table1", **options):
    return Results("tiny", device="cpu", **options).rows(name)


def log():
    return running.module("tiny", "experiments").LOG


def test_rows_are_those_of_seed_and_setting_and_are_kept(tiny):
    first = rows_of()
    assert list(first) == ["net", "size", "trial", "seed", "rule", "iacc", "images"]
    assert len(first) == 2 * 2 * 2
    assert len(log()) == 4
    pd.testing.assert_frame_equal(rows_of(trials=1), first[first["trial"] == 0].reset_index(drop=True))
    assert len(log()) == 4, "nothing is computed twice"
    assert not rows_of(seed=1)["iacc"].equals(first["iacc"])


def test_a_killed_run_goes_on_and_gives_the_same_rows(tiny, monkeypatch):
    whole = rows_of()
    (tiny / "units").rename(tiny / "elsewhere")
    experiments, done = running.module("tiny", "experiments"), []

    def killed(ctx, seed, **setting):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(seed)
        yield from experiments.drawn(ctx, seed, **setting)

    broken = Experiment(**{**vars(experiments.TABLE1), "trial": killed, "fixed": {}})
    with pytest.raises(KeyboardInterrupt):
        running.run("tiny", broken, Results("tiny", device="cpu").context, broken.settings("quick"))
    (path,) = [p for p in (tiny / "units").rglob("*.jsonl") if len(p.read_text().splitlines()) == 2]
    path.write_text(path.read_text() + "cut of")
    experiments.LOG.clear()
    again = rows_of()
    assert len(log()) == 1
    assert list(again) == list(whole)
    assert [*(tiny / "units").rglob("*.corrupt")]


def test_units_of_other_code_are_not_taken_unawares(tiny):
    rows_of()
    text = (tiny / "notebooks/tiny/experiments.py").read_text()
    (tiny / "notebooks/tiny/experiments.py").write_text(text + "\nMORE = 1\n")
    forget()
    with pytest.raises(ValueError, match=r"4 finished units of version 1 are of other code.*--reuse-cache"):
        rows_of(others="refuse")
    rows_of(others="use")
    assert log() == []
    rows_of()
    assert len(log()) == 4
    rows_of(others="refuse")
    (tiny / "notebooks/tiny/experiments.py").write_text(text.replace('by="rule"', 'by="rule", version=2'))
    forget()
    rows_of(others="refuse")
    assert len(log()) == 4


def test_recorded_trials_are_taken_where_the_cache_is_lost(tiny):
    def record(trials, **how):
        shutil.rmtree(tiny / "units", ignore_errors=True)
        running.module("tiny", "experiments").LOG.clear()
        return Results("tiny", device="cpu", trials=trials, record=True, **how).rows("table1")

    whole = record(4)
    record(2)
    assert len(log()) == 4
    pd.testing.assert_frame_equal(record(4, others="use"), whole)
    assert len(log()) == 4, "the two others of each setting"
    record(4, others="use")
    assert log() == []
    record(4)
    assert len(log()) == 8
    path = paths.recorded("tiny", "quick") / "table1.csv"
    path.write_text(path.read_text() + "changed by hand\n")
    with pytest.raises(ValueError, match="record it again"):
        record(4, others="use")
    record(4)
    record(4, others="use", seed=1)
    assert len(log()) == 8


def test_a_vectorised_trial_gets_seeds_in_parts(tiny):
    rows = rows_of("fast")
    assert [len(seeds) for seeds in log()] == [25, 5]
    assert (rows["value"] == rows["seed"] % 7).all()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (('"images": 6}', '"more": 6}'), r"lacks columns of its declaration: \['images'\]"),
        (('yield {"seed": seed, ', "yield {"), "names the seed in each of its rows"),
    ],
)
def test_a_trial_that_does_not_fit_its_declaration(tiny, edit, message):
    path = tiny / "notebooks/tiny/experiments.py"
    path.write_text(path.read_text().replace(*edit))
    forget()
    with pytest.raises((ValueError, TypeError), match=message):
        [rows_of(name) for name in ("table1", "fast")]


@pytest.fixture
def recorded(tiny):
    results = Results("tiny", "paper", "cpu", record=True)
    for name in running.declared("tiny"):
        results.rows(name)
    commands.claims("tiny")
    forget()
    return Results("tiny", device="cpu")


def test_what_is_recorded_is_what_was_run(recorded):
    table1 = running.declared("tiny")["table1"]
    record = records.recorded("tiny", "table1")
    rows, facts = record.rows, record.facts
    assert len(rows) == (2 * 4 + 3) * 2
    assert facts["declared"] == json.loads(json.dumps(table1.declared))
    assert facts["datasets"][0]["name"] == "synthetic/train"
    assert (facts["profile"], facts["seed"], len(facts["code"])) == ("paper", 0, 12)
    assert {"numpy", "scipy", "torch", "torchvision", "processor", "memory", "commit", "seconds"} <= set(facts)
    best = recorded.best("table1")
    assert set(best["source"]) == {"recorded"}
    assert best["n"].tolist() == [4, 4, 4, 4, 3, 3]
    cell = recorded.cell("table1", net="b", rule="ours")
    assert (cell.n, f"{cell:.2f}") == (3, f"{float(cell):.2f}")
    assert f"{cell:.2f ci}" == f"{float(cell):.2f} [{cell.low:.2f}, {cell.high:.2f}]"
    with pytest.raises(ValueError, match="6 cells"):
        recorded.cell("table1")


def test_values_of_two_cells_are_paired_by_trial(recorded):
    ours, theirs = (recorded.by_trial("table1", net="a", size=1, rule=rule) for rule in ("ours", "theirs"))
    lead = recorded.mean(ours - theirs, MEAN)
    assert (float(lead), lead.n) == (pytest.approx(0.25), 4)
    assert recorded.mean(ours - recorded.by_trial("table1", net="b", rule="ours")).n == 3, "the fourth has no pair"
    assert (alone := recorded.mean(ours)).low < alone < alone.high
    with pytest.raises(ValueError, match="4 cells"):
        recorded.by_trial("table1", net="a")


def test_claims_and_their_verdict(recorded):
    assert recorded["ahead"] == pytest.approx(0.25)
    assert recorded["count"] == 5
    (row,) = (row for row in recorded.values if row["id"] == "ahead")
    assert (recorded["ahead"].n, row["differences"]) == (4, [])
    assert recorded.verdict("tab-tiny-1").startswith("*2 of 3 printed values reproduced, 1 undecided (")
    assert "book/evidence/tiny.md#table-1" in recorded.verdict("tab-tiny-1")
    with pytest.raises(ValueError, match="no value"):
        recorded.verdict("tab-tiny-9")
    with pytest.raises(ValueError, match="not measured"):
        f"{recorded['never']:.2f}"


def test_the_evidence_page_has_every_value_record_and_trial(recorded, monkeypatch):
    text = page("tiny")
    assert "<th>rule</th>" in text
    assert "takes a GPU" in text
    assert text.count("literalinclude") == 2
    assert "22 rows of trials, `data/results/tiny/table1.csv`" in text
    found, keys = re.findall(r'<a id="([^"]+)" href="#([^"]+)">', text), Results("tiny", device="cpu").published.items
    assert sorted(found) == sorted((key, key) for key in keys)
    monkeypatch.setattr(evidence, "LONGEST", 3)
    assert "<th>rule</th>" not in page("tiny")


def test_a_record_outlives_its_code(recorded, tiny):
    path, experiments = paths.recorded("tiny") / "fast.json", tiny / "notebooks/tiny/experiments.py"
    code = {"commit": "0123456789abcdef", "trial": "notebooks/tiny/experiments.py", "says": "All seeds at once."}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"retired": code}))
    experiments.write_text(experiments.read_text().partition("FAST = ")[0])
    forget()
    assert Results("tiny", device="cpu").cell("fast").n == 60
    commands_again = paths.again("tiny", "fast", code)
    assert commands_again.splitlines()[-1] == "PYTHONPATH=. python -m fedleak record tiny fast"
    assert commands_again in page("tiny")
    with pytest.raises(ValueError, match="git worktree add"):
        commands.record("tiny", ["fast"])
    with pytest.raises(ValueError, match="nothing"):
        commands.record("tiny", ["nothing"])


NOTES = """# tab-tiny-1: Table 1

Beside its values.

# fig-far: How far it goes

Up to {{ -claims | f(".1f") }}.
"""


def test_notes_stand_with_their_values_or_alone(recorded, tiny):
    (tiny / "notebooks/tiny/notes.md").write_text(NOTES)
    (tiny / "notebooks/tiny/notes.py").write_text(
        "def fig_far(run):\n    claims = run['count'] / 2\n    return locals()"
    )
    values, rest = page("tiny").split("## Where the recorded runs come from")[0].split("## Notes")
    assert "Beside its values." in values
    assert rest.strip() == "### How far it goes\n\n[In the chapter](#fig-far).\n\nUp to −2.5."


@pytest.mark.parametrize(
    ("text", "says"),
    [("Up to {{ claims }}.", "claims"), ("{{ 1 / 0 }}", "zero"), ("{{ run", "end"), ("# No anchor", "# No anchor")],
)
def test_a_mistake_in_a_note_is_named_with_its_place(recorded, tiny, text, says):
    (tiny / "notebooks/tiny/notes.md").write_text(f"# fig-far: How far it goes\n\n{text}")
    with pytest.raises(ValueError, match=f"tiny.*{says}"):
        page("tiny")


@pytest.mark.parametrize(
    ("item", "anchor", "heading"),
    [
        ("Fig. 8a", "", "fig-8"),
        ("Sec. 6.2, costs (a)", "", "sec-62-costs"),
        ("Fig. 5 (b)", "fig-gdbr-5b", "fig-5-b"),  # a panel that the lecture shows apart
    ],
)
def test_a_value_is_under_the_heading_of_its_figure(item, anchor, heading):
    assert slug(figure_of({"item": item, "anchor": anchor})) == heading


@pytest.mark.parametrize("chapter", paths.papers())
def test_no_two_headings_of_the_evidence_have_one_name(chapter):
    headings = {row["anchor"]: slug(figure_of(row)) for row in reversed(Results(chapter, device="cpu").values)}
    assert len(set(headings.values())) == len(headings), headings
