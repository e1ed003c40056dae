"""The learned attacker's experiments, figures and notes; the lecture is ``notebooks/learned.ipynb``."""
