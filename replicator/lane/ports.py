"""What a lane is given from outside, beside its plane: both clusters, the flow's state, a clock.

Implemented by `kafka.clusters`, `state.flow_state` and `clock`; the unit tests have simulated ones.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Protocol

from replicator.model.checkpoint import Stored
from replicator.model.partition import Partition
from replicator.planes.contract import Cluster, Plane, RecordReader
from replicator.state.claims import Claims
from replicator.state.generation import Control
from replicator.state.origins import FoundOrigins


class StateReader(Protocol):
    """The flow's own topics on the target, read when they are asked for."""

    def control(self) -> Control:
        """The control topic, read_committed up to the end that a read_uncommitted reader sees.

        Raises Incident: `control_topic_lost` where there is no such topic, or neither an `open` nor a `preparing`
        record in it; `control_topic_unreadable`; `newer_format`. Retriable, Unreachable, NotAllowed.
        """

    def claims(self) -> Claims:
        """The claims topic, read like the control topic.

        Raises Incident: `claims_topic_lost`, `claims_topic_unreadable`, `newer_format`. Retriable, Unreachable,
        NotAllowed.
        """

    def last_positions(self, partitions: Collection[Partition]) -> dict[Partition, Stored | None]:
        """Read positions by target partition as they are, whatever transaction is open over them.

        Tells who owned them; nothing is ever copied from these. Raises Retriable, Unreachable, NotAllowed.
        """


class OriginsReader(Protocol):
    """Where topics of the source come from, by what other flows have claimed there; read when it is asked."""

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """Of topics with these ids. Raises Retriable, Unreachable, NotAllowed."""


class Clock(Protocol):
    """Time as a lane sees it: the real one, or a simulated one."""

    def now_s(self) -> float:
        """Monotonic seconds."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set, at most so long; whether it is set."""


class Connections(Protocol):
    """What one producer session of a lane works with. Closed at its end, whatever it came to."""

    @property
    def plane(self) -> Plane:
        """Reads the source and writes the target, under this session's producer."""

    @property
    def source(self) -> Cluster:
        """The cluster that is read."""

    @property
    def target(self) -> Cluster:
        """The cluster that is written."""

    @property
    def source_records(self) -> RecordReader:
        """Reads records of the source to compare them."""

    @property
    def target_records(self) -> RecordReader:
        """Reads records of the target to compare them."""

    @property
    def state(self) -> StateReader:
        """The flow's own topics on the target."""

    @property
    def origins(self) -> OriginsReader:
        """Other flows' claims on the source."""

    def close(self) -> None:
        """Close all of them, whatever one of them raises."""
