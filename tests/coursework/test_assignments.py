"""The assignments: solutions pass, stubs fail, and typical mistakes fail with the hint that helps."""

import ast
import re
from collections import Counter

import pytest
from values import cells

from fedleak_book import paths
from fedleak_book.coursework import NAMES, check
from fedleak_book.coursework.assignment import run_check, same
from fedleak_book.coursework.checking import assignment, local
from fedleak_book.coursework.outcomes import Trouble
from fedleak_book.coursework.students import stub
from fedleak_book.coursework.worker import Submission

FOLDER = paths.root() / "book" / "coursework"
MEASURING = ("measure", "reconstruct")
"""Checks that take seconds."""


def load(path):
    return Submission(path, path.read_bytes()).run()


def solution(name):
    return (FOLDER / "solutions" / f"{name}.py").read_text(encoding="utf-8")


def functions_of(source):
    functions = {}
    exec(compile(source, "submission.py", "exec"), functions)
    return functions


def check_of(name, label):
    (check,) = [c for c in assignment(name).checks if c.name == label]
    return check


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_solution_passes_whole(name):
    result = check(name, FOLDER / "solutions" / f"{name}.py", show=False)
    assert result.passed, str(result)
    assert result.points == result.maximum == 10


@pytest.mark.parametrize("name", NAMES)
def test_every_solution_passes_its_checks_and_every_stub_fails(name, tmp_path):
    student = local(load(FOLDER / "solutions" / f"{name}.py"))
    for task in assignment(name).checks:
        if task.name not in MEASURING:
            assert run_check(task, student, seed=1).status == "passed", task.name
    (tmp_path / f"{name}.py").write_text(stub(solution(name)), encoding="utf-8")
    result = check(name, tmp_path / f"{name}.py", show=False)
    assert result.points == 0
    assert {outcome.status for outcome in result.outcomes} == {"not written"}


def head_of(tree):
    """Names, signatures and docstrings of a file's functions."""
    return [
        (node.name, ast.unparse(node.args), ast.unparse(node.returns), ast.get_docstring(node))
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_stub_has_the_functions_and_nothing_in_them(name):
    tree = ast.parse(stub(solution(name)))
    assert head_of(tree) == head_of(ast.parse(solution(name)))
    assert [f for f, *_ in head_of(tree)] == assignment(name).functions
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert [ast.unparse(part) for part in node.body[1:]] == ["raise NotImplementedError"]
    assert "fedleak.attacks" not in solution(name)


MUTANTS = [
    ("llg", "negatives_first", "(row_sums < 0)", "(row_sums < -1e9)", "step 1"),
    ("llg", "extract", "g[label] -= impact", "g[label] += impact", "LARGER"),
    ("lia_sa", "counts", ".round()", ".floor()", "NEAREST"),
    ("rlu", "solve", "samples * solution / solution.sum()", "solution", "make it a constraint"),
    ("rlu", "solve", "torch.from_numpy(nnls(stacked.numpy(), right.numpy())[0])",
     "torch.linalg.lstsq(stacked, right).solution.clamp(min=0)", "clamping"),
    ("gdbr", "dead_units", "mean_output[mean_output != 0].mean()", "mean_output.mean()", "NON-ZERO"),
    ("agic", "matching_loss", "[w * (p * q)", "[w * w * (p * q)", "not alpha squared"),
    ("agic", "reconstruct", "        image.data.clamp_(0, 1)\n", "        image.data.mul_(1.1)\n", "clamp"),
    ("defences", "clip", "{name: factor * t for", "{name: t / max(1.0, float(t.norm()) / bound) for", "ONE norm"),
    ("defences", "add_noise", "noise_multiplier * bound\n", "(noise_multiplier * bound) ** 2\n", "variance"),
    ("defences", "measure", " + sigma * noise", "", "add sigma times the noise"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "label", "old", "new", "hint"), MUTANTS)
def test_typical_mistakes_fail_with_a_hint(name, label, old, new, hint):
    source = solution(name)
    assert old in source
    outcome = run_check(check_of(name, label), local(functions_of(source.replace(old, new))), seed=0)
    assert (outcome.status, outcome.points) == ("wrong", 0), str(outcome)
    assert hint in outcome.hint, str(outcome)
    assert outcome.message


@pytest.mark.parametrize("name", NAMES)
def test_every_known_wrong_value_has_its_own_hint(name, monkeypatch):
    asked, hints, hints_given = [], set(), set()
    spy = lambda got, *values, **options: asked.append((values, options))
    monkeypatch.setattr(f"fedleak_book.coursework.checks.{name}.same", spy)
    student = local(load(FOLDER / "solutions" / f"{name}.py"))
    for task in assignment(name).checks:
        if task.name not in MEASURING:
            run_check(task, student, seed=0)
    for (expected, what, *mistakes), options in asked:
        for hint, wrong in (mistakes[0] if mistakes else {}).items():
            hints.add(hint)
            for value in wrong if isinstance(wrong, list) else [wrong]:
                with pytest.raises(Trouble) as caught:
                    same(value, expected, what, *mistakes, **options)
                hints_given.add(caught.value.hint)
    assert hints == hints_given != set()


def test_every_check_is_seen_to_fail():
    """Also those that are no mutant's: each is wrong about functions that return zero."""
    for name in NAMES:
        zero = local({function: lambda *arguments: 0.0 for function in assignment(name).functions})
        for task in (task for task in assignment(name).checks if task.name not in MEASURING):
            outcome = run_check(task, zero, seed=0)
            assert outcome.status == "wrong", (name, str(outcome))


@pytest.mark.fixed_seed
@pytest.mark.parametrize("name", NAMES)
def test_the_pages_points_and_measurements_are_todays(name):
    """The table of part C, between its markers, holds what the solution measures with seed 1; that of B the points."""
    (page,) = FOLDER.glob(f"*_{name}.md")
    text, points = page.read_text(encoding="utf-8"), Counter()
    for task in assignment(name).checks:
        points[task.function] += task.points
    assert {function: int(worth) for function, worth in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.M)} == points
    head, *lines = cells(re.search(r"% measured\n(.*?)\n% end", text, re.S)[1])
    rows = functions_of(solution(name))["measure"](1)
    assert [cell.strip("`") for cell in head] == list(rows[0])
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        for cell, value in zip(line, row.values(), strict=True):
            if isinstance(value, str):
                assert cell == value
            elif value > 1e8:  # the condition of a singular matrix
                assert float(cell.strip("> ")) <= value
            else:
                assert float(cell) == pytest.approx(value, rel=0.05, abs=0.02)
