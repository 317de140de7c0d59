"""A simulated cluster: topics, transactions with fencing, the position group, rights. Implements
`lane.ports.ClusterQuestions`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from replicator.lane.ports import IdAnswer, LogEndsByPartition
from replicator.model import checkpoint
from replicator.model.checkpoint import Position, Stored
from replicator.model.errors import (
    Abortable,
    Incident,
    NotAllowed,
    ReplicatorError,
    Retriable,
    TopicMissing,
    Unreachable,
)
from replicator.model.partition import Committed, EndRecords, LogEnds, Partition, TopicShape
from replicator.model.rights import MissingRights
from replicator.model.transactions import Marker, OpenTransaction, ProducerState
from replicator.offset_map.newest import MapItem, MapMarker, MapRecord, SectionKey
from replicator.state.claims import read_claims
from tests.replicator.lane.fakes.log import FakeEntry, FakeLog, FakeTopic, Fate

Fault = Callable[[str], None]  # is told of each call before it happens; may raise


@dataclass(slots=True)
class FakeTransaction:
    """What a transactional id has under way."""

    epoch: int = 0
    entries: list[tuple[FakeLog, FakeEntry]] = field(default_factory=list)
    offsets: dict[Partition, Committed] = field(default_factory=dict)
    claims: list[tuple[bytes, bytes]] = field(default_factory=list)
    claims_partition: int | None = None  # that they go to
    open: bool = False
    added: list[FakeLog] = field(default_factory=list)  # partitions that it has been told of
    unmarked: list[tuple[FakeLog, Fate]] = field(default_factory=list)  # of the one before


@dataclass(frozen=True, slots=True)
class Answered:
    """Ids that were answered at once."""

    answers: dict[str, str | ReplicatorError]

    def wait(self) -> dict[str, str | ReplicatorError]:
        """The answers."""
        return self.answers


class FakeCluster:
    """One cluster of a simulated flow."""

    def __init__(self, name: str, fault: Fault = lambda call: None) -> None:
        self.name, self.fault = name, fault
        self.topics: dict[str, FakeTopic] = {}
        self.by_old_leaders: dict[Partition, LogEnds] = {}  # what a broker says that is cut off, while it is asked
        self.transactions: dict[str, FakeTransaction] = {}
        self.offsets: dict[Partition, Committed] = {}
        self.claims: list[tuple[bytes, bytes]] = []
        self.claims_partitions: list[int | None] = []  # of each of them; None: any, as a test added it
        self.denied: dict[str, set[str]] = {}  # topic: operations that the user lacks
        self.aside_headers: list[dict[str, bytes | None]] = []  # of each record that was set aside, committed or not
        self.down = False
        self.bytes_per_s: float | None = None  # of what is written to it, None: any
        self.late_as: type[ReplicatorError] = Abortable  # what a producer is told first whose transaction timed out
        self.no_markers = False  # the user may not write any
        self.producer_ids: dict[str, int] = {}
        self.indexed: dict[SectionKey, int] = {}  # where the last sections in the map's index end
        self._made = 0

    # What tests do with it

    def name_id(self, number: int) -> str:
        """An id for its `number`th topic."""
        return f"{self.name}-{number}"

    def create(self, topic: str, partitions: int = 1) -> FakeTopic:
        """Make a topic, with an id that none has had."""
        self._made += 1
        self.topics[topic] = FakeTopic(self.name_id(self._made), [FakeLog() for _ in range(partitions)])
        return self.topics[topic]

    def delete(self, topic: str) -> None:
        """Delete a topic; Kafka removes its committed offsets with it."""
        del self.topics[topic]
        self.offsets = {at: committed for at, committed in self.offsets.items() if at.topic != topic}

    def log(self, at: Partition) -> FakeLog:
        """A partition's log."""
        return self.topics[at.topic].logs[at.partition]

    def position(self, at: Partition) -> Stored | None:
        """The committed position of a target partition, decoded."""
        found = self.offsets.get(at)
        return None if found is None else checkpoint.read(found)

    def unclaimed(self) -> list[Partition]:
        """Partitions with a position of the flow, of which no claim says where the copy began."""
        claimed = read_claims(self.claims).claims
        return [at for at in self.offsets if at not in claimed and isinstance(self.position(at), Position)]

    # Transactions, as the broker's coordinator does them

    def init(self, transactional_id: str) -> int:
        """InitProducerId: abort what is open and fence its producer."""
        self._check("init")
        found = self.transactions.setdefault(transactional_id, FakeTransaction())
        self._end(found, commit=False)
        if self.held_up(transactional_id):
            raise Unreachable(f"{transactional_id}: CONCURRENT_TRANSACTIONS")
        found.epoch += 1
        return found.epoch

    def end(self, transactional_id: str, *, commit: bool) -> None:
        """EndTxn."""
        self._end(self.transactions[transactional_id], commit=commit)

    def expire(self, transactional_id: str) -> None:
        """The transaction has timed out: the coordinator aborts it and fences its producer."""
        found = self.transactions[transactional_id]
        self._end(found, commit=False)
        found.epoch += 1

    def _end(self, found: FakeTransaction, *, commit: bool) -> None:
        fate = Fate.COMMITTED if commit else Fate.ABORTED
        logs = {id(log): log for log in [*(log for log, _ in found.entries), *found.added]}
        found.unmarked += [(log, fate) for log in logs.values() if not log.drops_markers]
        if commit:
            self.offsets |= {at: value for at, value in found.offsets.items() if at.topic in self.topics}
            self.claims_partitions += [None] * (len(self.claims) - len(self.claims_partitions))
            self.claims += found.claims
            self.claims_partitions += [found.claims_partition] * len(found.claims)
        found.entries, found.offsets, found.claims, found.open, found.added = [], {}, [], False, []
        self._mark(found)

    def _mark(self, found: FakeTransaction) -> None:
        """Write the markers of the transaction that has ended, where they can be written."""
        transactional_id = next(name for name, each in self.transactions.items() if each is found)
        for log, fate in found.unmarked:
            if not (log.not_ready or log.damaged):
                log.end_open(transactional_id, fate)
        found.unmarked = [(log, fate) for log, fate in found.unmarked if log.not_ready or log.damaged]

    def held_up(self, transactional_id: str) -> bool:
        """Whether its last transaction has not ended everywhere: until then it can begin no other
        (CONCURRENT_TRANSACTIONS)."""
        found = self.transactions[transactional_id]
        self._mark(found)
        return bool(found.unmarked)

    def not_ready(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """As it is now."""
        known = [at for at in partitions if at.topic in self.topics and at.partition < len(self.topics[at.topic].logs)]
        return {at: why for at in known if (why := self.log(at).not_ready)}

    def without_leader(self, partitions: Collection[Partition]) -> set[Partition]:
        """As it is now."""
        known = [at for at in partitions if at.topic in self.topics and at.partition < len(self.topics[at.topic].logs)]
        return {at for at in known if self.log(at).leaderless}

    def unserved(self, partitions: Collection[Partition], *, now: bool = False) -> dict[Partition, str]:
        """As it is now."""
        known = [at for at in partitions if at.topic in self.topics and at.partition < len(self.topics[at.topic].logs)]
        return {at: f"{at}: KAFKA_STORAGE_ERROR" for at in known if self.log(at).damaged}

    def seen_end(self, at: Partition) -> int | None:
        """As it is now."""
        there = at.topic in self.topics and at.partition < len(self.topics[at.topic].logs)
        return self.log(at).stable if there else None

    def seen_topic_id(self, topic: str) -> str | None:
        """As it is now."""
        return self.topics[topic].topic_id if topic in self.topics else ""

    def topic_shape(self, topic: str) -> TopicShape:
        """Its partitions, and what a test has configured."""
        self._check("topic_shape")
        error = self._topic_error(topic)
        if error is not None:
            raise error
        found = self.topics[topic]
        return TopicShape(found.topic_id, len(found.logs), found.configs)

    # lane.ports.MapLog

    def items(self, at: Partition, topic_id: str, first: int, end: int) -> Iterator[MapItem]:
        """What stands there, whatever its fate."""
        self._check("map_log")
        if self.topics[at.topic].topic_id != topic_id:
            raise Incident("topic_gone", "another topic", topic=at.topic)
        for offset, entry in self.log(at).all():
            if first <= offset < end:
                producer_id = self._producer_id(entry.producer[0])
                marker = entry.fate is Fate.MARKER
                yield (
                    MapMarker(producer_id, bool(entry.producer[1])) if marker else MapRecord(producer_id, entry.block)
                )

    def indexed_ends(self, topic_id: str, keys: Collection[SectionKey]) -> dict[SectionKey, int]:
        """What a test has put there."""
        self._check("map_log")
        return {key: self.indexed[key] for key in keys if key in self.indexed}

    # lane.ports.OpenTransactions

    def open_in(self, at: Partition) -> list[OpenTransaction]:
        """Of each producer that has something open there."""
        self._check("open_in")
        found: dict[str, OpenTransaction] = {}
        for offset, entry in self.log(at).all():
            if entry.fate is Fate.OPEN:
                name, epoch = entry.producer
                first = found.get(name)
                found[name] = OpenTransaction(self._producer_id(name), epoch, first.start if first else offset, -1)
        return list(found.values())

    def _producer_id(self, transactional_id: str) -> int:
        return self.producer_ids.setdefault(transactional_id, 1_000 + len(self.producer_ids))

    def producer(self, transactional_id: str) -> ProducerState:
        """As the coordinator knows it."""
        self._check("producer")
        found = self.transactions[transactional_id]
        state = "Ongoing" if found.open else "PrepareAbort" if self.held_up(transactional_id) else "Empty"
        return ProducerState(state, self._producer_id(transactional_id), found.epoch)

    def end_open(self, marker: Marker) -> None:
        """WriteTxnMarkers; the fakes' `end` is the coordinator's."""
        self._check("end_open")
        if self.no_markers:
            raise NotAllowed(f"cluster {self.name!r}: the user needs Alter or ClusterAction on the cluster")
        name = next(name for name, number in self.producer_ids.items() if number == marker.transaction.producer_id)
        self.log(marker.at).end_open(name, Fate.COMMITTED if marker.commit else Fate.ABORTED)

    # lane.ports.ClusterQuestions

    def _check(self, call: str) -> None:
        self.fault(f"{self.name}.{call}")
        if self.down:
            raise Unreachable(f"cluster {self.name}: no answer")

    def _topic_error(self, topic: str, operation: str = "Describe", partition: int = 0) -> ReplicatorError | None:
        if operation in self.denied.get(topic, ()):
            return NotAllowed(f"cluster {self.name!r}: the user needs {operation} on topic {topic!r}")
        if topic not in self.topics or partition >= len(self.topics[topic].logs):
            return TopicMissing(f"cluster {self.name!r} has no topic {topic!r}")
        return None

    def topic_ids(self, topics: Collection[str]) -> IdAnswer:
        """Ids at once, or the error of each."""
        try:
            self._check("topic_ids")
        except ReplicatorError as error:
            return Answered(dict.fromkeys(topics, error))
        return Answered({topic: self._topic_error(topic) or self.topics[topic].topic_id for topic in topics})

    def log_ends(self, partitions: Collection[Partition]) -> dict[Partition, LogEnds | ReplicatorError]:
        """Ends of logs."""
        self._check("log_ends")
        return {at: self._topic_error(at.topic, partition=at.partition) or self._ends(at) for at in partitions}

    def _ends(self, at: Partition) -> LogEnds | ReplicatorError:
        if at in self.by_old_leaders:
            return self.by_old_leaders[at]
        if self.log(at).unreachable:
            return Unreachable(f"cluster {self.name!r}: cannot ask for an offset of {at}: no connection")
        if self.log(at).damaged:
            return Retriable(f"{at}: KAFKA_STORAGE_ERROR")
        return Retriable(f"{at} has no leader") if self.log(at).leaderless else self.topics[at.topic].ends(at.partition)

    def ask_another(self) -> None:
        """From then on it is a broker that knows all."""
        self.by_old_leaders.clear()

    def ask_log_ends(self, partitions: Collection[Partition]) -> Callable[[], LogEndsByPartition]:
        """Asked only when the answer is waited for: one cluster after the other, in an order that never changes."""
        return lambda: self.log_ends(partitions)

    def offsets_at(
        self, partitions: Collection[Partition], timestamp_ms: int
    ) -> dict[Partition, int | ReplicatorError]:
        """First committed record at or after a time."""
        self._check("offsets_at")
        return {
            at: self._topic_error(at.topic)
            or next((offset for offset, e in self.log(at).committed() if e.at_ms >= timestamp_ms), -1)
            for at in partitions
        }

    def end_records(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[Partition, EndRecords | ReplicatorError]:
        """What is behind some offset."""
        self._check("end_records")
        found: dict[Partition, EndRecords | ReplicatorError] = {}
        for at, first in starts.items():
            error = self._topic_error(at.topic, "Read")
            if error is None and first > self.log(at).end:
                error = Retriable(f"cluster {self.name!r}: {at} has no offset {first}")
            records = () if error else tuple(o for o, _ in self.log(at).committed() if o >= first)[:2]
            found[at] = error or EndRecords(records, self.log(at).stable)
        return found

    def holds(self, at: Partition, offset: int) -> bool:
        """Whether a record stands there."""
        return any(o == offset and e.fate is not Fate.MARKER for o, e in self.log(at).all())

    def compacted(self, topic: str) -> bool:
        """Whether it is compacted."""
        return self.topics[topic].compacted

    def rewrites_timestamps(self, topics: Collection[str]) -> dict[str, bool | ReplicatorError]:
        """Whether it stamps records itself."""
        self._check("configs")
        return {topic: self._topic_error(topic) or self.topics[topic].stamps for topic in topics}

    def missing_rights(self, topics: Collection[str]) -> dict[str, MissingRights]:
        """Rights that a test has taken away."""
        self._check("missing_rights")
        return {
            topic: MissingRights(
                frozenset(lacking),
                f"cluster {self.name!r}: the user needs {', '.join(sorted(lacking))} on topic {topic!r}",
            )
            for topic in topics
            if (lacking := self.denied.get(topic))
        }

    def offsets_retention_ms(self) -> int | None:
        """Seven days, as Kafka's default."""
        return 7 * 24 * 3_600_000

    def close(self) -> None:
        """Nothing is open."""
