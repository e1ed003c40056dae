"""AGIC's experiments, claims, figures and notes; the lecture is ``notebooks/agic.ipynb``."""
