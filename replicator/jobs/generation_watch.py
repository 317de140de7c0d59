"""Whether the generation of a bounded lane is still open, asked while the lane commits nothing. Used by
`jobs.range_copy`.

A lane finds out that it was fenced when it sends something to the target: one that waits for its rate, or for a source
that doesn't answer, sends nothing for as long as that takes.
"""

from __future__ import annotations

from contextlib import ExitStack

import structlog

from replicator.flow.topics import reading_topics
from replicator.lane.plan import LanePlan
from replicator.model.errors import NotAllowed, Retriable, Unreachable
from replicator.state.control_topic import check_generation
from replicator.state.flow_state import FlowState


class GenerationWatch:
    """Connects to the target when it is first asked: most lanes never stand still for that long. Used by one thread;
    closed at the end."""

    def __init__(self, plan: LanePlan, log: structlog.stdlib.BoundLogger) -> None:
        self._plan, self._log = plan, log
        self._state: FlowState | None = None
        self._open = ExitStack()

    def check(self) -> None:
        """Raise TakenOver when another generation is open, and Incident of the control topic. While the target can't be
        asked nothing is known, and nothing is raised."""
        plan = self._plan
        if self._state is None:
            self._state = FlowState(plan.flow, self._open.enter_context(reading_topics(plan.flow, plan.flow.target)))
        try:
            check_generation(self._state.control(), plan.generation, plan.assignment, running=True)
        except (Retriable, Unreachable, NotAllowed) as error:
            self._log.warning("generation_not_checked", reason=str(error))

    def close(self) -> None:
        """Let go of the connection."""
        self._open.close()
