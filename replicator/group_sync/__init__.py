"""Keeps the offsets of consumer groups at the target, translated: consumers that move there go on where they were."""
