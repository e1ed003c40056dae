"""The learned attacker's experiments, figures and notes; the chapter is ``notebooks/learned.ipynb``."""
