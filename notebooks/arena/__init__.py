"""The arena's experiments, rankings, expectations, figures, advice and notes; the lecture is ``notebooks/arena.ipynb``."""
