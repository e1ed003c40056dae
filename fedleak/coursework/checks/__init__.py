"""The six assignments and their checks, one module each."""

from fedleak.coursework.checks import agic, defences, gdbr, lia_sa, llg, rlu

ASSIGNMENTS = {module.ASSIGNMENT.name: module.ASSIGNMENT for module in (llg, lia_sa, rlu, gdbr, agic, defences)}
"""By name, in the book's order."""
