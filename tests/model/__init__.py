"""Explicit-state models of the protocol: every interleaving of small worlds, explored to the end."""
