"""GDBR's experiments, claims, figures and notes; the lecture is ``notebooks/gdbr.ipynb``."""
