"""Keeps the schemas of the source's registry at the target's, by the HTTP API of both."""
