"""Label attacks, one module each with ``recover(update, model, ...) -> LongTensor[n]`` of counts per class."""

from fedleak.attacks.labels import (
    decaf,
    gdbr,
    gi,
    guess,
    idlg,
    ilrg,
    interpolated,
    learned,
    lia_sa,
    llg,
    peeling,
    rlg,
    rlu,
    spear,
    whole_head,
    zlg,
)

__all__ = [
    "decaf",
    "gdbr",
    "gi",
    "guess",
    "idlg",
    "ilrg",
    "interpolated",
    "learned",
    "lia_sa",
    "llg",
    "peeling",
    "rlg",
    "rlu",
    "spear",
    "whole_head",
    "zlg",
]
