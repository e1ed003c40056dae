"""Label attacks, one module each with ``recover(update, model, ...) -> LongTensor[n]`` of counts per class."""

from fedleak.attacks.labels import gdbr, gi, guess, idlg, ilrg, learned, lia_sa, llg, rlu, whole_head, zlg

__all__ = ["gdbr", "gi", "guess", "idlg", "ilrg", "learned", "lia_sa", "llg", "rlu", "whole_head", "zlg"]
