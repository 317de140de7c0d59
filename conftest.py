"""Loads what all tests have in common: signals, tiers, a quick start, schedule, durations and progress."""

pytest_plugins = [
    "tests.running.signals",
    "tests.running.tiers",
    "tests.running.collecting",
    "tests.running.durations",
    "tests.running.in_parts",
    "tests.running.schedule",
    "tests.running.progress",
    "tests.running.newcomers",
]
