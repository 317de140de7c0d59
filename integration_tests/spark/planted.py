"""A copy made by hand, with a position that covers it: what a flow would have left, and what damage adds to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.replicator import FlowFile
from replicator import config
from replicator.config import Flow
from replicator.flow.topics import ControlPlane, internal_topics
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Evidence
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Phase
from replicator.state.own_file import lanes_wanted

EPOCH_MS = 1_700_000_000_000
LAG_MS = str(100 * 365 * 86_400_000)
"""What is planted as compacted is planted; a broker that compacts in the middle of a test would take more."""


class Content(NamedTuple):
    """What a record says."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def mixed(count: int, seed: str = "") -> list[Content]:
    """Records with nulls, empty fields, headers and repeated keys; no two are equal."""
    return [
        Content(
            None if number % 11 == 0 else f"k{number % 97}".encode(),
            None if number % 13 == 0 else b"" if number % 17 == 0 else f"{seed}{number}".encode() * (1 + number % 5),
            EPOCH_MS + number,
            (("h", b"1"), ("n", None)) if number % 7 == 0 else (),
        )
        for number in range(count)
    ]


class Addressed(Protocol):
    """A broker, wherever it runs."""

    @property
    def bootstrap(self) -> str:
        """Its address."""


class Planted:
    """A flow's topic on both sides, one list of records for each partition of each side."""

    def __init__(
        self,
        source: Addressed,
        target: Addressed,
        directory: Path,
        records: Sequence[Sequence[Content]],
        copies: Sequence[Sequence[Content]],
        *,
        target_policy: str = "delete",
        source_configs: Mapping[str, str] | None = None,
        target_configs: Mapping[str, str] | None = None,
    ) -> None:
        """`source_configs`, `target_configs`: of the topics; the target's then come instead of `target_policy`."""
        name = f"planted-{uuid.uuid4().hex[:8]}"
        self.topic, self.copy = f"{name}.in", f"{name}.in.copy"
        self.source, self.target = source.bootstrap, target.bootstrap
        self.file = FlowFile(directory, name, self.source, self.target, topics=[self.topic])
        clients.create_topic(self.source, self.topic, len(records), dict(source_configs or {}))
        configs = target_configs or {"cleanup.policy": target_policy, "min.compaction.lag.ms": LAG_MS}
        clients.create_topic(self.target, self.copy, len(records), dict(configs))
        produce(self.source, self.topic, records)
        produce(self.target, self.copy, copies)
        open_flow(self.flow, self.target, {self.topic: len(records)})
        self.commit([len(side) for side in records], [len(side) for side in copies])

    @property
    def flow(self) -> Flow:
        """The flow as its file says."""
        return config.load(self.file.path).flows[self.file.flow]

    def commit(self, positions: Sequence[int], next_targets: Sequence[int]) -> None:
        """Commit the flow's positions, as if it had copied so many records."""
        flow = self.flow
        with ControlPlane(flow) as clusters:
            here, _ = clusters.connect()
            source = clusters.list_source()[self.topic]
            target = clusters.list_target([self.topic])[self.copy]
        offsets = []
        for number, (position, next_target) in enumerate(zip(positions, next_targets, strict=True)):
            evidence = Evidence(
                generation=1,
                owner=NOBODY,
                source_topic=self.topic,
                source_cluster=here.cluster_id,
                source_topic_id=source.topic_id,
                target_topic_id=target.topic_id,
                log_start=0,
                next_target_offset=next_target,
                count=position,
            )
            offsets.append(TopicPartition(self.copy, number, position, metadata=checkpoint.encode(evidence)))
        client = clients.consumer(self.target, group_id=f"eos-replicate.{flow.name}")
        client.commit(offsets=offsets, asynchronous=False)
        client.close()


def open_flow(flow: Flow, target: str, listing: Mapping[str, int]) -> None:
    """The flow's own topics, as a flow without claims has left them at a clean stop. `listing`: partitions by topic."""
    lanes = lanes_wanted(flow, listing, Control())
    for spec in internal_topics(flow, lanes):
        clients.create_topic(target, spec.name, spec.partitions, spec.configs)
    opened = Generation(1, Phase.OPEN, lanes, partitions=dict(listing))
    clients.put(clients.producer(target), names.control_topic(flow.name), opened.encode(), key=opened.key)


def produce(bootstrap: str, topic: str, sides: Sequence[Sequence[Content]]) -> None:
    """Write the records, one list for each partition."""
    failed: list[object] = []
    writer = clients.producer(bootstrap, linger_ms=20, queue_buffering_max_messages=1_000_000)
    report: Callable[[object, object], None] = lambda error, _: failed.append(error) if error else None  # noqa: E731
    for number, records in enumerate(sides):
        for record in records:
            writer.produce(
                topic,
                record.value,
                record.key,
                partition=number,
                timestamp=record.timestamp_ms,
                headers=list(record.headers) or None,
                on_delivery=report,
            )
            writer.poll(0)
    assert writer.flush(clients.TIMEOUT_S) == 0
    assert not failed, failed
