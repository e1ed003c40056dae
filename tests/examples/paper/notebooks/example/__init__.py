"""The example: what its lecture is made of."""
