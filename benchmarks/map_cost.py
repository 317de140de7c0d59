"""`python -m benchmarks.map_cost`: what the offset map costs a worker, beside the same worker without it.

Both copy the same backlogs between the same two real Kafka brokers, in pairs whose sides change places. The first pair
of each case is dropped. Counted is the CPU time of the whole process, from its start to its stop: rates say nothing on
a machine that does other things, and this says the less the more it does. So each side is also compared with itself.
Figures go to benchmarks/results/map_cost.
"""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from benchmarks import cases, load, report
from benchmarks.__main__ import machine
from benchmarks.cases import Bench, Figures
from benchmarks.clusters import Kafka
from benchmarks.pairs import commit
from benchmarks.systems import HERE, Eos, cpu_s
from replicator.offset_map.block import decode_block
from replicator.offset_map.topic import MAP_PARTITIONS

RESULTS = report.RESULTS / "map_cost"
SIDES = {"with": "benchmarks.with_map", "without": "benchmarks.without_map", "again": "benchmarks.without_map"}
GAP_EVERY = 10


class Counted(Eos):
    """A worker whose CPU time is taken at its stop."""

    cpu_s = 0.0

    def stop(self) -> None:
        """See System."""
        self.cpu_s = cpu_s(self.pid())
        super().stop()


def backlog_with_gaps(bootstrap: str, topic: str, records: int) -> None:
    """As `load.backlog`, with the marker of a transaction behind each `GAP_EVERY` records of a partition."""
    load.create(bootstrap, topic)

    def write(partition: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.{partition}"})
        producer.init_transactions(30)
        for number in range(records):
            if number // load.RUN_RECORDS % load.PARTITIONS == partition:
                if number % GAP_EVERY == 0:
                    producer.begin_transaction()
                producer.produce(topic, b"x" * (load.RECORD_BYTES - 16), b"%016d" % number, partition)
                if number % GAP_EVERY == GAP_EVERY - 1:
                    producer.commit_transaction(30)

    with ThreadPoolExecutor(load.PARTITIONS) as pool:
        list(pool.map(write, range(load.PARTITIONS)))


def map_size(bootstrap: str, flow_topic: str) -> Figures:
    """How many bytes the blocks of a flow have, uncompressed, how many sections and runs."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True})
    reader.assign([TopicPartition(flow_topic, number, 0) for number in range(MAP_PARTITIONS)])
    left, found = MAP_PARTITIONS, {"map_bytes": 0.0, "sections": 0.0, "runs": 0.0, "blocks": 0.0}
    while left:
        message = reader.poll(10)
        assert message is not None
        if message.error() is not None:
            left -= 1
            continue
        value = message.value()
        assert isinstance(value, bytes)
        sections = decode_block(value).sections
        found["map_bytes"] += len(value)
        found["blocks"] += 1
        found["sections"] += len(sections)
        found["runs"] += sum(len(section.runs) for section in sections)
    reader.close()
    return found


class MapCost:
    """Measures one side of a case at a time."""

    def __init__(self, bench: Bench, records: int, gappy: int, seconds: float) -> None:
        self._bench, self._seconds = bench, seconds
        self._backlogs = {"dense": (cases.topic_name("dense"), records), "gaps": (cases.topic_name("gaps"), gappy)}
        load.backlog(bench.source.bootstrap, self._backlogs["dense"][0], records)
        backlog_with_gaps(bench.source.bootstrap, self._backlogs["gaps"][0], gappy)

    def _worker(self, topic: str, side: str) -> Counted:
        return Counted(self._bench.source, self._bench.target, topic, self._bench.directory, module=SIDES[side])

    def figures(self, case: str, side: str) -> Figures:
        """CPU time for each record, and with the map its size."""
        if case == "steady":
            topic, records = cases.topic_name("steady"), int(self._seconds * 1_000)
            load.create(self._bench.source.bootstrap, topic)
            worker = self._worker(topic, side)
            cases.latency(self._bench, worker, topic, self._seconds, 1_000, 2.0)
            load.delete(self._bench.source.bootstrap, topic)
        else:
            topic, records = self._backlogs[case]
            worker = self._worker(topic, side)
            cases.whole(self._bench, worker, records)
        found = {"cpu_us_a_record": worker.cpu_s / records * 1e6}
        if side == "with":
            size = map_size(self._bench.target.bootstrap, f"__eos.{worker.flow}.offsets")
            found |= size | {"map_bytes_a_record": size["map_bytes"] / records}
        return found


def measured(cost: MapCost, pairs: int, console: Console) -> dict[str, list[dict[str, Figures]]]:
    """All pairs of all cases."""
    found: dict[str, list[dict[str, Figures]]] = {}
    for case in ("dense", "gaps", "steady"):
        found[case] = []
        for number in range(pairs + 1):
            pair = {side: cost.figures(case, side) for side in (sorted(SIDES) if number % 2 else sorted(SIDES)[::-1])}
            console.print(f"{datetime.now():%H:%M:%S}", case, number, pair, highlight=False)
            if number:
                found[case].append(pair)
    return found


def ratios(found: dict[str, list[dict[str, Figures]]], one: str, other: str) -> dict[str, list[float]]:
    """By case: the lowest, the median and the highest of the ratios of CPU time."""
    figure = "cpu_us_a_record"
    each = {case: sorted(it[one][figure] / it[other][figure] for it in of) for case, of in found.items()}
    return {case: [round(value, 3) for value in (it[0], median(it), it[-1])] for case, it in each.items()}


@click.command()
@click.option("--pairs", default=5, show_default=True, help="Pairs of each case, after one that is dropped.")
@click.option("--records", default=1_000_000, show_default=True, help="Records of the backlog without gaps.")
@click.option("--gappy", default=19_200, show_default=True, help=f"Records of the one with a gap every {GAP_EVERY}.")
@click.option("--seconds", default=8.0, show_default=True, help="How long 1,000 records/s are written.")
def main(pairs: int, records: int, gappy: int, seconds: float) -> None:
    """Compare workers with and without the offset map."""
    console, started, load_began = Console(width=200), datetime.now(UTC), os.getloadavg()
    with (
        tempfile.TemporaryDirectory(prefix="eos-bench-") as directory,
        Kafka.running("source") as source,
        Kafka.running("target") as target,
    ):
        cost = MapCost(Bench(source, target, Path(directory)), records, gappy, seconds)
        found = measured(cost, pairs, console)
    settings = {
        "started": started.isoformat(timespec="seconds"),
        "commit": commit(HERE.parent),
        "pairs": pairs,
        "records": {"dense": records, "gaps": gappy, "steady": int(seconds * 1_000)},
        "load_average": [round(load_began[0], 2), round(os.getloadavg()[0], 2)],
    }
    path = RESULTS / f"{started:%Y-%m-%d-%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    by_comparison = {
        "with_by_without": ratios(found, "with", "without"),
        "without_by_itself": ratios(found, "again", "without"),
    }
    body = {"machine": machine(), "settings": settings, "ratios": by_comparison, "pairs": found}
    path.write_text(json.dumps(body, indent=1) + "\n")
    console.print(by_comparison, f"written to {path}")


if __name__ == "__main__":
    main()
