"""Offset records that are appended to `__consumer_offsets`, and not yet on disk."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from embedded_broker.state.counting import add, add_in
from embedded_broker.state.offsets import OffsetRecord
from embedded_broker.state.owners import SOMEBODY, Owner
from embedded_broker.state.transactions import TopicPartition

GroupPartition = tuple[str, TopicPartition]


class OffsetsUnderWay:
    """The batches in the order of the log, and who has something in them. Pure.

    Invariants
    - Batches are taken in the order in which they were added: of a commit and a deletion the later one counts.
    - A deletion looks here as well as at what is on disk: a commit before it in the log must not outlive it.
    """

    def __init__(self) -> None:
        self._batches: dict[int, Sequence[OffsetRecord]] = {}
        self._records = Counter[GroupPartition]()
        self._by_group: defaultdict[str, Counter[TopicPartition]] = defaultdict(Counter)
        self._by_topic: defaultdict[str, Counter[GroupPartition]] = defaultdict(Counter)
        self._held: defaultdict[str, Counter[Owner]] = defaultdict(Counter)

    def add(self, base_offset: int, records: Sequence[OffsetRecord]) -> None:
        """Note that a batch was appended."""
        self._batches[base_offset] = records
        for record in records:
            self._count(record, 1)

    def take(self, until: int) -> Iterator[tuple[int, Sequence[OffsetRecord]]]:
        """Take all batches up to the one at this offset: if it is on disk, those before it are. None is given twice."""
        while (base_offset := self.first()) is not None and base_offset <= until:
            records = self._batches.pop(base_offset)
            for record in records:
                self._count(record, -1)
            yield base_offset, records

    def first(self) -> int | None:
        """Return the offset of the first batch; None if there is none."""
        return next(iter(self._batches), None)

    def __contains__(self, key: GroupPartition) -> bool:
        """Return whether a record, a deletion too, is about a group's offset of a partition."""
        return key in self._records

    def has_group(self, group_id: str) -> bool:
        """Return whether a record, a deletion too, is about a group."""
        return group_id in self._held

    def held(self, group_id: str) -> Counter[Owner]:
        """Return what the group's records will take in memory, by who has committed them."""
        return self._held.get(group_id, Counter())

    def of_group(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions for which the group has commits under way."""
        return set(self._by_group.get(group_id, ()))

    def on_topic(self, topic: str) -> set[GroupPartition]:
        """Return all commits under way for partitions of a topic."""
        return set(self._by_topic.get(topic, ()))

    def _count(self, record: OffsetRecord, sign: int) -> None:
        key = record.group_id, record.partition
        add(self._records, key, sign)
        made = record.committed
        owner, size = (SOMEBODY, 1) if made is None else (made.owner, made.size_bytes)
        add_in(self._held, record.group_id, owner, sign * size)
        if made is not None:
            add_in(self._by_group, record.group_id, record.partition, sign)
            add_in(self._by_topic, record.partition[0], key, sign)
