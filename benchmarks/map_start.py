"""`python -m benchmarks.map_start`: how long lanes take at their start to find that the offset map has what their
positions say.

One lane after the other, as one process would at worst, reads its newest block from a real Kafka broker and compares it
with its positions, as `lane.map_check` does. The block has a section of each of so many partitions: few where records
come to few of them, all where they come to all. Figures go to benchmarks/results/map_start.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console

from benchmarks import report
from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.map_index import made
from integration_tests.harness import clients
from integration_tests.spark.planted import EPOCH_MS
from replicator.config import Flow
from replicator.lane.map_check import check_newest
from replicator.lane.partition import Copying, LanePartition
from replicator.lane.ports import LogEndsByPartition
from replicator.model import names
from replicator.model.checkpoint import Evidence, Position
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.offset_map.block import encode_blocks
from replicator.offset_map.section import MapSection, topic_id_bytes, topic_id_text
from replicator.wire.map_log import WireMapLog

RESULTS = report.RESULTS / "map_start"
OF_TOPIC, RECORDS = 1_000, 1_000
LANES = 8


def lane_partitions(lane: int, count: int, newest: int, map_topic_id: str) -> dict[Partition, LanePartition]:
    """A lane's partitions with their positions: `newest` of them moved with its last block."""
    found = {}
    for number in range(count):
        topic_id = topic_id_text(b"%016d" % (lane * 1_000 + number // OF_TOPIC))
        at = Partition(f"topic-{lane}-{number // OF_TOPIC}", number % OF_TOPIC)
        evidence = Evidence(
            generation=1,
            owner="bench:1",
            source_topic=at.topic,
            source_cluster="source",
            source_topic_id=topic_id,
            target_topic_id=topic_id,
            log_start=0,
            next_target_offset=RECORDS,
            count=RECORDS,
            map_topic_id=map_topic_id,
            map_partition=lane,
            map_offset=1 if number < newest else 0,
        )
        route = Route(at, at, topic_id, topic_id)
        found[at] = LanePartition(route, Position(RECORDS, evidence), state=Copying())
    return found


def blocks(lane: int, partitions: Mapping[Partition, LanePartition], newest: int) -> list[bytes]:
    """The last transaction of a lane."""

    def sections() -> Iterator[MapSection]:
        for at, it in list(partitions.items())[:newest]:
            yield MapSection(
                source_topic_id=topic_id_bytes(it.route.source_topic_id),
                partition=at.partition,
                before=RECORDS - 1,
                after=RECORDS,
                first_target=RECORDS - 1,
                count=RECORDS,
                runs=((RECORDS - 1, RECORDS),),
            )

    return encode_blocks(1, lane, EPOCH_MS, sections())


def written(kafka: Kafka, flow: Flow, newest: Mapping[int, list[bytes]]) -> None:
    """Write a block that nothing names any more, and behind it each lane's last one, in transactions."""
    topic = names.offsets_topic(flow.name)
    producer = clients.transactional(kafka.bootstrap, "bench-map-start")
    for last in (False, True):
        producer.begin_transaction()
        for lane, values in newest.items():
            for value in values if last else encode_blocks(1, lane, EPOCH_MS, ()):
                producer.produce(topic, value, partition=lane, timestamp=EPOCH_MS)
        producer.commit_transaction(clients.TIMEOUT_S)


def one(kafka: Kafka, directory: Path, partitions: int, newest: int, runs: int) -> list[float]:
    """Seconds of all lanes together, `runs` times."""
    _, flow, _ = made(kafka, directory, f"newest-{newest}")
    topic = names.offsets_topic(flow.name)
    topic_id = topic_id_text(clients.topic_id(kafka.bootstrap, topic).bytes)
    lanes = [lane_partitions(lane, partitions // LANES, newest, topic_id) for lane in range(LANES)]
    written(kafka, flow, {lane: blocks(lane, held, newest) for lane, held in enumerate(lanes)})
    ends: LogEndsByPartition = {}
    for lane in range(LANES):
        end = clients.stable_end(kafka.bootstrap, topic, lane)
        ends[Partition(topic, lane)] = LogEnds(topic_id, 0, end, end)
    return [_checked(flow, topic, topic_id, lanes, ends) for _ in range(runs)]


def _checked(
    flow: Flow,
    topic: str,
    topic_id: str,
    lanes: Sequence[Mapping[Partition, LanePartition]],
    ends: LogEndsByPartition,
) -> float:
    began_s = time.monotonic()
    for held in lanes:
        with closing(WireMapLog(flow)) as log:
            found = check_newest(held, topic, topic_id, ends, log)
        if found.broken or found.lost or found.unknown:
            raise RuntimeError(f"{found.lost} {found.unknown}")
    return time.monotonic() - began_s


@click.command()
@click.option("--partitions", default=100_000, show_default=True, help=f"Of all {LANES} lanes together.")
@click.option("--newest", default=(100, 12_500), multiple=True, show_default=True, help="Partitions of a last block.")
@click.option("--runs", default=5, show_default=True, help="The median counts.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(partitions: int, newest: tuple[int, ...], runs: int, out: Path | None) -> None:
    """Measure what the offset map adds to a start."""
    console, started, load = Console(), datetime.now(UTC), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as name, Kafka.running("both") as kafka:
        cases: list[dict[str, Any]] = [
            {"newest": each, "seconds": one(kafka, Path(name), partitions, each, runs)} for each in newest
        ]
    for case in cases:
        case["median_s"] = median(case["seconds"])
        console.print(case)
    settings = {
        "partitions": partitions,
        "lanes": LANES,
        "runs": runs,
        "started": started.isoformat(timespec="seconds"),
    }
    body = {"machine": machine(), "load": load, "settings": settings, "cases": cases}
    path = write_result(out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", body)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
