"""LLG's experiments, claims, figures and notes; the lecture is ``notebooks/llg.ipynb``."""
