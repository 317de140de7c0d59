"""Schemas of two registries, compared: which go over, in which order, and what stands against it. Pure."""
