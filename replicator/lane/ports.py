"""What a lane is given from outside, beside its plane: both clusters, the flow's state, a clock.

Implemented by `kafka.clusters`, `state.flow_state` and `clock`; the unit tests have simulated ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from replicator.model.checkpoint import Position, Stored
from replicator.model.errors import ReplicatorError
from replicator.model.partition import EndRecords, LogEnds, Partition, TopicShape
from replicator.model.rights import MissingRights
from replicator.model.transactions import Marker, OpenTransaction, ProducerState
from replicator.offset_map.newest import MapItem, SectionKey
from replicator.planes.contract import Copied, Plane, RecordReader
from replicator.state.claims import Claims
from replicator.state.control_topic import Control
from replicator.state.origins import FoundOrigins


class StateReader(Protocol):
    """The flow's own topics on the target, read when they are asked for."""

    def control(self) -> Control:
        """Read the control topic, read_committed up to the end that a read_uncommitted reader sees.

        Raises Incident: `control_topic_lost` where there is no such topic, or neither an `open` nor a `preparing`
        record in it; `control_topic_unreadable`; `newer_format`. Retriable, Unreachable, NotAllowed.
        """

    def claims(self, partition: int | None = None) -> Claims:
        """Read the claims topic, like the control topic; all of it, or one `partition`.

        Raises Incident: `claims_topic_lost`, `claims_topic_unreadable`, `newer_format`. Retriable, Unreachable,
        NotAllowed.
        """

    def control_and_claims(self, lane: int) -> tuple[Control, Callable[[], Claims]]:
        """Read the control topic and, at the same time, the claims that can concern a lane. What this returns second
        returns those, or raises what is wrong with them."""


class LaneObserver(Protocol):
    """Is told what a lane does, by the lane's thread; must not block and not raise."""

    def session_began(self, positions: Mapping[Partition, int]) -> None:
        """Note that a producer session has begun to copy. `positions`: by source partition, of all that have one."""

    def on_committed(
        self, copied: Mapping[Partition, Copied], positions: Mapping[Partition, Position], took_s: float
    ) -> None:
        """Note that a transaction is committed: with `copied` records, or none; the positions that moved, or stand
        there first. `took_s`: since its first record."""

    def aborted(self, kind: str) -> None:
        """Note that a transaction was aborted for an error of this class."""

    def fenced(self) -> None:
        """Note that the lane's producer was fenced."""

    def over(self) -> None:
        """Note that the lane has ended, and isn't this process's any more."""


class Unobserved:
    """Implements `LaneObserver` for a lane that nobody watches."""

    def session_began(self, positions: Mapping[Partition, int]) -> None:
        """See `LaneObserver`."""

    def on_committed(
        self, copied: Mapping[Partition, Copied], positions: Mapping[Partition, Position], took_s: float
    ) -> None:
        """See `LaneObserver`."""

    def aborted(self, kind: str) -> None:
        """See `LaneObserver`."""

    def fenced(self) -> None:
        """See `LaneObserver`."""

    def over(self) -> None:
        """See `LaneObserver`."""


class OriginsReader(Protocol):
    """Where topics of the source come from, by what other flows have claimed there; read when it is asked."""

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """Find where topics with these ids come from. Raises Retriable, Unreachable, NotAllowed."""


class Clock(Protocol):
    """Time as a lane sees it: the real one, or a simulated one."""

    def now_s(self) -> float:
        """Return monotonic seconds."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 UTC."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set, at most so long; whether it is set."""


LogEndsByPartition = dict[Partition, LogEnds | ReplicatorError]


class IdAnswer(Protocol):
    """Topic ids that were asked for and may still be under way."""

    def wait(self) -> dict[str, str | ReplicatorError]:
        """Return the id of each topic, or why it is not known: TopicMissing, NotAllowed, Unreachable, Retriable."""


class ClusterQuestions(Protocol):
    """What a lane asks of one cluster beside its plane, read-only. A few requests for any number of partitions.

    Errors of single topics or partitions are values, those of the whole question are raised: NotAllowed, Unreachable,
    Retriable. A leader that can't be reached is an error of its partitions, also where no others were asked for; it is
    raised where the cluster tells of no topic. Every wait is bounded by the flow's request timeout.
    """

    def topic_ids(self, topics: Collection[str]) -> IdAnswer:
        """Ask for the ids of topics as the cluster has them now. Returns at once."""

    def log_ends(self, partitions: Collection[Partition]) -> LogEndsByPartition:
        """Ask for topic ids and both ends of logs; a partition's error is its value."""

    def ask_another(self) -> None:
        """Ask another broker next who leads what: the last one has named a leader of before."""

    def ask_log_ends(self, partitions: Collection[Partition]) -> Callable[[], LogEndsByPartition]:
        """Ask as `log_ends`, but return at once; the function that it returns waits for the answers."""

    def offsets_at(
        self, partitions: Collection[Partition], timestamp_ms: int
    ) -> dict[Partition, int | ReplicatorError]:
        """Find the first committed offset at or after a time; -1 where there is none."""

    def end_records(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[Partition, EndRecords | ReplicatorError]:
        """Read each partition, read_committed, from its start until the last stable offset has reached its end.

        Waits at most the request timeout for open transactions: where `stable` is below the end then, one stays open.
        Stops at the second record of a partition.
        """

    def not_ready(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """Find those that can't be written, each with the reason: no leader, or too few replicas in sync.

        By what the cluster said a moment ago, without waiting for an answer, where `now` doesn't ask for more. What
        isn't known counts as ready. Raises nothing.
        """

    def without_leader(self, partitions: Collection[Partition]) -> set[Partition]:
        """Find those that nobody leads, by what the cluster said a moment ago, without waiting for an answer. What
        isn't known counts as led. Raises nothing."""

    def unserved(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """Find those whose leader answers, and refuses to serve them, each with what it said: its disk has failed, for
        instance.

        By what it said a moment ago, without waiting for an answer, where `now` doesn't ask for more. What isn't known
        counts as served. Raises nothing.
        """

    def seen_end(self, at: Partition) -> int | None:
        """Return the last stable offset of a partition that `unserved` was asked about, by its last answer; None where
        that isn't known. Raises nothing."""

    def seen_topic_id(self, topic: str) -> str | None:
        """Return the id of a topic that `not_ready` was asked about, by the last answer that it had: empty where the
        cluster has no such topic, None where that isn't known. Raises nothing."""

    def topic_shape(self, topic: str) -> TopicShape:
        """Ask for a topic's id, partitions and configs. Raises TopicMissing and others of a single topic, too."""

    def holds(self, at: Partition, offset: int) -> bool:
        """Tell whether there is a record at this offset, of an aborted transaction too."""

    def compacted(self, topic: str) -> bool:
        """Tell whether the topic's cleanup.policy has compact."""

    def rewrites_timestamps(self, topics: Collection[str]) -> dict[str, bool | ReplicatorError]:
        """Tell whether each topic stamps records with the time of their append, as it is configured now."""

    def missing_rights(self, topics: Collection[str]) -> dict[str, MissingRights]:
        """Find what the user may not do with topics of this side of the flow; topics without fault and those of which
        the broker tells nothing are left out."""

    def offsets_retention_ms(self) -> int | None:
        """Say how long the cluster keeps committed offsets of a group without members; None where it doesn't say."""

    def close(self) -> None:
        """Let go of connections; a later question connects again."""


class OpenTransactions(Protocol):
    """Transactions that are open in the target's partitions, and how an operator ends them (KIP-664).

    Raises Retriable, Unreachable, NotAllowed, Unsupported, or Fenced or Incident for another refusal. Every wait is
    bounded by the flow's request timeout.
    """

    def open_in(self, at: Partition) -> Sequence[OpenTransaction]:
        """Find those that the partition's leader knows. Needs Read on the topic."""

    def producer(self, transactional_id: str) -> ProducerState:
        """Say what the id's coordinator knows of it. Needs Describe on the id."""

    def fence(self, transactional_id: str, timeout_ms: int) -> None:
        """Initialise the id, which fences whoever has it and aborts its transaction. Needs Write on the id."""

    def end(self, marker: Marker) -> None:
        """Write a marker that ends a transaction in one partition. Needs Alter or ClusterAction on the cluster."""


class MapLog(Protocol):
    """The flow's map topic, raw."""

    def items(self, at: Partition, topic_id: str, first: int, end: int) -> Iterator[MapItem]:
        """Read the blocks and markers from offset `first` to before `end`, whatever became of their transactions; none
        where `first` isn't there.

        Raises BadBlock; Retriable, Unreachable, NotAllowed, Unsupported, and Incident where it is another topic.
        """

    def indexed_ends(self, topic_id: str, keys: Collection[SectionKey]) -> Mapping[SectionKey, int]:
        """Return the positions behind the last sections that the map's index has of source partitions; those of which
        it has none are left out. `topic_id`: that of the map topic whose blocks it must cover.

        Raises as `items`.
        """


class Connections(Protocol):
    """What one producer session of a lane works with. Closed at its end, whatever it came to."""

    @property
    def plane(self) -> Plane:
        """Reads the source and writes the target, under this session's producer."""

    @property
    def source(self) -> ClusterQuestions:
        """The cluster that is read."""

    @property
    def target(self) -> ClusterQuestions:
        """The cluster that is written."""

    @property
    def transactions(self) -> OpenTransactions:
        """Transactions that are open in the target's partitions."""

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
    def map_log(self) -> MapLog:
        """The flow's map topic."""

    @property
    def origins(self) -> OriginsReader:
        """Other flows' claims on the source."""

    def last_positions(self, partitions: Collection[Partition]) -> dict[Partition, Stored | None]:
        """Read positions by target partition as they are, whatever transaction is open over them.

        Tells who owned them; nothing is ever copied from these. Raises Retriable, Unreachable, NotAllowed.
        """

    def close(self) -> None:
        """Close all of them, whatever one of them raises."""
