"""Federated platforms: recorders of their rounds, and inspection of models on the client.

`flower` and `nvflare` need the extras of these names. The page "What clients really send" describes the uploads of more
platforms, and how to make an `Update` of each.
"""
