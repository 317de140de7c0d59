"""Compares the flows that a process runs with those that its file has now. Pure; used by `flow.daemon`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replicator.config import Config, Flow

AT_START = ("metrics",)
"""Sections that only the start of a process reads."""


@dataclass(frozen=True, slots=True)
class FlowChanges:
    """The names of flows, each in one of these, in the order of the file (`removed`: in that of the former file).

    A flow has changed where any of its own settings has, or any property of its clusters, secrets among them.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]


def compare(before: Mapping[str, Flow], after: Mapping[str, Flow]) -> FlowChanges:
    """Say what has become of each flow. Both are by name."""
    kept = [name for name in after if name in before]
    return FlowChanges(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(name for name in kept if after[name] != before[name]),
        unchanged=tuple(name for name in kept if after[name] == before[name]),
    )


def needs_restart(before: Config, after: Config) -> tuple[str, ...]:
    """Name the sections that have changed and that a process takes at its start only."""
    return tuple(name for name in AT_START if getattr(before, name) != getattr(after, name))
