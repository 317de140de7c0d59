"""Asks one cluster for offsets of its logs (ListOffsets): the contract, and its implementation with librdkafka.

`wire.offsets` implements it, too, and is used wherever it can log in: librdkafka's admin client (2.16) waits for
partitions without a leader with all the others, waits for a dead broker, and is refused with FENCED_LEADER_EPOCH for
ever once a leader was restarted, because it keeps the epoch that it knew. So here partitions without a leader are left
out, and the client is thrown away when anything wasn't answered. Used by `topic_questions`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from replicator.kafka import failures
from replicator.model.errors import ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition


class Wanted(NamedTuple):
    """Which offset of a log: a time in ms, or one of the special timestamps of ListOffsets. `stable`: as a
    read_committed reader sees it, below the last stable offset."""

    timestamp: int
    stable: bool = False


LATEST, EARLIEST, MAX_TIMESTAMP = Wanted(-1), Wanted(-2), Wanted(-3)
"""The high watermark, the log start, and the record with the largest timestamp (KIP-734, Kafka 3.0)."""
EARLIEST_LOCAL = Wanted(-4)
"""The first offset that the leader has on its own disks (KIP-405); what is before it is in remote storage."""
STABLE = Wanted(-1, stable=True)
"""The last stable offset. It is asked for behind `LATEST`: if it is not below that, no transaction was open there. In
the other order records that are appended in between look as if a transaction held them back."""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset, and the timestamp of the record there where a time was asked for; both -1: there is none.
    `leader_epoch`: under which the leader has answered; -1: not known. `topic_id`: of the topic that it leads; empty
    or zeros: not known. They say how much the answer counts, not what."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = field(default=-1, compare=False)
    topic_id: bytes = field(default=b"", compare=False)


ListedOffsets = dict[Partition, ListedOffset | ReplicatorError]


def of_each(listed: Sequence[ListedOffsets]) -> dict[Partition, tuple[int, ...] | ReplicatorError]:
    """Return the offsets of each partition in the order in which they are wanted, or the first error among them."""
    found: dict[Partition, tuple[int, ...] | ReplicatorError] = {}
    for at in listed[0]:
        answers = [each[at] for each in listed]
        error = next((it for it in answers if isinstance(it, ReplicatorError)), None)
        found[at] = error or tuple(it.offset for it in answers if isinstance(it, ListedOffset))
    return found


class OffsetAnswers(Protocol):
    """Answers that may still be under way. A partition's leader looks for its offsets in the order in which they are
    wanted, at least for a last stable offset between what is wanted before it and behind it."""

    def poll(self, timeout_s: float) -> bool:
        """Wait so long at most; whether nothing more is to be waited for."""

    def values(self) -> Sequence[ListedOffsets]:
        """Say what is known by now, one item for each `Wanted`: TopicMissing, NotAllowed, Incident or Retriable of a
        single partition, Unreachable where no answer has come."""


def doing(at: Partition) -> tuple[str, str]:
    """Say what was tried, and the right that it takes, for `failures`."""
    return f"ask for an offset of {at}", f"Describe on topic {at.topic!r}"


def no_leader(cluster: str, at: Partition) -> ReplicatorError:
    """Return the error of a partition that nobody leads."""
    return Retriable(f"cluster {cluster!r}: cannot {doing(at)[0]}: LEADER_NOT_AVAILABLE: {at} has no leader")


class AdminOffsetAnswers:
    """Implements `OffsetAnswers` with an admin client: finds out which partitions are led, then asks for those."""

    def __init__(
        self,
        cluster: str,
        asked: tuple[Collection[Partition], Sequence[Wanted]],
        leaderless: tuple[Callable[[float], bool], Callable[[], Collection[Partition]]],
        client: Callable[[], tuple[AdminClient, float]],
        unanswered: Callable[[], None],
    ) -> None:
        """`asked`: partitions, and what of each. `leaderless`: waits for the answer, and gives it. `client`: the
        client, and how long it tries. `unanswered` is called unless all is answered."""
        self._cluster, (self._partitions, self._wanted) = cluster, asked
        self._poll_leaderless, self._leaderless = leaderless
        self._client, self._unanswered = client, unanswered
        self._futures: list[dict[Partition, Future[Any]]] = []
        self._described = False
        self._without: dict[Partition, ReplicatorError] = {}

    def poll(self, timeout_s: float) -> bool:
        """See `OffsetAnswers`."""
        if not self._partitions:
            return True
        deadline_s = time.monotonic() + timeout_s
        if not self._described:
            if not self._poll_leaderless(timeout_s):
                return False
            self._described = True
            without = {at: no_leader(self._cluster, at) for at in self._leaderless()}
            self._without = {at: without[at] for at in self._partitions if at in without}
        while True:
            pending = [future for each in self._futures for future in each.values()]
            if wait(pending, timeout=max(0.0, deadline_s - time.monotonic())).not_done:
                return False
            if len(self._futures) == len(self._wanted):
                return True
            self._ask_next()

    def _ask_next(self) -> None:
        """Ask for a last stable offset, or what comes before the next one: librdkafka sends its requests in any
        order."""
        for wanted in self._wanted[len(self._futures) :]:
            self._futures.append(self._ask(wanted))
            following = self._wanted[len(self._futures) :]
            if wanted.stable or (following and following[0].stable):
                return

    def _ask(self, wanted: Wanted) -> dict[Partition, Future[Any]]:
        request = {
            TopicPartition(at.topic, at.partition): _spec(wanted.timestamp)
            for at in self._partitions
            if at not in self._without
        }
        if not request:
            return {}
        level = IsolationLevel.READ_COMMITTED if wanted.stable else IsolationLevel.READ_UNCOMMITTED
        client, timeout_s = self._client()
        futures = client.list_offsets(request, isolation_level=level, request_timeout=timeout_s)
        return {Partition(at.topic, at.partition): future for at, future in futures.items()}

    def values(self) -> Sequence[ListedOffsets]:
        """See `OffsetAnswers`."""
        unasked = len(self._wanted) - len(self._futures)
        asked: Sequence[Mapping[Partition, Future[Any]]] = [*self._futures, *({} for _ in range(unasked))]
        found = [{at: self._value(at, futures.get(at)) for at in self._partitions} for futures in asked]
        if any(isinstance(value, Retriable | Unreachable) for values in found for value in values.values()):
            self._unanswered()
        return found

    def _value(self, at: Partition, future: Future[Any] | None) -> ListedOffset | ReplicatorError:
        what, right = doing(at)
        if at in self._without:
            return self._without[at]
        if future is None or not future.done():
            return Unreachable(f"cluster {self._cluster!r}: cannot {what}: no answer in time")
        try:
            answer = future.result()
        except KafkaException as error:
            return failures.classify(error, self._cluster, what, right)
        return ListedOffset(int(answer.offset), int(answer.timestamp))


def _spec(timestamp: int) -> OffsetSpec:
    special: dict[int, Callable[[], OffsetSpec]] = {
        LATEST.timestamp: OffsetSpec.latest,
        EARLIEST.timestamp: OffsetSpec.earliest,
        MAX_TIMESTAMP.timestamp: OffsetSpec.max_timestamp,
    }
    return special[timestamp]() if timestamp in special else OffsetSpec.for_timestamp(timestamp)
