"""Image attacks, one module each with ``reconstruct(updates, model, ...) -> Tensor[B, C, H, W]`` in [0, 1]."""

from fedleak.attacks.images import dlg, eluding_sa, mandrake

__all__ = ["dlg", "eluding_sa", "mandrake"]
