"""Notebooks executed and the book built of them."""
