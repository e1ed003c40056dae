"""RLU's experiments, claims, figures and notes; the lecture is ``notebooks/rlu.ipynb``."""
