"""`python -m benchmarks.group_sync`: how long a round of group sync takes, with many groups on many partitions.

Real Kafka. A flow copies a topic, and each group has an offset in each of its partitions. Measured are the first round,
rounds in which each offset has changed at the source, and rounds in which none has: time, the CPU time of the process,
and its memory at most, in a process that does nothing else.
"""

from __future__ import annotations

import gc
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import click
import structlog
from rich.console import Console

from benchmarks.__main__ import machine, write_result
from benchmarks.clusters import Kafka
from benchmarks.many_partitions import create, put
from integration_tests.harness.replicator import DEFAULT, FlowFile, Replicator
from replicator import config
from replicator.config import Cluster, Properties
from replicator.flow.daemon import GC_YOUNG_OBJECTS_MAX
from replicator.group_sync.watch import group_sync_of
from replicator.groups.decision import OffsetToCommit
from replicator.wire.group_questions import GroupQuestions

RESULTS = Path(__file__).parent / "results" / "group_sync"
AT_ONCE = 50
RECORDS = 4
COMMIT_S = 60.0


def commit(bootstrap: str, topic: str, partitions: int, groups: int, offset: int) -> None:
    """Have each group stand at this offset of each partition."""
    cluster = Cluster(name="x", properties=Properties({"bootstrap.servers": bootstrap}))
    values = {topic: dict.fromkeys(range(partitions), OffsetToCommit(offset, ""))}
    with closing(GroupQuestions(cluster, "bench")) as questions:
        for first in range(0, groups, AT_ONCE):
            wanted = {f"group-{number}": values for number in range(first, min(groups, first + AT_ONCE))}
            while wanted:
                answers = questions.commit(wanted, COMMIT_S)
                done = {name for name, it in answers.items() if isinstance(it, dict) and not any(it[topic].values())}
                wanted = {name: it for name, it in wanted.items() if name not in done}


@contextmanager
def running(file: FlowFile) -> Iterator[Replicator]:
    """The flow, which copies what there is."""
    worker = Replicator(file)
    try:
        yield worker
    finally:
        worker.close()


def measured(path: Path, bootstrap: str, topic: str, partitions: int, groups: int, rounds: int) -> dict[str, object]:
    """What rounds take, in this process."""
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    (flow,) = config.load(path, os.environ).flows.values()
    found: dict[str, list[tuple[float, float]]] = {"first": [], "changed": [], "idle": []}
    committed: list[int] = []
    with ExitStack() as stack:
        sync = group_sync_of(flow, stack, structlog.get_logger())

        gc.freeze()  # as the daemon does
        gc.set_threshold(GC_YOUNG_OBJECTS_MAX)

        def one(kind: str) -> None:
            began_s, cpu_s = time.monotonic(), time.process_time()
            committed.append(sync.round().committed)
            found[kind].append((round(time.monotonic() - began_s, 3), round(time.process_time() - cpu_s, 3)))

        one("first")
        for number in range(rounds):
            commit(bootstrap, topic, partitions, groups, 1 + number % (RECORDS - 1))
            one("changed")
            one("idle")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "committed": committed,
        "seconds": {kind: median(it[0] for it in all_) for kind, all_ in found.items() if all_},
        "cpu_seconds": {kind: median(it[1] for it in all_) for kind, all_ in found.items() if all_},
        "rss_mib_max": round(peak_mib, 1),
    }


@click.command()
@click.option("--groups", default=2_000, show_default=True)
@click.option("--partitions", default=100, show_default=True, help="Of each group.")
@click.option(
    "--rounds", default=3, show_default=True, help="In which all offsets have changed, and in which none has."
)
@click.option("--heap", default="1g", show_default=True, help="Of each broker; ten million offsets want 5g.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="JSON file. Default: by date in results/.")
def main(groups: int, partitions: int, rounds: int, heap: str, out: Path | None) -> None:
    """Measure rounds of group sync."""
    console, started, load_average = Console(width=200), datetime.now(UTC), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="eos-bench-") as directory, ExitStack() as open_:
        source, target = (open_.enter_context(Kafka.running(role, heap)) for role in ("source", "target"))
        create(source.bootstrap, ["bench"], partitions)
        settings = {"topics": ["bench"], "groups": {"include": ["^.*"]}, "limits": DEFAULT, "commit": DEFAULT}
        file = FlowFile(Path(directory), "groups", source.bootstrap, target.bootstrap, **settings)
        file.write(groups={"include": []})
        with running(file) as worker:
            worker.wait_event("lane_started")
            for _ in range(RECORDS):
                put(source.bootstrap, ["bench"], partitions)
            while sum(it["records"] for it in worker.seen("committed")) < RECORDS * partitions:
                time.sleep(0.1)
            worker.stop()
        file.write(groups={"include": ["^.*"]})
        commit(source.bootstrap, "bench", partitions, groups, 0)
        console.print("offsets are committed at the source", highlight=False)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            asked = (file.path, source.bootstrap, "bench", partitions, groups, rounds)
            found = pool.submit(measured, *asked).result()
    console.print(found, highlight=False)
    body = {
        "machine": machine(),
        "settings": {
            "started": started.isoformat(timespec="seconds"),
            "groups": groups,
            "partitions": partitions,
            "rounds": rounds,
            "heap": heap,
            "load_average_before": round(load_average, 2),
        },
        **found,
    }
    console.print(f"written to {write_result(out or RESULTS / f'{started:%Y-%m-%d-%H%M}.json', body)}")


if __name__ == "__main__":
    main()
