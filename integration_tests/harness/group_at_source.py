"""A consumer group at the source with one member in a thread: what it has committed, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.failover_plan import GroupPlan
from replicator.model.partition import Partition

POLL_S = 0.05


class CommitMade(NamedTuple):
    """A commit as the consumer knows it; times in seconds since 1970 UTC. `ended_s`: infinite where no answer came."""

    began_s: float
    ended_s: float
    offsets: Mapping[Partition, int]


class GroupAtSource:
    """Consumes both topics from where the group stands. What fails once the source may die is no failure."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], plan: GroupPlan) -> None:
        self._plan, self._topics = plan, list(topics)
        self._settings = {"group_id": group, "group_protocol": plan.protocol, "auto_offset_reset": "error"}
        self._bootstrap = bootstrap
        self.commits: list[CommitMade] = []
        self.consumed = 0
        self._over, self._may_fail = threading.Event(), threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def may_die(self) -> None:
        """Commits may stay without an answer from now on."""
        self._may_fail.set()

    def stop(self) -> None:
        """End; raises what it has failed with."""
        self.end()
        if self._failed:
            raise self._failed[0]

    def end(self) -> None:
        """End, if it has begun."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def committed_by(self, at_s: float) -> dict[Partition, int]:
        """What it had committed for certain at this time."""
        return self._furthest([it for it in self.commits if it.ended_s <= at_s])

    def perhaps_by(self, at_s: float) -> dict[Partition, int]:
        """What it had committed at most at this time."""
        return self._furthest([it for it in self.commits if it.began_s <= at_s])

    @staticmethod
    def _furthest(commits: Sequence[CommitMade]) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for it in commits:
            for at, offset in it.offsets.items():
                found[at] = max(offset, found.get(at, 0))
        return found

    def _run(self) -> None:
        try:
            consumer = clients.consumer(self._bootstrap, enable_partition_eof=False, **self._settings)
            consumer.subscribe(self._topics)
            try:
                self._consume(consumer)
            finally:
                consumer.close()
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self._failed.append(error)

    def _consume(self, consumer: Consumer) -> None:
        behind: dict[Partition, int] = {}
        count = 0
        while not self._over.is_set() and self.consumed < self._plan.most:
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                at = Partition(message.topic() or "", message.partition() or 0)
                behind[at] = (message.offset() or 0) + 1
                self.consumed, count = self.consumed + 1, count + 1
            if behind and (count >= self._plan.every or message is None):
                self._commit(consumer, behind)
                behind, count = {}, 0
                self._over.wait(self._plan.pause_s)

    def _commit(self, consumer: Consumer, behind: Mapping[Partition, int]) -> None:
        began_s, number = time.time(), len(self.commits)
        self.commits.append(CommitMade(began_s, float("inf"), dict(behind)))
        try:
            consumer.commit(offsets=[TopicPartition(*at, offset) for at, offset in behind.items()], asynchronous=False)
        except KafkaException:
            if not self._may_fail.is_set():
                raise
        else:
            self.commits[number] = CommitMade(began_s, time.time(), dict(behind))
