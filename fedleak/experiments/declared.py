"""The experiments of a notebook without running it: the cells that declare them are executed, and no others.

Those cells carry the tag ``setup`` (imports, the chapter, what trials share) or ``experiment`` (a trial with its
declaration). Experiments run when their rows are asked for, so that declaring costs no more than the imports.
"""

import contextlib
import io
import linecache
from typing import Any

from fedleak import paths
from fedleak.errors import extra
from fedleak.experiments.chapter import Chapter

with extra("book"):
    import nbformat

TAGS = {"parameters", "setup", "experiment"}


def declared(name: str, **parameters: Any) -> Chapter:
    """Return the chapter of a notebook with its experiments, in this process.

    Parameters
    ----------
    name
        Notebook.
    **parameters
        For its `parameters` cell, in place of the defaults.

    Raises
    ------
    ValueError
        If the notebook makes no `Chapter` in these cells, or has no such parameter.
    """
    namespace: dict[str, Any] = {"__name__": f"notebook_{name}"}
    cells = nbformat.read(paths.source_notebook(name), as_version=4).cells
    for cell in cells:
        tags = set(cell.metadata.get("tags", ()))
        if cell.cell_type != "code" or not tags & TAGS:
            continue
        file = f"<{name}.ipynb, cell {cell.id}>"
        # so that the source of a trial can be read, as a kernel sees to it
        linecache.cache[file] = (len(cell.source), None, cell.source.splitlines(keepends=True), file)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(cell.source, file, "exec"), namespace)
        if "parameters" in tags:
            if unknown := sorted(set(parameters) - set(namespace)):
                raise ValueError(f"{name} has no parameter {', '.join(unknown)}")
            namespace.update(parameters)
    chapter = namespace.get("chapter")
    if not isinstance(chapter, Chapter):
        raise ValueError(f"{name} declares no experiments: no cell tagged 'setup' makes a Chapter")
    return chapter
