"""Lead from each function to the equation that it implements, and back.

A docstring says which equations of its paper a function follows ("Eqs. 19 and 20"); `data/equations.toml` says where
the chapters derive them. The reference gets a line below such a docstring, and a table from equation to function.
"""

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from typing import Any

import pandas as pd
from overview import read
from render import link, plain, table
from sphinx.application import Sphinx

from fedleak.attacks import registry
from fedleak_book.evidence import published
from fedleak_book.pages import notebooks

CITED = re.compile(r"(?:\b(LLG|RLU|LIA-SA|GDBR|AGIC)(?:'s|,)?\s+)?Eqs?\.\s+(\d+(?:(?:\s*[-–,]\s*|\s+and\s+)\d+)*)")
PAPERS = {"LLG": "llg", "RLU": "rlu", "LIA-SA": "lia_sa", "GDBR": "gdbr", "AGIC": "agic"}
KINDS = {"eq": ":eq:", "prop": ":prf:ref:", "lem": ":prf:ref:", "thm": ":prf:ref:"}


def numbers(words: str) -> list[int]:
    """Return the numbers of "17-21", "6–11", "19 and 20" or "16, 17"."""
    cited_numbers = []
    for part in re.split(r",|\band\b", words):
        first, *last = (int(number) for number in re.findall(r"\d+", part))
        cited_numbers += range(first, (last or [first])[-1] + 1)
    return cited_numbers


def places(paper: str) -> dict[int, str]:
    """Return where a chapter derives its paper's equations: number to the name of the place."""
    entry: dict[str, Any] = read("equations")[paper]  # type: ignore[assignment]
    return {n: anchor for words, anchor in entry.items() if words != "modules" for n in numbers(words)}


def paper_of(module: str) -> str | None:
    """Return the paper that a module's docstrings mean where they name none."""
    return next((paper for paper, entry in read("equations").items() if module in entry["modules"]), None)


def cited(docstring: str, module: str) -> list[tuple[str, int]]:
    """Return the equations that a docstring names: paper and number, each once."""
    pairs: dict[tuple[str, int], None] = {}
    for name, words in CITED.findall(docstring):
        paper = PAPERS.get(name) or paper_of(module)
        if paper:
            pairs.update(dict.fromkeys((paper, n) for n in numbers(words)))
    return list(pairs)


def documented(module: str) -> Iterator[tuple[str, str]]:
    """Yield a module's docstring (under no name) and those of its public functions, classes and methods."""
    yield "", import_module(module).__doc__ or ""
    for name, thing in vars(import_module(module)).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module or not callable(thing):
            continue
        yield name, thing.__doc__ or ""
        if inspect.isclass(thing):
            for inner, method in vars(thing).items():
                if not inner.startswith("_") and (callable(method) or isinstance(method, property)):
                    yield f"{name}.{inner}", method.__doc__ or ""


def modules() -> list[str]:
    """Return every module whose docstrings are searched: those of the papers, and the ones that all of them share."""
    shared = ("fedleak.models.passes", "fedleak.federated.schemes", "fedleak_book.experiments.training")
    return [*(module for entry in read("equations").values() for module in entry["modules"]), *shared]


def functions() -> dict[tuple[str, int], list[str]]:
    """Return which functions implement each equation of each paper."""
    by_equation: dict[tuple[str, int], list[str]] = {}
    for module in modules():
        for name, docstring in documented(module):
            for equation in cited(docstring, module):
                by_equation.setdefault(equation, []).append(f"{module}.{name}".rstrip("."))
    return by_equation


def equations() -> str:
    """Return, for each chapter, a table from the paper's equation to its derivation and the functions."""
    by_equation, parts = functions(), []
    for chapter in notebooks.chapters():
        if chapter not in read("equations"):
            continue
        rows = []
        for anchor, run in groupby(places(chapter).items(), key=itemgetter(1)):
            mine = [number for number, _ in run]
            implementing = dict.fromkeys(name for number in mine for name in by_equation.get((chapter, number), []))
            names = ", ".join(f"{{py:obj}}`{name.split('.', 2)[-1]} <{name}>`" for name in implementing)
            words = f"Eqs. {mine[0]}–{mine[-1]}" if len(mine) > 1 else f"Eq. {mine[0]}"
            rows.append({"In the paper": words, "Derived in": link("chapter", anchor), "Functions": names or "–"})
        parts += [f"### {published.load(chapter).title}\n", table(pd.DataFrame(rows))]
    return "\n".join(parts)


def attacks() -> str:
    """Return each registered attack with its paper, its rule and the module that implements it."""
    chapters = {published.load(c).key: c for c in notebooks.chapters() if c in read("equations")}
    rows = []
    for attack in registry.all_attacks():
        chapter = chapters.get(attack.paper)
        chapter_link = f"[chapter](/notebooks/{chapter}.ipynb)" if chapter else "–"
        module = attack.function.__module__
        name = module.removeprefix("fedleak.attacks.")
        rows.append(
            {
                "Attack": f"**{plain(attack.name)}**",
                "Paper": f"{{cite:t}}`{attack.paper}`" if attack.paper else "–",
                "Rule": attack.equation or "–",
                "Derivation": chapter_link,
                "Module": f"{{py:mod}}`{name} <{module}>`",
            }
        )
    return table(pd.DataFrame(rows))


def reference(folder: str) -> str:
    """Return the reference of all modules in a folder of attacks: those that register one, then what they share."""
    package = import_module(f"fedleak.attacks.{folder}")
    register, shared = {attack.function.__module__ for attack in registry.all_attacks()}, []
    parts = [f"## {folder.capitalize()}\n"]
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        name = module.name.removeprefix("fedleak.attacks.")
        part = f"### `{name}`\n\n```{{eval-rst}}\n.. automodule:: {module.name}\n```\n"
        (parts if module.name in register else shared).append(part)
    return "\n".join([*parts, f"## Shared by the attacks on {folder}\n", *shared])


def derived_in(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Say below a docstring where the equations that it names are derived."""
    module = name if what == "module" else getattr(thing, "__module__", None) or ""
    chapters, derivations = notebooks.chapters(), {}
    for paper, number in cited("\n".join(lines), module):
        anchor = places(paper).get(number)
        if anchor and paper in chapters:
            role = KINDS.get(anchor.split("-")[0])
            derivations[anchor] = f"Eq. {role}`{anchor}`" if role == ":eq:" else f"{role or ':ref:'}`{anchor}`"
            if role is None:
                derivations[anchor] = f":ref:`Eq. {number} <{anchor}>`"
    if derivations:
        lines += ["", f"**Derived in** {', '.join(derivations.values())}.", ""]


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    references = {f"reference_{folder}": reference(folder) for folder in ("labels", "images")}
    return {"equations": equations(), "attack_modules": attacks(), **references}


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("autodoc-process-docstring", derived_in, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
