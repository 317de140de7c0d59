"""Simulated clusters, plane and clock: a lane's unit tests run in milliseconds and in simulated time."""
