"""Differential privacy of clients: claims, their composition over rounds, and Opacus' steps."""
