"""Image attacks, one module each with ``reconstruct(updates, model, ...) -> Tensor[B, C, H, W]`` in [0, 1]."""

from fedleak.attacks.images import agic, dlg, eluding_sa, invg, mandrake

__all__ = ["agic", "dlg", "eluding_sa", "invg", "mandrake"]
