"""What was seen of producers at a cluster, put together to what each has written and for which groups. Pure.

A transactional producer couples all topics to which it writes, whether in one transaction or in several. One that
commits a group's offsets in its transactions is a read-process-write loop: it couples what the group reads, too. A
producer without a transactional id couples nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from replicator.model import names

OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
UNKNOWN_MS = -1


class SeenIn(Enum):
    """By what something is known."""

    PRODUCERS = "describe_producers"
    OPEN_TRANSACTION = "describe_transactions"
    TRANSACTION_LOG = TRANSACTIONS_TOPIC
    OFFSETS_LOG = OFFSETS_TOPIC


class ActiveProducer(NamedTuple):
    """A producer in a partition, as its leader says (DescribeProducers).

    Attributes:
        when_ms: the timestamp of its last record there.
        transactional: a transaction of it was ended there, or is open. Not so of a transactional producer alone
            whose first transaction there was begun this moment.
        open_from: where its open transaction begins there; -1: it has none.
    """

    producer_id: int
    when_ms: int
    transactional: bool
    open_from: int = -1


class SeenTransaction(NamedTuple):
    """A transaction and its partitions by topic, as its coordinator tells or has logged. `when_ms`: its last change."""

    transactional_id: str
    producer_id: int
    partitions: Mapping[str, tuple[int, ...]]
    when_ms: int = UNKNOWN_MS


class CommittedFor(NamedTuple):
    """A producer has committed an offset of a group in a topic, in a transaction. `when_ms`: when the last time."""

    producer_id: int
    group: str
    topic: str
    when_ms: int


class Unseen(NamedTuple):
    """What couldn't be seen, and why."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class LastSeen(NamedTuple):
    """When something was seen last, and by what."""

    when_ms: int
    seen_in: frozenset[SeenIn]

    def and_(self, when_ms: int, seen_in: SeenIn) -> LastSeen:
        """Return this one and another as one."""
        return LastSeen(max(self.when_ms, when_ms), self.seen_in | {seen_in})

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "seen_ms": self.when_ms if self.when_ms >= 0 else None,
            "seen_in": sorted(it.value for it in self.seen_in),
        }


_NOTHING = LastSeen(UNKNOWN_MS, frozenset())


@dataclass(frozen=True, slots=True)
class TransactionalWriter:
    """A transactional producer.

    Attributes:
        transactional_id: empty where it isn't known: the right to describe it is missing, or it has expired.
        producer_ids: that it has had, of those that were seen.
        writes: topics to which it has written.
        reads: by group, topics of which it has committed the group's offsets.
        offsets_partitions: of `__consumer_offsets`, in which it has committed offsets of some group.
    """

    transactional_id: str
    producer_ids: tuple[int, ...]
    writes: Mapping[str, LastSeen]
    reads: Mapping[str, Mapping[str, LastSeen]]
    offsets_partitions: frozenset[int]

    @property
    def name(self) -> str:
        """It, in a message."""
        if self.transactional_id:
            return f"transactional id {self.transactional_id!r}"
        return f"producer id {', '.join(map(str, self.producer_ids))}"

    @property
    def topics(self) -> frozenset[str]:
        """All that it reads and writes."""
        return frozenset(self.writes).union(*self.reads.values())

    @property
    def commits_offsets(self) -> bool:
        """Whether it commits offsets of groups, known or not."""
        return bool(self.reads or self.offsets_partitions)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "transactional_id": self.transactional_id or None,
            "producer_ids": list(self.producer_ids),
            "writes": {topic: it.as_json() for topic, it in sorted(self.writes.items())},
            "reads": {
                group: {topic: it.as_json() for topic, it in sorted(topics.items())}
                for group, topics in sorted(self.reads.items())
            },
            "group_unknown": self.commits_offsets and not self.reads,
        }


@dataclass(slots=True)
class _ProducerFacts:
    producer_ids: set[int] = field(default_factory=set)
    writes: dict[str, LastSeen] = field(default_factory=dict)
    reads: defaultdict[str, dict[str, LastSeen]] = field(default_factory=lambda: defaultdict(dict))
    offsets_partitions: set[int] = field(default_factory=set)

    def wrote(self, topic: str, partitions: Iterable[int], when_ms: int, seen_in: SeenIn) -> None:
        if topic == OFFSETS_TOPIC:
            self.offsets_partitions.update(partitions)
        elif not topic.startswith(names.INTERNAL_PREFIX):
            self.writes[topic] = self.writes.get(topic, _NOTHING).and_(when_ms, seen_in)


class ProducerEvidence:
    """Of one cluster: takes what was seen, in any order, and as often as one likes."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._transactional = set[int]()
        self._active: dict[tuple[int, str], tuple[int, set[int]]] = {}
        self._logged: list[tuple[SeenTransaction, SeenIn]] = []
        self._committed: dict[CommittedFor, None] = {}
        self._own = set[int]()
        self.unseen: list[Unseen] = []

    def named(self, transactional_id: str, producer_id: int) -> None:
        """Note that a transactional id has, or had, this producer id."""
        if producer_id >= 0:
            self._ids[producer_id] = transactional_id
            self._transactional.add(producer_id)

    def active(self, topic: str, partition: int, producers: Iterable[ActiveProducer]) -> None:
        """Take producers of a partition."""
        for it in producers:
            when_ms, partitions = self._active.get((it.producer_id, topic), (UNKNOWN_MS, set[int]()))
            partitions.add(partition)
            self._active[it.producer_id, topic] = max(when_ms, it.when_ms), partitions
            if it.transactional:
                self._transactional.add(it.producer_id)
            if topic.startswith(names.STATE_PREFIX):
                self._own.add(it.producer_id)

    def transaction(self, it: SeenTransaction, seen_in: SeenIn) -> None:
        """Take a transaction that was seen."""
        self.named(it.transactional_id, it.producer_id)
        if it.partitions:
            self._logged.append((it, seen_in))

    def committed_offset(self, it: CommittedFor) -> None:
        """Take an offset that was committed in a transaction."""
        self._transactional.add(it.producer_id)
        self._committed[it] = None
        if it.group.startswith(names.OWN_GROUPS_PREFIX):
            self._own.add(it.producer_id)

    def not_seen(self, what: str, why: object) -> None:
        """Note that something couldn't be seen."""
        unseen = Unseen(what, str(why))
        if unseen not in self.unseen:
            self.unseen.append(unseen)

    def writers(self) -> list[TransactionalWriter]:
        """Return all transactional producers, but those of the replicator: what one of its lanes writes in a
        transaction is only copied at the same time."""
        seen: defaultdict[str | int, _ProducerFacts] = defaultdict(_ProducerFacts)
        for (producer_id, topic), (when_ms, partitions) in self._active.items():
            if producer_id in self._transactional:
                self._of(seen, producer_id).wrote(topic, partitions, when_ms, SeenIn.PRODUCERS)
        for it, seen_in in self._logged:
            for topic, numbers in it.partitions.items():
                self._of(seen, it.producer_id).wrote(topic, numbers, it.when_ms, seen_in)
        for of_group in self._committed:
            reads = self._of(seen, of_group.producer_id).reads[of_group.group]
            before = reads.get(of_group.topic, _NOTHING)
            reads[of_group.topic] = before.and_(of_group.when_ms, SeenIn.OFFSETS_LOG)
        return sorted(self._made(seen), key=lambda it: (it.transactional_id, it.producer_ids))

    def _of(self, seen: defaultdict[str | int, _ProducerFacts], producer_id: int) -> _ProducerFacts:
        found = seen[self._ids.get(producer_id, producer_id)]
        found.producer_ids.add(producer_id)
        return found

    def _made(self, seen: Mapping[str | int, _ProducerFacts]) -> Iterator[TransactionalWriter]:
        for key, it in seen.items():
            transactional_id = key if isinstance(key, str) else ""
            if names.is_own_transactional_id(transactional_id) or self._own & it.producer_ids:
                continue
            ids, partitions = tuple(sorted(it.producer_ids)), frozenset(it.offsets_partitions)
            yield TransactionalWriter(transactional_id, ids, it.writes, it.reads, partitions)


def written_for_groups(writers: Iterable[TransactionalWriter]) -> frozenset[str]:
    """Return the topics to which read-process-write loops write."""
    return frozenset[str]().union(*(it.writes for it in writers if it.commits_offsets))
