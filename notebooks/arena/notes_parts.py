"""The arena: how notes put paragraphs, tables and numbers together."""

import inspect


from fedleak_book.evidence.results import Number


def parts(*pieces):
    """Paragraphs and tables, one below the other."""
    return "\n\n".join(map(inspect.cleandoc, pieces))


def numbers(frame, form=".2f"):
    """A frame's rows for a table, with its fractions as text."""
    for row in frame.to_dict("records"):
        yield {
            k: ("–" if v != v else f"{Number(v):{form}}") if isinstance(v, float) else v
            for k, v in row.items()
        }
