"""What MirrorMaker 2 would have written, written by hand: topics that it has copied, and Kafka Connect's offsets.

Each `Mirrored` has topics of its own on brokers that tests share. Its partitions stand where a MirrorMaker 2 that was
killed leaves them: copied in part, whole, or not at all; with what was aborted on both sides, so offsets have gaps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer

from integration_tests.harness import clients
from integration_tests.harness.replicator import FlowFile

ALIAS = "a"
GROUPED = 12
"""Source records of one transaction."""
PATIENT = {"request_timeout_ms": 30_000, "connect_timeout_ms": 60_000}
"""Of many flows at once on a slow machine."""
At = tuple[str, int]
"""A source topic and a partition."""
Copied = tuple[At, int, int]
"""Committed source records of a partition, by their places in it: from the one, to before the other."""


class Content(NamedTuple):
    """What of a record is copied."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def content(message: Message) -> Content:
    """What of a record is compared."""
    headers: tuple[Any, ...] = tuple(message.headers() or ())
    return Content(message.key(), message.value(), headers, message.timestamp()[1])


class Mirrored:
    """A flow `name` between two clusters, whose topics MirrorMaker 2 has copied before.

    `copied`: how many of the committed source records, from the first one on, by partition; `positions`: where copying
    goes on behind them. `exactly_once`: it has noted its offsets in the transactions of the records. Else it has noted
    too little, and copied records twice.
    """

    def __init__(self, directory: Path, name: str, source: str, target: str, via: str, *, exactly_once: bool) -> None:
        """`via`: what the flow uses in place of the target's address."""
        self.name, self.source, self.target = name, source, target
        self.offsets = f"mm2-offsets.{name}.internal"
        self.first, self.second = f"{name}.t", f"{name}.u"
        self.partitions: tuple[At, ...] = (*((self.first, number) for number in range(3)), (self.second, 0))
        settings = {"topics": [self.first, self.second], "rename": f"{ALIAS}.{{topic}}"}
        self.file = FlowFile(directory, name, source, via, **settings, limits=PATIENT)
        self.copied = dict.fromkeys(self.partitions, 0)
        self.exactly_once = exactly_once
        self.positions: dict[At, int] = {}
        self._there: dict[At, Sequence[Message]] = {}
        for topic, count in ((self.first, 3), (self.second, 1)):
            clients.create_topic(source, topic, count)
            clients.create_topic(target, f"{ALIAS}.{topic}", count)
        clients.create_topic(target, self.offsets, 2, {"cleanup.policy": "compact"})
        self._writer = clients.transactional(self.source, f"{name}-writer")
        self._written = 0

    @property
    def words(self) -> tuple[str, ...]:
        """How `adopt-mm2` is told where to look."""
        return ("--connect-offsets", self.offsets) if self.exactly_once else ("--alias", ALIAS)

    def write(self, at: At, transactions: int = 1) -> None:
        """Write source records that no others equal: some transactions, each of them behind one that is aborted."""
        for _ in range(transactions):
            for kept in (False, True):
                self._writer.begin_transaction()
                for _ in range(GROUPED):
                    self._written += 1
                    self._put_source(at, self._written)
                self._writer.flush(clients.TIMEOUT_S)
                (self._writer.commit_transaction if kept else self._writer.abort_transaction)(clients.TIMEOUT_S)

    def _put_source(self, at: At, number: int) -> None:
        self._writer.produce(
            at[0],
            None if number % GROUPED == 5 else b"v%d" % number,
            b"k%d" % number,
            partition=at[1],
            headers=[("h", b"%d" % number)],
            timestamp=1_700_000_000_000 + 10 * number - 37 * (number % 3),  # nearly in order
        )

    def mirror(self) -> None:
        """Fill the source, and copy as MirrorMaker 2 does, up to where it is killed. Of the third partition it has
        copied nothing; exactly once, it had begun to."""
        part, whole, begun, other = self.partitions
        for at, transactions in zip(self.partitions, (5, 4, 1, 3), strict=True):
            self.write(at, transactions)
            self._there[at] = clients.read(self.source, *at)
        if self.exactly_once:
            tasks = [clients.transactional(self.target, f"{self.name}-task-{number}") for number in range(2)]
            self._together(tasks, [(part, 0, 8), (whole, 0, 24)], [(other, 0, 8)])
            self._together(tasks, [(part, 8, 20), (whole, 24, 48)], [(other, 8, 20)])
            self._together(tasks, [(part, 20, 40), (begun, 0, 5)], [(other, 20, 30)], kept=False)
            self.positions = {begun: 0}
        else:
            writer = clients.producer(self.target)
            self._copy(writer, [(part, 0, 10), (other, 0, 20), (part, 10, 20), (whole, 0, 48)])
            self._note(writer, other, 4)
            self._note(writer, part, 7)
            # again, from what it has noted on; and is killed again before it is through
            self._copy(writer, [(part, 8, 15), (other, 5, 9), (whole, 0, 48)])
        self.copied |= {part: 20, whole: 48, other: 20}
        self.positions |= {
            at: (self._there[at][count - 1].offset() or 0) + 1 for at, count in self.copied.items() if count
        }

    def _together(
        self, tasks: Sequence[Producer], first: Sequence[Copied], second: Sequence[Copied], *, kept: bool = True
    ) -> None:
        """Two tasks, whose transactions are open side by side, on Kafka Connect's offsets topic, too."""
        for task, parts in zip(tasks, (first, second), strict=True):
            task.begin_transaction()
            self._copy(task, parts)
            for at, _, end in parts:
                self._note(task, at, end - 1)
        for task in reversed(tasks):
            (task.commit_transaction if kept else task.abort_transaction)(clients.TIMEOUT_S)

    def _copy(self, writer: Producer, parts: Sequence[Copied]) -> None:
        for at, first, end in parts:
            for message in self._there[at][first:end]:
                it = content(message)
                writer.produce(
                    f"{ALIAS}.{at[0]}",
                    it.value,
                    it.key,
                    partition=at[1],
                    headers=list(it.headers),
                    timestamp=it.timestamp_ms,
                )
        assert writer.flush(clients.TIMEOUT_S) == 0

    def _note(self, writer: Producer, at: At, index: int) -> None:
        """Kafka Connect's offset of a source record, by its place among the committed ones."""
        where = {"cluster": ALIAS, "partition": at[1], "topic": at[0]}
        key = json.dumps(["MirrorSourceConnector", where]).encode()
        writer.produce(self.offsets, json.dumps({"offset": self._there[at][index].offset()}).encode(), key)
        assert writer.flush(clients.TIMEOUT_S) == 0

    def source_records(self, at: At) -> list[Content]:
        """What the source has committed."""
        return list(map(content, clients.read(self.source, *at)))

    def target_records(self, at: At) -> list[Content]:
        """What a read_committed reader of the target finds."""
        return list(map(content, clients.read(self.target, f"{ALIAS}.{at[0]}", at[1])))
