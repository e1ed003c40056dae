"""LLG's experiments, claims, figures and notes; the chapter is ``notebooks/llg.ipynb``."""
