"""What lets a lane initialise its transactional id, which fences whoever has it. Asked by `lane.driver`, once for each
producer session.

A lane of a lone process asks nobody. Where several workers share a flow, `flow.lane_permit` asks the flow's thread,
which first proves that this worker is a member of the group and has the lane: otherwise two of them would fence each
other for ever.
"""

from __future__ import annotations

import threading
from typing import Protocol


class FencePermit(Protocol):
    """Of one lane."""

    @property
    def shared(self) -> bool:
        """Whether a group says who runs the lane: then one that was fenced ends, and is started again if it is still
        this worker's."""

    def ask(self, pause: threading.Event) -> bool:
        """Wait until the lane may initialise its id, and return True; False once `pause` is set, see `wake`."""

    def initialised(self) -> None:
        """Take that the lane has initialised its id."""

    def wake(self) -> None:
        """Have `ask` look at its `pause` again. From any thread."""


class Unasked:
    """Implements `FencePermit` for a lane that nobody else may run."""

    shared = False

    def ask(self, pause: threading.Event) -> bool:
        """See `FencePermit`."""
        return not pause.is_set()

    def initialised(self) -> None:
        """See `FencePermit`."""

    def wake(self) -> None:
        """See `FencePermit`."""


UNASKED = Unasked()
