"""Federated platforms: readers of their clients' uploads, recorders of their rounds, and inspection on the client.

The readers (`appfl`, `declearn`, `openfl`, `pfl`) import no platform: they read the objects that its server receives,
with its sign, scale, weight and names; the page "What clients really send" describes them. `flower` and `nvflare` need
the extras of these names.
"""
