"""AGIC's experiments, claims, figures and notes; the chapter is ``notebooks/agic.ipynb``."""
