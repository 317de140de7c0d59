"""Fails a flow over to its target when the source is gone: stops it for good, and says what the target has."""
