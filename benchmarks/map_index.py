"""`python -m benchmarks.map_index`: how large a consolidated offset map is, and how long `translate` takes by it.

*size*: blocks of transactions of one record are written by hand, with the flow's encoder, each a batch of its own, and
consolidated by what `run` consolidates with; then half of the target's log is gone, and it is pruned. Sizes are those
of the topics' directories on a real Kafka broker.
*translate*: pages are written by hand for as many transactions as would take so many bytes in blocks, eight drawn
ones in turns, with the last 256 blocks behind them; the command runs in a process of its own, the function in this one.
Times between transactions and gaps between source offsets are drawn. Figures go to benchmarks/results/map_index.
"""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
import structlog
from confluent_kafka import Producer, TopicPartition
from rich.console import Console

from benchmarks import report
from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka, docker
from benchmarks.proof import measured
from integration_tests.harness import clients
from integration_tests.harness.kafka_container import DATA
from integration_tests.harness.replicator import FlowFile
from integration_tests.spark.planted import EPOCH_MS, open_flow
from replicator import config
from replicator.config import Flow
from replicator.flow import map_consolidation
from replicator.flow.map_consolidation import MapConsolidation
from replicator.flow.map_index_writer import KafkaIndex, consolidation_of
from replicator.flow.offsets_topic import index_topic_of
from replicator.flow.topics import ControlPlane, topics_of
from replicator.kafka.admin import ClusterAdmin, TopicSpec
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Evidence
from replicator.model.partition import Partition
from replicator.offset_map.block import encode_blocks
from replicator.offset_map.consolidate import ref_of
from replicator.offset_map.directory import (
    EntryChange,
    IndexRoot,
    PagePartition,
    PageRef,
    PartitionEntry,
    encode_changes,
    encode_root,
)
from replicator.offset_map.newest import SectionKey
from replicator.offset_map.page import PAGE_BYTES, MapPage, TimedSection, encode_page
from replicator.offset_map.section import MapSection, topic_id_bytes
from replicator.offset_map.topic import CONFIGS, MAP_PARTITIONS, ROOTS, index_partition
from replicator.offset_map.varints import put
from replicator.translation.answers import OffsetToTranslate
from replicator.translation.translate import translate

RESULTS = report.RESULTS / "map_index"
MIB = 1024 * 1024
RAW_BYTES = 275
"""Of a transaction of one record in the log of blocks, with its batch and its marker."""
ONE_EACH = {"batch_num_messages": 1, "linger_ms": 0, "queue_buffering_max_messages": 500_000}
TEMPLATES, PAGES_AT_ONCE = 8, 64


class SingleRecordTransactions:
    """Transactions of one record, as they follow one another."""

    def __init__(self, topic_id: bytes, seed: int = 1) -> None:
        self.topic_id, self._drawn = topic_id, random.Random(seed)
        self.position = self.copied = 0
        self.commit_ms = EPOCH_MS

    def following(self) -> TimedSection:
        """The next one: most follow at once, some behind a marker of the source; 80 to 130 ms later."""
        before, gap = self.position, self._drawn.random() < 0.2
        self.position = before + 1 + gap
        self.copied += 1
        self.commit_ms += self._drawn.randrange(80, 130)
        section = MapSection(
            source_topic_id=self.topic_id,
            partition=0,
            before=before,
            after=self.position,
            leader_epoch=0,
            log_start=0,
            first_target=2 * self.copied - 2,
            count=self.copied,
            runs=((before, before + 1),),
            base=before == 0,
        )
        return TimedSection(1, self.commit_ms, section)


class HalfGone:
    """In the place of `TargetLogStarts`: the target's log begins at this offset."""

    def __init__(self, key: SectionKey, start: int) -> None:
        self._found = {key: start}

    def log_starts(self) -> dict[SectionKey, int]:
        """See `LogStarts`."""
        return self._found


def made(kafka: Kafka, directory: Path, name: str) -> tuple[FlowFile, Flow, str]:
    """A flow of one partition with its topics; the source topic's id."""
    for topic in (f"{name}.in", f"{name}.in.copy"):
        clients.create_topic(kafka.bootstrap, topic)
    clients.create_topic(kafka.bootstrap, names.offsets_topic(name), MAP_PARTITIONS, dict(CONFIGS))
    file = FlowFile(directory, name, kafka.bootstrap, kafka.bootstrap, topics=[f"{name}.in"], consolidate_map=True)
    flow = config.load(file.path).flows[file.flow]
    open_flow(flow, kafka.bootstrap, {f"{name}.in": 1})
    with ControlPlane(flow) as clusters:
        clusters.connect()
        return file, flow, clusters.list_source()[f"{name}.in"].topic_id


def written_blocks(kafka: Kafka, flow: Flow, sections: Iterator[TimedSection]) -> None:
    """A block for each, in the partition of lane 0."""
    producer: Producer = clients.producer(kafka.bootstrap, **ONE_EACH)
    for one in sections:
        (value,) = encode_blocks(1, 0, one.commit_ms, [one.section])
        while True:
            try:
                producer.produce(names.offsets_topic(flow.name), value, partition=0, timestamp=EPOCH_MS)
                break
            except BufferError:
                producer.poll(0.05)
    while producer.flush(clients.TIMEOUT_S):
        pass


def size_mib(kafka: Kafka, topic: str) -> float:
    """Of the files of all its partitions, without indexes, which Kafka allocates beforehand."""
    said = docker("exec", kafka.name, "sh", "-c", f"cat {DATA}/{topic}-[0-9]*/*.log | wc -c")
    return int(said) / MIB


def spec_of(flow: Flow) -> TopicSpec:
    """The index's topic."""
    spec = index_topic_of(flow)
    if spec is None:
        raise RuntimeError("the flow has no index")
    return spec


def consolidated(consolidation: MapConsolidation) -> int:
    """How many blocks went into the index."""
    blocks = quiet = 0
    while quiet < 2:
        done = consolidation.round(all_of_it=True).blocks
        blocks, quiet = blocks + done, 0 if done else quiet + 1
    return blocks


def sizes(kafka: Kafka, directory: Path, transactions: int, console: Console) -> dict[str, Any]:
    """Write, consolidate, prune."""
    _, flow, topic_id = made(kafka, directory, "sizes")
    of = SingleRecordTransactions(topic_id_bytes(topic_id))
    written_blocks(kafka, flow, (of.following() for _ in range(transactions)))
    blocks, index = names.offsets_topic(flow.name), names.offsets_index_topic(flow.name)
    figures: dict[str, Any] = {"transactions": transactions, "blocks_mib": size_mib(kafka, blocks)}
    console.print(figures)
    map_consolidation.PARTITION_BYTES_MAX = map_consolidation.BLOCKS_MAX * 100  # as if it had run beside the lanes
    consolidation, close = consolidation_of(flow, spec_of(flow), structlog.get_logger())
    began_s, cpu_s = time.monotonic(), time.process_time()
    try:
        if consolidated(consolidation) != transactions:
            raise RuntimeError("not all blocks were consolidated")
        figures |= {
            "seconds": time.monotonic() - began_s,
            "cpu_us_each": (time.process_time() - cpu_s) * 1e6 / transactions,
        }
        figures["index_mib"] = size_mib(kafka, index)
        consolidation._targets = HalfGone((topic_id_bytes(topic_id), 0), of.copied)
        consolidation._pruned_s = -1e9
        written_blocks(kafka, flow, iter([of.following()]))
        consolidated(consolidation)
        for _ in range(200):  # makes room by and by
            written_blocks(kafka, flow, iter([of.following()]))
            consolidation.round(all_of_it=True)
    finally:
        close()
    figures["live_mib"] = live_mib(flow)
    figures["pruned_index_mib"], figures["blocks_left_mib"] = size_mib(kafka, index), size_mib(kafka, blocks)
    return figures


def live_mib(flow: Flow) -> float:
    """Bytes of pages that are in use, and of the directories that name them, before compression."""
    with ExitStack() as stack:
        admin = admin_of(flow)
        stack.callback(admin.close)
        index = KafkaIndex(flow, admin, spec_of(flow), structlog.get_logger())
        stack.callback(index.close)
        index.fence()
        state = index.read()
        if state is None:
            raise RuntimeError("there is no index")
        return (sum(state.live) + sum(size for size, _ in state.since)) / MIB


def admin_of(flow: Flow) -> ClusterAdmin:
    """Of the target."""
    asks = topics_of(flow, flow.target, "bench")
    return ClusterAdmin(flow.target, asks, request_timeout_ms=60_000, connect_timeout_ms=60_000)


class PageTemplate:
    """A page of drawn transactions, put at any place: but for its first section it says only differences."""

    def __init__(self, topic_id: bytes, seed: int) -> None:
        self.of = SingleRecordTransactions(topic_id, seed)
        self._page = MapPage(topic_id, 0)
        while 5 * len(self._page.sections) < PAGE_BYTES:
            self._page.add(self.of.following())
        data = encode_page(self._page)
        self._rest = data[len(self._begun(self._page.sections[0])) :]
        self._ref = ref_of(self._page, len(data), None)

    def _begun(self, first: TimedSection) -> bytes:
        """All up to the end of the first section."""
        alone = MapPage(self._page.source_topic_id, 0, [first])
        count = bytearray()
        put(count, len(self._page.sections))
        one, header = encode_page(alone), 2 + 16 + 1 + 8
        return one[:header] + bytes(count) + one[header + 1 : -1]

    def at(self, behind: SingleRecordTransactions) -> tuple[bytes, PageRef]:
        """The page behind other transactions, which count these then; and its description."""
        by, targets, ms = behind.position, 2 * behind.copied, behind.commit_ms - EPOCH_MS
        first = self._page.sections[0]
        section = replace(
            first.section,
            before=by,
            after=first.section.after + by,
            first_target=targets,
            count=1 + behind.copied,
            runs=((by, by + 1),),
            base=by == 0,
        )
        value = self._begun(TimedSection(1, first.commit_ms + ms, section)) + self._rest
        ref = self._ref._replace(bytes=len(value), before=by, after=self._ref.after + by, first_source=by)
        ref = ref._replace(first_target=targets, target_low=targets, target_end=self._ref.target_end + targets)
        behind.position, behind.copied = behind.position + self.of.position, behind.copied + self.of.copied
        behind.commit_ms += self.of.commit_ms - EPOCH_MS
        return value, ref._replace(first_ms=first.commit_ms + ms, last_ms=behind.commit_ms)


def written_index(flow: Flow, of: SingleRecordTransactions, transactions: int) -> None:
    """Put transactions into pages without blocks."""
    key = of.topic_id, 0
    number, templates = index_partition(key), [PageTemplate(of.topic_id, seed) for seed in range(TEMPLATES)]
    with ControlPlane(flow) as clusters:
        clusters.connect()
        info = clusters.offsets_topic()
        if info is None:
            raise RuntimeError("the flow has no map")
    entry = PartitionEntry(1)
    with ExitStack() as stack:
        admin = admin_of(flow)
        stack.callback(admin.close)
        index = KafkaIndex(flow, admin, spec_of(flow), structlog.get_logger())
        stack.callback(index.close)
        index.fence()
        while of.copied < transactions:
            made = [templates[each % TEMPLATES].at(of) for each in range(PAGES_AT_ONCE)]
            index.begin()
            offsets = index.write([(number, value) for value, _ in made])
            index.commit()
            refs = [ref._replace(offset=offset) for (_, ref), offset in zip(made, offsets, strict=True)]
            entry.replace(len(entry), refs)
        entry.commit_ms, entry.sections = of.commit_ms, of.copied
        root = IndexRoot(topic_id_bytes(info.topic_id), of.commit_ms, 1)
        index.begin()
        offsets = index.write([(number, value) for value in encode_changes([EntryChange(key, 0, entry)], voids=True)])
        root.partitions[number] = PagePartition(offsets[0], offsets[-1] + 1, 0, sum(ref.bytes for ref in entry))
        index.write([(ROOTS, encode_root(root))])
        index.commit()


def with_position(kafka: Kafka, flow: Flow, of: SingleRecordTransactions) -> None:
    """Commit the position behind the last transaction."""
    topic = flow.topics[0]
    with ControlPlane(flow) as clusters:
        here, _ = clusters.connect()
        blocks = clusters.offsets_topic()
        source, target = clusters.list_source()[topic], clusters.list_target([topic])[f"{topic}.copy"]
    evidence = Evidence(
        generation=1,
        owner=NOBODY,
        source_topic=topic,
        source_cluster=here.cluster_id,
        source_topic_id=source.topic_id,
        target_topic_id=target.topic_id,
        log_start=0,
        next_target_offset=2 * of.copied,
        count=of.copied,
        map_topic_id=blocks.topic_id if blocks else "",
        map_partition=0,
        map_offset=0,
    )
    at = TopicPartition(f"{topic}.copy", 0, of.position, metadata=checkpoint.encode(evidence))
    client = clients.consumer(kafka.bootstrap, group_id=names.position_group(flow.name))
    client.commit(offsets=[at], asynchronous=False)
    client.close()


def translations(kafka: Kafka, directory: Path, gigabytes: float, runs: int, console: Console) -> dict[str, Any]:
    """`translate` of offsets of any age."""
    transactions = int(gigabytes * 1e9 / RAW_BYTES)
    file, flow, topic_id = made(kafka, directory, "large")
    of = SingleRecordTransactions(topic_id_bytes(topic_id))
    written_index(flow, of, transactions)
    figures: dict[str, Any] = {"as_blocks_gb": gigabytes, "transactions": transactions}
    figures["index_mib"] = size_mib(kafka, names.offsets_index_topic(flow.name))
    written_blocks(kafka, flow, (of.following() for _ in range(256)))
    with_position(kafka, flow, of)
    console.print(figures)
    at = Partition(flow.topics[0], 0)
    asked = [int(of.position * part) for part in (0.01, 0.3, 0.5, 0.77, 0.999)]
    taken, cpu_s = [], list[float]()
    for offset in asked:
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        (answer,) = translate(flow, [OffsetToTranslate(at, offset)])
        taken.append(time.monotonic() - began_s)
        cpu_s.append(time.process_time() - began_cpu_s)
        if answer.offset is None:
            raise RuntimeError(f"{answer}")
    figures["function"] = {"seconds": median(taken), "cpu_s": median(cpu_s), "all_seconds": taken, "all_cpu_s": cpu_s}
    commands = [
        measured(file, ("translate", "--topic", at.topic, "--partition", "0", "--offset", str(offset)))
        for offset in asked[:runs]
    ]
    return figures | {name: median(one[name] for one in commands) for name in commands[0]} | {"runs": commands}


@click.command()
@click.option("--transactions", default=10_000_000, show_default=True, help="Of one record, for the size.")
@click.option("--gigabytes", default=10.0, show_default=True, help="That the large map would have in blocks.")
@click.option("--runs", default=3, show_default=True, help="Of the command; the median counts.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(transactions: int, gigabytes: float, runs: int, out: Path | None) -> None:
    """Measure the offset map's index."""
    console, started = Console(), datetime.now(UTC)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as name, Kafka.running("both") as kafka:
        if gigabytes:
            found["translate"] = translations(kafka, Path(name), gigabytes, runs, console)
            console.print(found["translate"])
        if transactions:
            found["size"] = sizes(kafka, Path(name), transactions, console)
            console.print(found["size"])
    settings = {"started": started.isoformat(timespec="seconds"), "load": os.getloadavg()[0]}
    path = write_result(
        out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", {"machine": machine(), "settings": settings, **found}
    )
    console.print(f"written to {path}")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        raise SystemExit(error.stderr) from error
