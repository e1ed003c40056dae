"""RLU's experiments, claims, figures and notes; the chapter is ``notebooks/rlu.ipynb``."""
