"""Consolidates a flow's offset map on Kafka, in a thread beside the lanes. Started by `flow.wiring`.

Implements what `map_consolidation` asks for. A failure stops nothing: it is told once, and tried again later; copying
and the map itself go on, and the blocks stay.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial

import structlog

from kafka_records.batch import CorruptBatch
from kafka_records.committed import committed_batches
from kafka_records.fetched import FetchedBatch, read_batches
from kafka_records.records import decode
from replicator.backoff import Backoff
from replicator.clock import RealClock
from replicator.config import Flow, routing
from replicator.flow.map_consolidation import BlockBounds, MapConsolidation, RoundResult
from replicator.flow.offsets_topic import check_index_topic, check_map_topic, index_topic_of
from replicator.flow.topics import ControlPlane, topics_of
from replicator.incidents import tell_incident
from replicator.kafka import properties
from replicator.kafka.acknowledged import write_acknowledged
from replicator.kafka.admin import ClusterAdmin, TopicSpec
from replicator.kafka.producer import TransactionalProducer
from replicator.kafka.topic_questions import TopicInfo
from replicator.model import names
from replicator.model.errors import Incident, ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.offset_map.consolidate import IndexState, IndexValue
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.section import topic_id_bytes
from replicator.offset_map.topic import MAP_PARTITIONS, PAGE_PARTITIONS
from replicator.wire.committed_log import corrupt
from replicator.wire.holes import OffsetOutOfRange
from replicator.wire.map_index import MapIndexLog
from replicator.wire.partition_log import PartitionLog

LOOK_S = 1.0
BUSY_PART = 4
"""It works a quarter of the time at most: the lanes of the process have the rest of the interpreter."""
AGAIN_FIRST_S, AGAIN_MAX_S = 2.0, 300.0
FETCH_BYTES, BATCH_BYTES_MAX = 64 * 1024, 16 * 1024 * 1024
VISIBLE_PAUSE_S = 0.02


class KafkaBlocks:
    """Implements `BlocksLog`: the map's topic on the target."""

    def __init__(self, flow: Flow, admin: ClusterAdmin) -> None:
        self._flow, self._admin, self._topic = flow, admin, names.offsets_topic(flow.name)
        self._ats = [Partition(self._topic, number) for number in range(MAP_PARTITIONS)]
        self._logs: dict[int, PartitionLog] = {}
        self._topic_id = self._fit_id = ""

    def bounds(self) -> BlockBounds | None:
        """See `BlocksLog`. Raises Incident `map_topic_unfit`."""
        info = self._admin.topics((self._topic,)).get(self._topic)
        if info is None:
            return None
        if info.topic_id != self._fit_id:
            check_map_topic(self._admin.topics((self._topic,), configs=True)[self._topic])
            self._fit_id = info.topic_id
        if info.topic_id != self._topic_id:
            self.close()
            self._topic_id = info.topic_id
        starts, stable = (self._admin.offsets(self._ats, end=end, committed_only=end) for end in (False, True))
        return BlockBounds(info.topic_id, [starts[at] for at in self._ats], [stable[at] for at in self._ats])

    def read(self, partition: int, first: int, end: int) -> tuple[list[tuple[int, bytes]], int]:
        """See `BlocksLog`."""
        at = self._ats[partition]
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = PartitionLog(self._flow, self._flow.target, at, self._topic_id)
        try:
            found = log.fetch_committed(first, FETCH_BYTES)
            batches = list(read_batches(found.records))
            kept = [it for it in committed_batches(batches, found.aborted) if isinstance(it, FetchedBatch)]
            values = [
                (record.offset, record.value or b"")
                for batch in kept
                for record in decode(batch.data, BATCH_BYTES_MAX)
                if first <= record.offset < end
            ]
        except OffsetOutOfRange:
            raise Retriable(f"{at} has nothing at offset {first} any more") from None
        except CorruptBatch as error:
            raise corrupt(at, first, error) from error
        if not batches or batches[-1].last_offset < first:
            raise Retriable(f"{at} shows nothing at offset {first}, and was stable up to {end}")
        return values, min(end, batches[-1].last_offset + 1)

    def delete(self, offsets: Mapping[int, int]) -> None:
        """See `BlocksLog`."""
        info = self._admin.topics((self._topic,)).get(self._topic)
        if info is None or info.topic_id != self._topic_id:
            raise Retriable(f"{self._topic} is not the topic any more whose blocks were consolidated")
        self._admin.delete_records({self._ats[number]: offset for number, offset in offsets.items()})

    def close(self) -> None:
        """Close its connections."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()


class KafkaIndex:
    """Implements `IndexStore`: the index's topic on the target, made when it is first needed."""

    def __init__(self, flow: Flow, admin: ClusterAdmin, spec: TopicSpec, log: structlog.stdlib.BoundLogger) -> None:
        self._flow, self._admin, self._spec, self._log = flow, admin, spec, log
        self._producer: TransactionalProducer | None = None
        self._reader: MapIndexLog | None = None
        self._ends: dict[int, int] = {}  # behind what the open transaction has written

    def fence(self) -> None:
        """See `IndexStore`."""
        self.close()
        info = self._made()
        self._reader = MapIndexLog(self._flow, info.name, info.topic_id)
        self._producer = TransactionalProducer(
            self._flow, properties.map_index_producer(self._flow), partial(_client_error, self._log)
        )
        self._producer.fence()

    def _made(self) -> TopicInfo:
        name = self._spec.name
        info = self._admin.topics((name,), configs=True).get(name)
        if info is None:
            answer = self._admin.create_topics([self._spec])[name]
            if isinstance(answer, ReplicatorError):
                raise answer
            self._admin.until(lambda: name in self._admin.topics((name,)))
            info = self._admin.topics((name,), configs=True).get(name)
        if info is None:
            raise Retriable(f"cluster {self._flow.target.name!r} doesn't show {name} yet")
        check_index_topic(info)
        return info

    def read(self) -> IndexState | None:
        """See `IndexStore`."""
        reader = self._reading()
        root = reader.root()
        if root is None:
            return None
        found = [reader.directory(number, root) for number in range(PAGE_PARTITIONS)]
        return IndexState(root, [it for it, _, _ in found], [(size, records) for _, size, records in found])

    def page(self, partition: int, offset: int) -> bytes:
        """See `IndexStore`."""
        return self._reading().page(partition, offset)

    def _reading(self) -> MapIndexLog:
        assert self._reader is not None
        return self._reader

    def _writing(self) -> TransactionalProducer:
        assert self._producer is not None
        return self._producer

    def begin(self) -> None:
        """See `IndexStore`."""
        self._ends = {}
        self._writing().begin()

    def write(self, values: Iterable[IndexValue]) -> list[int]:
        """See `IndexStore`."""
        stands = write_acknowledged(self._writing(), self._spec.name, values)
        for partition, offset in stands:
            self._ends[partition] = max(self._ends.get(partition, 0), offset + 1)
        return [offset for _, offset in stands]

    def commit(self) -> None:
        """See `IndexStore`."""
        self._writing().end()
        ats = {Partition(self._spec.name, number): end for number, end in self._ends.items()}

        def visible() -> bool:
            stable = self._admin.offsets(ats, end=True, committed_only=True)
            return all(stable[at] >= end for at, end in ats.items())

        if not self._admin.until(visible, VISIBLE_PAUSE_S):
            raise Retriable(f"{self._spec.name} doesn't show what was committed")

    def delete(self, offsets: Mapping[int, int]) -> None:
        """See `IndexStore`."""
        self._admin.delete_records({Partition(self._spec.name, number): at for number, at in offsets.items()})

    def close(self) -> None:
        """Close its connections; an open transaction is ended by the next fence."""
        if self._producer is not None:
            self._producer.close()
        if self._reader is not None:
            self._reader.close()
        self._producer = self._reader = None


class TargetLogStarts:
    """Implements `LogStarts`: asks both clusters, with connections of its own."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def log_starts(self) -> dict[SectionKey, int]:
        """See `LogStarts`."""
        flow = self._flow
        with ControlPlane(flow) as clusters:
            clusters.connect()
            sources = clusters.list_source(configs=False)
            targets = clusters.list_target(sources)
            routes = {
                (topic_id_bytes(info.topic_id), number): Partition(routing.target_topic(flow, name), number)
                for name, info in sources.items()
                for number in range(info.partitions)
            }
            counts = {name: info.partitions for name, info in targets.items()}
            there = [at for at in routes.values() if at.partition < counts.get(at.topic, 0)]
            starts = clusters.target.offsets(there, end=False)
        return {key: starts[at] for key, at in routes.items() if at in starts}


class MapIndexWatch:
    """The thread of one flow. It ends when `ended` is set."""

    def __init__(
        self,
        consolidation: MapConsolidation,
        ended: threading.Event,
        log: structlog.stdlib.BoundLogger,
        topic: str,
    ) -> None:
        self._consolidation, self._ended, self._log, self._topic = consolidation, ended, log, topic
        self._told = ""  # why it isn't done, as it was told last
        self._denied = ""
        self._backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)

    def run(self, failed: Callable[[BaseException], None], close: Callable[[], None] = lambda: None) -> None:
        """Run until it has ended; this is the thread's work. `failed` is told of a bug, which ends it; `close`: called
        at its end.
        """
        try:
            pause_s = LOOK_S
            while not self._ended.wait(pause_s):
                pause_s = self.look()
        except BaseException as error:  # noqa: BLE001 - the flow classifies it
            failed(error)
        finally:
            close()

    def look(self) -> float:
        """Run one round; return how long to wait for the next one."""
        begun_s = time.monotonic()
        try:
            result = self._consolidation.round()
        except ReplicatorError as error:
            self._not_done(error)
            return self._backoff.next_s()
        self._done(result)
        return max(0.0 if result.more else LOOK_S, (BUSY_PART - 1) * (time.monotonic() - begun_s))

    def _not_done(self, error: ReplicatorError) -> None:
        if str(error) == self._told:
            return
        self._told = str(error)
        if isinstance(error, Incident):
            tell_incident(self._log, error)
        else:
            self._log.warning("map_not_consolidated", topic=self._topic, reason=str(error))

    def _done(self, result: RoundResult) -> None:
        if self._told:
            self._log.info("map_consolidated_again", topic=self._topic)
        self._told = ""
        self._backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        if result.lost:
            tell_incident(self._log, Incident("map_lost", result.lost, topic=self._topic))
        denied = "" if result.denied is None else str(result.denied)
        if denied and denied != self._denied:
            self._log.warning("map_not_deleted", topic=self._topic, reason=denied)
        if denied or result.deleted:
            self._denied = denied


def consolidation_of(
    flow: Flow, spec: TopicSpec, log: structlog.stdlib.BoundLogger
) -> tuple[MapConsolidation, Callable[[], None]]:
    """Make what consolidates a flow's map, and what closes its connections."""
    admin = ClusterAdmin(
        flow.target,
        topics_of(flow, flow.target, "offsets-index", kept_s=flow.limits.discovery_interval_ms / 2000),
        request_timeout_ms=flow.limits.request_timeout_ms,
        connect_timeout_ms=flow.limits.connect_timeout_ms,
    )
    blocks, index = KafkaBlocks(flow, admin), KafkaIndex(flow, admin, spec, log)

    def close() -> None:
        with closing(admin), closing(blocks), closing(index):
            pass

    return MapConsolidation(blocks, index, TargetLogStarts(flow), RealClock()), close


def watch_map_index(
    flow: Flow,
    ended: threading.Event,
    log: structlog.stdlib.BoundLogger,
    failed: Callable[[BaseException], None],
) -> None:
    """Start the thread, if the flow's map is to be consolidated."""
    spec = index_topic_of(flow)
    if spec is None:
        return
    consolidation, close = consolidation_of(flow, spec, log)
    watch = MapIndexWatch(consolidation, ended, log, names.offsets_topic(flow.name))
    threading.Thread(target=watch.run, args=(failed, close), name=f"{flow.name}.offsets-index", daemon=True).start()


def _client_error(log: structlog.stdlib.BoundLogger, text: str) -> None:
    log.info("client", detail=text)
