"""LIA-SA: the chapter's experiments, figures, claims and notes."""
