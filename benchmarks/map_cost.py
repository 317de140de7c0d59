"""`python -m benchmarks.map_cost`: what the offset map costs a worker, beside the same worker without it.

Both copy the same backlogs between the same two real Kafka brokers, in pairs whose sides change places. The first pair
of each case is dropped. Measured are the CPU time of the whole process, from its start to its stop, the rate at which a
backlog is copied, and the latency at a steady rate; the latter two also where clusters are 100 ms of round trip away.
On a machine that does other things all of that says less: so each side is also compared with itself. Figures go to
benchmarks/results/map_cost.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from benchmarks import cases, load, report
from benchmarks.__main__ import machine, write_result
from benchmarks.cases import Bench, Figures
from benchmarks.clusters import Kafka
from benchmarks.many_partitions import Side
from benchmarks.pairs import commit
from benchmarks.systems import HERE, Eos, cpu_s
from replicator.offset_map.block import decode_block
from replicator.offset_map.topic import MAP_PARTITIONS

RESULTS = report.RESULTS / "map_cost"
SIDES = {"with": "benchmarks.with_map", "without": "benchmarks.without_map", "again": "benchmarks.without_map"}
GAP_EVERY = 10
FAR_S = 0.05
"""Of one direction."""
NEAR_CASES, FAR_CASES = ("dense", "gaps", "steady"), ("dense", "steady")
Pairs = dict[str, list[dict[str, Figures]]]


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

    def __init__(self, bench: Bench, worker: tuple[Kafka, Kafka], records: int, gappy: int, seconds: float) -> None:
        """`worker`: source and target as the worker comes to them."""
        self._bench, self._clusters, self._seconds = bench, worker, seconds
        self._backlogs = {"dense": (cases.topic_name("dense"), records), "gaps": (cases.topic_name("gaps"), gappy)}
        load.backlog(bench.source.bootstrap, self._backlogs["dense"][0], records)
        if gappy:
            backlog_with_gaps(bench.source.bootstrap, self._backlogs["gaps"][0], gappy)

    def _worker(self, topic: str, side: str) -> Counted:
        return Counted(*self._clusters, topic, self._bench.directory, module=SIDES[side])

    def figures(self, case: str, side: str) -> Figures:
        """CPU time for each record, rate or latency, and with the map its size."""
        if case == "steady":
            topic, records = cases.topic_name("steady"), int(self._seconds * 1_000)
            load.create(self._bench.source.bootstrap, topic)
            worker = self._worker(topic, side)
            found = cases.latency(self._bench, worker, topic, self._seconds, 1_000, 4.0)
            load.delete(self._bench.source.bootstrap, topic)
        else:
            topic, records = self._backlogs[case]
            worker = self._worker(topic, side)
            found = cases.whole(self._bench, worker, records)
        found |= {"cpu_us_a_record": worker.cpu_s / records * 1e6}
        if side == "with":
            size = map_size(self._bench.target.bootstrap, f"__eos.{worker.flow}.offsets")
            found |= size | {"map_bytes_a_record": size["map_bytes"] / records}
        return found


def measured(cost: MapCost, named: Sequence[str], pairs: int, console: Console) -> Pairs:
    """All pairs of these cases."""
    found: Pairs = {}
    for case in named:
        found[case] = []
        for number in range(pairs + 1):
            pair = {side: cost.figures(case, side) for side in (sorted(SIDES) if number % 2 else sorted(SIDES)[::-1])}
            console.print(f"{datetime.now():%H:%M:%S}", case, number, pair, highlight=False)
            if number:
                found[case].append(pair)
    return found


def compared(found: Pairs, one: str, other: str) -> dict[str, dict[str, list[float]]]:
    """By case and figure the lowest, the median and the highest: of rates and CPU time the ratio, of latency how many
    ms more."""
    by_case: dict[str, dict[str, list[float]]] = {}
    for case, pairs in found.items():
        each = {
            name: sorted(
                it[one][name] - it[other][name] if name.endswith("_ms") else it[one][name] / it[other][name]
                for it in pairs
            )
            for name in ("records_per_s", "p50_ms", "cpu_us_a_record")
            if name in pairs[0][one]
        }
        by_case[case] = {
            f"{name}{'_more' if name.endswith('_ms') else '_ratio'}": [
                round(value, 3) for value in (it[0], median(it), it[-1])
            ]
            for name, it in each.items()
        }
    return by_case


def far(directory: Path, pairs: int, records: int, seconds: float, console: Console) -> Pairs:
    """Pairs of workers that are far from both of their clusters, which are others."""
    with ExitStack() as open_:
        source, target = (Side(role, FAR_S, open_) for role in ("source", "target"))
        bench = Bench(source.near, target.near, directory)
        cost = MapCost(bench, (source.far, target.far), records, 0, seconds)
        return {f"far, {case}": it for case, it in measured(cost, FAR_CASES, pairs, console).items()}


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
        bench = Bench(source, target, Path(directory))
        found = measured(MapCost(bench, (source, target), records, gappy, seconds), NEAR_CASES, pairs, console)
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory:
        found |= far(Path(directory), pairs, records, seconds, console)
    settings = {
        "started": started.isoformat(timespec="seconds"),
        "commit": commit(HERE.parent),
        "pairs": pairs,
        "records": {"dense": records, "gaps": gappy, "steady": int(seconds * 1_000)},
        "load_average": [round(load_began[0], 2), round(os.getloadavg()[0], 2)],
    }
    by_comparison = {
        "with_by_without": compared(found, "with", "without"),
        "without_by_itself": compared(found, "again", "without"),
    }
    body = {"machine": machine(), "settings": settings, "compared": by_comparison, "pairs": found}
    path = write_result(RESULTS / f"{started:%Y-%m-%d-%H%M}.json", body)
    console.print(by_comparison, f"written to {path}")


if __name__ == "__main__":
    main()
