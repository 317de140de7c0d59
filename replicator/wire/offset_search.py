"""Which partitions are still to be asked for their offsets, and of which broker; what the answers mean. Pure.

A partition is *open* until it has all of its offsets, or an error that trying again doesn't cure. One that failed with
any other error stays open, alone, and is asked again of the leader that newer metadata names. Used by `offsets`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from replicator.kafka import failures
from replicator.kafka.offset_questions import ListedOffset, ListedOffsets, Wanted, doing, no_leader
from replicator.model.errors import ReplicatorError, Retriable, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.wire.connection import Address
from replicator.wire.list_offsets import Answer
from replicator.wire.metadata_response import Metadata, TopicMetadata

Led = dict[Partition, int]
"""Partitions that one broker leads, with the epoch that it has as their leader."""
_REPLICA_NOT_AVAILABLE = 9  # a leader answers nevertheless
_LISTENER_NOT_FOUND = 72  # the leader lives, and can't be reached on this listener now
_LEADERLESS = (5, _REPLICA_NOT_AVAILABLE, _LISTENER_NOT_FOUND)

_ListedValue = tuple[int | None, int, int]
"""Error, offset, timestamp."""
_LEFT_OUT: _ListedValue = (None, 0, 0)
"""Of a partition that a leader's answer doesn't have."""


class OffsetSearch:
    """Of one question about many partitions."""

    def __init__(
        self, cluster: str, partitions: Collection[Partition], wanted: Sequence[Wanted], *, patient: bool
    ) -> None:
        """`patient`: a partition that has no leader, or that isn't there, is asked for again; else that is its error at
        once."""
        self._cluster, self._wanted, self._patient = cluster, wanted, patient
        self._open: dict[Partition, ReplicatorError | None] = dict.fromkeys(partitions)  # why it failed last
        self._asked: dict[Partition, bytes] = {}  # and not answered yet: the id of its topic, as its leader was named
        self._found: list[dict[Partition, ListedOffset | ReplicatorError]] = [{} for _ in wanted]
        self._missing_times = dict[Partition, int]()

    @property
    def done(self) -> bool:
        """Whether nothing is open."""
        return not self._open

    def topics(self) -> set[str]:
        """Return topics of which metadata is needed: some of their partitions are open, and are not being asked for."""
        return {at.topic for at in self._open if at not in self._asked}

    def assign(self, metadata: Metadata, *, just_told: bool = False) -> dict[Address, Led]:
        """Say whom to ask for what, as a broker describes the topics; from now on these partitions are being asked for.

        `just_told`: to another question, so that it says nothing of those that have no leader.
        """
        topics = {topic.name: topic for topic in metadata.topics}
        by_leader = dict[Address, Led]()
        for at in [at for at in self._open if at not in self._asked]:
            topic = topics.get(at.topic)
            leader = self._leader(at, topic, metadata.brokers)
            if isinstance(leader, ReplicatorError):
                if not just_told:
                    self._failed(at, leader, known=True)
            else:
                address, epoch = leader
                by_leader.setdefault(address, {})[at] = epoch
                self._asked[at] = b"" if topic is None else topic.topic_id
        return by_leader

    def _leader(
        self, at: Partition, topic: TopicMetadata | None, brokers: Mapping[int, Address]
    ) -> tuple[Address, int] | ReplicatorError:
        if topic is not None and not topic.error and at.partition in topic.leaders:
            error, leader, epoch = topic.leaders[at.partition]
            if leader in brokers and (not error or error in _LEADERLESS):
                return brokers[leader], epoch
        return self._not_led(at, topic)

    def _not_led(self, at: Partition, topic: TopicMetadata | None) -> ReplicatorError:
        """Say why nobody is asked. Apart from what is said of all others: the words take longer than the look."""
        what, right = doing(at)
        if topic is None:
            return Retriable(f"cluster {self._cluster!r}: cannot {what}: its answer leaves out topic {at.topic!r}")
        if topic.error:
            return failures.classify_code(topic.error, self._cluster, what, right)
        if at.partition not in topic.leaders:
            return TopicMissing(f"cluster {self._cluster!r}: cannot {what}: there is no such partition")
        error = topic.leaders[at.partition][0]
        if error and error not in _LEADERLESS:
            return failures.classify_code(error, self._cluster, what, right)
        return no_leader(self._cluster, at)

    def answered(self, asked: Led, answers: Sequence[Sequence[Answer]]) -> None:
        """Take what a broker has answered for `asked`; `answers` has one item for each `Wanted`. A leader answers under
        the epoch that it is asked under, and refuses any other."""
        ids = {at: self._asked.pop(at) for at in asked}
        listed: list[dict[tuple[str, int], _ListedValue]] = [
            {(topic, index): (code, offset, time) for topic, index, code, time, offset in one} for one in answers
        ]
        for at, epoch in asked.items():
            told = [one.get(at, _LEFT_OUT) for one in listed]
            failed = [code for code, _, _ in told if code != 0]
            if failed:
                self._failed(at, self._error(at, failed[0]))
                continue
            del self._open[at]
            for found, (_, offset, time) in zip(self._found, told, strict=True):
                found[at] = ListedOffset(offset, time, epoch, ids[at])

    def _error(self, at: Partition, code: int | None) -> ReplicatorError:
        what, right = doing(at)
        if code is None:
            return Retriable(f"cluster {self._cluster!r}: cannot {what}: its leader's answer leaves it out")
        return failures.classify_code(code, self._cluster, what, right)

    def unanswered(self, asked: Collection[Partition], error: ReplicatorError) -> None:
        """Note that the broker that was asked doesn't answer."""
        for at in asked:
            del self._asked[at]
            self._failed(at, Unreachable(f"cluster {self._cluster!r}: cannot {doing(at)[0]}: {error}"))

    def _failed(self, at: Partition, error: ReplicatorError, *, known: bool = False) -> None:
        """Note that a partition has no answer. `known`: the cluster says so, and not one broker of its own partition,
        which may be late.
        """
        if isinstance(error, Retriable | Unreachable) and (self._patient or not known):
            self._open[at] = error
        else:
            del self._open[at]
            for found in self._found:
                found[at] = error

    def results(self, why: ReplicatorError | None) -> Sequence[ListedOffsets]:
        """Return what is known by now. `why` no broker describes the topics; None where one does, or nothing is
        known.
        """
        left: dict[Partition, ListedOffset | ReplicatorError] = {}
        for at, error in self._open.items():
            said = "no answer in time" if why is None else str(why)
            left[at] = error or Unreachable(f"cluster {self._cluster!r}: cannot {doing(at)[0]}: {said}")
        return [found | left for found in self._found]
