"""GDBR's experiments, claims, figures and notes; the chapter is ``notebooks/gdbr.ipynb``."""
