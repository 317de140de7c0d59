"""What operators have decided about incidents while a flow runs: one object for all its lanes, which ask it.

Told by who watches the control topic (`flow.settings_watch`). A lane doesn't ask the target for it: a control topic
whose broker doesn't answer, or that nobody may read any more, must not hold up partitions that are copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from replicator.state.decisions import OperatorDecision

NOTHING: Mapping[str, OperatorDecision] = MappingProxyType({})


class FlowDecisions:
    """Of one flow, by occurrence. From any thread: what is told is never changed afterwards."""

    def __init__(self) -> None:
        self._newest = NOTHING

    @property
    def newest(self) -> Mapping[str, OperatorDecision]:
        """As they were read last; the same object as long as nothing else was read."""
        return self._newest

    def take(self, decided: Mapping[str, OperatorDecision]) -> None:
        """Take decisions that were read."""
        if decided != self._newest:
            self._newest = decided
