"""The arena's experiments, rankings, expectations, figures, advice and notes; the chapter is ``notebooks/arena.ipynb``."""
