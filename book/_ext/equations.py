"""Lead from each equation of the papers to the functions that implement it; `derivations.py` leads back."""

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from operator import itemgetter

import pandas as pd
from derivations import cited, derived, places
from render import link, plain, table

from fedleak.attacks import registry
from fedleak_book.evidence import published
from fedleak_book.pages import notebooks


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
    return [*(module for entry in derived().values() for module in entry["modules"]), *shared]


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
        if chapter not in derived():
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
    chapters = {published.load(c).key: c for c in notebooks.chapters() if c in derived()}
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


def fragments() -> dict[str, str]:
    """Return the fragments by name."""
    references = {f"reference_{folder}": reference(folder) for folder in ("labels", "images")}
    return {"equations": equations(), "attack_modules": attacks(), **references}
