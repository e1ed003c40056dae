"""Exact label attacks: they recover the samples of a small batch, and prove their labels or reject the update."""
