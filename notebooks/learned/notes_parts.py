"""The learned attacker: how notes put sentences, tables and numbers together."""

import inspect


from fedleak_book.evidence.results import Number
from notebooks.show import markdown


def ends(values, form=".2f"):
    """The least and the largest of some numbers."""
    return f"{Number(values.min()):{form}} to {Number(values.max()):{form}}"


def before(rows, text, after=""):
    """Sentences, a table, and more sentences."""
    return "\n\n".join(
        [inspect.cleandoc(text), markdown(rows), inspect.cleandoc(after)]
    )
