"""`python -m benchmarks.proof`: what `verify` and `reconcile --local` cost, by how many records a block of the map has.

Both sides and the map are written by hand, on one real Kafka broker, with the flow's encoders: a lane would take an
hour for as many transactions of one record. Each command runs in a process of its own; what it costs to start is
shown by a flow of one record, and not taken off. Figures go to benchmarks/results/proof.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
from confluent_kafka import Producer, TopicPartition
from rich.console import Console

from benchmarks import report
from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.systems import HERE, rss_peak_mib
from integration_tests.harness import clients
from integration_tests.harness.replicator import FlowFile
from integration_tests.spark.planted import EPOCH_MS, open_flow
from replicator import config
from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Evidence
from replicator.offset_map.block import encode_blocks
from replicator.offset_map.section import DIGEST_BYTES, RECORDS_DIGEST, MapSection, topic_id_bytes
from replicator.offset_map.topic import CONFIGS, MAP_PARTITIONS

RESULTS = report.RESULTS / "proof"
CASES = ((1, 1), (1_000_000, 1), (2_000_000, 100), (2_000_000, 1_000))
"""Records, and how many of them a block of the map has."""
COMMAND = "import sys; sys.modules['hypothesis'] = None; from cli.main import entry; entry()"
"""As a user has it, who has no hypothesis: kio imports it where it is there, which takes a tenth of a second."""
VALUE = b"x" * 400
OTHER = b"y" * 400
COMMANDS = {"verify": ("verify",), "reconcile --local": ("reconcile", "--local")}
SAMPLE_S = 0.02
QUEUE = {"queue_buffering_max_messages": 500_000, "linger_ms": 50, "batch_size": 500_000}


def written(kafka: Kafka, directory: Path, name: str, records: int, each: int, *, differing: int = 0) -> FlowFile:
    """A flow of one partition that has copied all its records, with a section of the map for each `each` of them.

    Args:
        differing: so many copies have another value, evenly spread.
    """
    topic = f"{name}.in"
    for one in (topic, f"{topic}.copy"):
        clients.create_topic(kafka.bootstrap, one)
    file = FlowFile(directory, name, kafka.bootstrap, kafka.bootstrap, topics=[topic])
    flow = config.load(file.path).flows[file.flow]
    clients.create_topic(kafka.bootstrap, names.offsets_topic(name), MAP_PARTITIONS, dict(CONFIGS))
    open_flow(flow, kafka.bootstrap, {topic: 1})
    evidence = _evidence(flow, topic, records)
    _produce(kafka, topic, (VALUE for _ in range(records)))
    step = records // differing if differing else records + 1
    _produce(kafka, f"{topic}.copy", (OTHER if number % step == step - 1 else VALUE for number in range(records)))
    _produce(kafka, names.offsets_topic(name), _blocks(evidence, records, each))
    position = TopicPartition(f"{topic}.copy", 0, records, metadata=checkpoint.encode(evidence))
    client = clients.consumer(kafka.bootstrap, group_id=names.position_group(name))
    client.commit(offsets=[position], asynchronous=False)
    client.close()
    return file


def _evidence(flow: Flow, topic: str, records: int) -> Evidence:
    with ControlPlane(flow) as clusters:
        here, _ = clusters.connect()
        blocks = clusters.offsets_topic()
        source, target = clusters.list_source()[topic], clusters.list_target([topic])[f"{topic}.copy"]
    if blocks is None:
        raise RuntimeError("the flow has no map")
    return Evidence(
        generation=1,
        owner=NOBODY,
        source_topic=topic,
        source_cluster=here.cluster_id,
        source_topic_id=source.topic_id,
        target_topic_id=target.topic_id,
        log_start=0,
        next_target_offset=records,
        count=records,
        map_topic_id=blocks.topic_id,
        map_partition=0,
        map_offset=0,
    )


def _blocks(evidence: Evidence, records: int, each: int) -> Iterator[bytes]:
    topic_id = topic_id_bytes(evidence.source_topic_id)
    for first in range(0, records, each):
        end = min(first + each, records)
        section = MapSection(
            source_topic_id=topic_id,
            partition=0,
            before=first,
            after=end,
            leader_epoch=0,
            log_start=0,
            first_target=first,
            count=end,
            digest_kind=RECORDS_DIGEST,
            digest=bytes(DIGEST_BYTES),
            runs=((first, end),),
            base=not first,
        )
        yield from encode_blocks(1, 0, EPOCH_MS, [section])


def _produce(kafka: Kafka, topic: str, values: Iterator[bytes]) -> None:
    producer: Producer = clients.producer(kafka.bootstrap, **QUEUE)
    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=0, timestamp=EPOCH_MS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(clients.TIMEOUT_S):
        raise RuntimeError(f"{topic} was not written")


def measured(file: FlowFile, command: tuple[str, ...]) -> dict[str, float]:
    """One run of a command, which must find nothing wrong."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *command, "-c", str(file.path), "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=HERE.parent,
    )
    peak = 0.0
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with contextlib.suppress(StopIteration):  # it has ended meanwhile
            peak = max(peak, rss_peak_mib(process.pid))
        time.sleep(SAMPLE_S)
    _, status, used = os.wait4(process.pid, 0)  # its maxrss is that of this process, where Linux has forked it
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command} ended with exit code {process.returncode}")
    seconds = time.monotonic() - began
    return {"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "peak_mib": peak}


@click.command()
@click.option("--case", "cases", type=(int, int), multiple=True, default=CASES, show_default=True)
@click.option("--runs", default=3, show_default=True, help="The median counts.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(cases: tuple[tuple[int, int], ...], runs: int, out: Path | None) -> None:
    """Measure proofs by the offset map."""
    console, started = Console(), datetime.now(UTC)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as name, Kafka.running("both") as kafka:
        for number, (records, each) in enumerate(cases):
            file = written(kafka, Path(name), f"proof{number}", records, each)
            for command, words in COMMANDS.items():
                taken = [measured(file, words) for _ in range(runs)]
                figures = {name: median(one[name] for one in taken) for name in taken[0]}
                case = {"command": command, "records": records, "records_in_block": each}
                rate = {"records_per_s": records / figures["seconds"], "load": os.getloadavg()[0]}
                found.append({**case, **figures, **rate, "runs": taken})
                console.print(found[-1])
    settings = {"runs": runs, "value_bytes": len(VALUE), "started": started.isoformat(timespec="seconds")}
    path = write_result(
        out or RESULTS / f"{started:%Y-%m-%d-%H%M}.json", {"machine": machine(), "settings": settings, "cases": found}
    )
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
