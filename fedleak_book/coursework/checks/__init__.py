"""The checks of the six assignments, one module each."""
