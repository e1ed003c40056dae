"""AGIC: a module for each table or figure. A trial is a function of its context, its seed or seeds, and its setting."""
