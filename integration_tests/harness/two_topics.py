"""A flow of two topics: what befalls the first must stop the first alone, and the second goes on."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.replicator import Event, Replicator

INCIDENT = 4
POLL_S = 0.1


def numbered(word: str, count: int) -> list[bytes]:
    """`count` values that begin with `word`."""
    return [b"%s %d" % (word.encode(), number) for number in range(count)]


class TwoTopics:
    """A flow's first topic, of which a test breaks something, and its second one, which must not notice."""

    def __init__(self, copying: Copying, partitions: int = 1) -> None:
        """`partitions` is the second topic's number of partitions; the first one is that of `copying`."""
        self.flow, self.name = copying, copying.name
        self.source, self.target = copying.source, copying.target
        self.first, self.second = copying.topic, f"{copying.name}.second"
        clients.create_topic(self.source, self.second, partitions)
        copying.file.write(topics=[self.first, self.second])
        self._numbers = itertools.count()

    @property
    def control_topic(self) -> str:
        """The flow's control topic on the target."""
        return f"__eos.{self.name}.control"

    def copy_of(self, topic: str) -> str:
        """The target topic."""
        return f"{topic}.copy"

    def put(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        """Write to the source, with a producer that knows nothing of what was written before."""
        clients.put(clients.producer(self.source), topic, *values, partition=partition, key=b"key")

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """What stands on the target."""
        return clients.values(clients.read(self.target, self.copy_of(topic), partition))

    def wait_copied(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Return once this value stands on the target."""
        clients.wait_value(self.target, self.copy_of(topic), partition, value)

    def position(self, topic: str, partition: int = 0) -> TopicPartition:
        """The committed position, with its metadata."""
        return clients.committed(self.target, self.flow.group, self.copy_of(topic), partition)

    def wait_position(self, topic: str, offset: int, partition: int = 0) -> None:
        """Return once the committed position is this source offset."""
        deadline = time.monotonic() + clients.TIMEOUT_S
        while (found := self.position(topic, partition).offset) != offset:
            assert time.monotonic() < deadline, f"the position of {topic} is {found}, not {offset}"
            time.sleep(POLL_S)

    def assert_kept_alive(self, topic: str) -> None:
        """The position is committed again, unchanged, within the time of any test."""
        before = self.position(topic)
        deadline = time.monotonic() + clients.TIMEOUT_S
        while (found := self.position(topic)).metadata == before.metadata:
            assert time.monotonic() < deadline, f"the position of {topic} is not committed again: {found.metadata}"
            time.sleep(POLL_S)
        assert found.offset == before.offset

    def running(self, records: int = 100) -> Replicator:
        """A worker that has copied `records` records `old 0`… of each topic's partition 0."""
        for topic in (self.first, self.second):
            self.put(topic, numbered("old", records))
        worker = self.flow.running()
        for topic in (self.first, self.second):
            self.wait_position(topic, records)
        return worker

    def assert_second_goes_on(self) -> None:
        """A new record of the second topic is copied."""
        value = b"the other topic goes on %d" % next(self._numbers)
        self.put(self.second, [value])
        self.wait_copied(self.second, value)

    def assert_stops(self, worker: Replicator, *codes: int) -> None:
        """The worker ends with one of these codes (`INCIDENT` by default) when it is asked to, or has ended already."""
        found = worker.stop()
        assert found in (codes or (INCIDENT,)), f"exit code {found}\n{worker.tail()}"

    def status(self) -> dict[str, Any]:
        """What `status --json` says of the flow."""
        command = [sys.executable, "-m", "cli.main", "status", "-c", str(self.flow.file.path), "--json"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert shown.returncode == 0, shown.stderr
        return dict(json.loads(shown.stdout)["flows"][0])

    def owners(self) -> set[str | None]:
        """Who runs each partition, as `status` says; None where its worker has released it."""
        return {row["owner"] for row in self.status()["partitions"]}


def assert_told(event: Event, *words: str) -> None:
    """The detail of an incident or a waiting partition has each of these words; an incident has advice too."""
    detail = str(event["detail"])
    assert not [word for word in words if word not in detail], f"{words} in {detail!r}"
    assert event["event"] != "incident" or event["advice"], f"no advice: {event}"
