"""What is measured, one function a figure. Each starts what it needs and leaves nothing running."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load
from benchmarks.clusters import Kafka
from benchmarks.observe import POLL_S, Copy
from benchmarks.systems import Eos, Killable, System, cpu_s, rss_peak_mib

Figures = dict[str, float]
LONG_RUN_POLL_S = 0.1  # where a run takes ten seconds: a request costs the target something, too
START_S_MAX, STUCK_S, QUIET_S = 120.0, 45.0, 1.0


class Stuck(RuntimeError):
    """A system stopped copying in the middle, or was so far when it was first looked at that there is no rate."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where it runs: both clusters, a scratch directory."""

    source: Kafka
    target: Kafka
    directory: Path


@contextmanager
def _copying(bench: Bench, system: System) -> Iterator[Copy]:
    """Start `system`, and stop it and delete its copy afterwards: many copies would fill the disk."""
    copy = Copy(bench.target.bootstrap, system.copy)
    system.start()
    try:
        yield copy
    finally:
        system.stop()
        copy.close()
        load.delete(bench.target.bootstrap, system.copy)


def throughput(
    bench: Bench, system: System, records: int, uncounted: int = 0, last_keys: Mapping[int, bytes] | None = None
) -> Figures:
    """Copy a backlog: rate from first to last committed record, CPU of the copying process meanwhile, peak memory.

    The offsets say when something was committed, the last record of every partition says when it was all.

    Args:
        uncounted: rate and CPU count from the commit by which more records than these are committed. Two workers whose
            first transactions differ in size would else be measured over different parts of the same backlog.
        last_keys: those of a backlog that isn't `load.backlog`'s.
    """
    last_keys = last_keys or load.last_keys(records)
    with _copying(bench, system) as copy:
        began, first = copy.wait(uncounted, START_S_MAX)
        cpu_began = cpu_s(system.pid())
        last_change, last_total, cpu_ended = began, first, cpu_began
        while True:
            now, total = time.monotonic(), copy.total()
            if total != last_total:
                last_change, last_total, cpu_ended = now, total, cpu_s(system.pid())
            elif now - last_change > QUIET_S and last_total >= records and copy.complete(last_keys):
                break
            elif now - last_change > STUCK_S:
                raise Stuck(f"{system.name}: {last_total} of {records}, and nothing more for {STUCK_S:.0f} s")
            time.sleep(POLL_S)
        memory = rss_peak_mib(system.pid())
    copied = records - first
    if copied < records / 2:
        raise Stuck(f"{system.name}: {first} of {records} records were committed at once: take more records")
    return {
        "records_per_s": copied / (last_change - began),
        "cpu_s_per_million": (cpu_ended - cpu_began) / copied * 1e6,
        "cpu_s_per_million_from_start": cpu_ended / records * 1e6,
        "rss_peak_mib": memory,
    }


def whole(bench: Bench, system: System, records: int, turns: Sequence[int] = load.EVEN) -> Figures:
    """Copy a backlog of `load.backlog`: rate from the first record written to the last one committed.

    Unlike from the first commit, as many records count as were written meanwhile, however large a transaction is.
    """
    last_keys = load.last_keys(records, turns)
    with _copying(bench, system) as copy:
        began = last_change = copy.wait_begun(START_S_MAX)
        last_total = 0
        while True:
            now, total = time.monotonic(), copy.total()
            if total != last_total:
                last_change, last_total = now, total
            elif now - last_change > QUIET_S and last_total >= records and copy.complete(last_keys):
                return {"records_per_s": records / (last_change - began)}
            elif now - last_change > STUCK_S:
                raise Stuck(f"{system.name}: {last_total} of {records}, and nothing more for {STUCK_S:.0f} s")
            time.sleep(LONG_RUN_POLL_S)


def latency(
    bench: Bench,
    system: System,
    topic: str,
    seconds: float,
    rate: int,
    warm_up_s: float,
    metered: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Figures:
    """End to end, from before the producer's send to a read_committed reader, at a steady rate.

    `metered` is entered while the load runs, warm-up included.
    """
    steady = load.Steady(bench.source.bootstrap, bench.target.bootstrap, topic, system.copy, rate)
    load.prime(bench.source.bootstrap, topic)
    with _copying(bench, system) as copy:
        copy.wait(load.PARTITIONS, START_S_MAX)
        began = time.time()
        with metered():
            try:
                steady.run(seconds + warm_up_s)
            except load.NotArrived as error:
                raise Stuck(f"{system.name}: {error}") from error
    values = sorted(latency for written, latency in steady.latencies if written > began + warm_up_s)
    return {f"p{share}_ms": values[int(len(values) * share / 100)] * 1000 for share in (50, 99)}


def stalled(bench: Bench, topic: str, stall_s: float, engine: str = "records", copied: int = 0) -> Figures:
    """Peak memory of a worker with a backlog behind it and a target that has stopped answering; it goes on after.

    `copied`: it stops once more records than these are committed, when transactions have their full size.
    """
    system = Eos(bench.source, bench.target, topic, bench.directory, engine=engine)
    with _copying(bench, system) as copy:
        _, before = copy.wait(copied, START_S_MAX)
        bench.target.pause()
        try:
            time.sleep(stall_s)  # the stall itself
        finally:
            bench.target.resume()
        memory = rss_peak_mib(system.pid())
        copy.wait(before, START_S_MAX)
    return {"rss_peak_mib": memory}


def recovery(bench: Bench, system: Killable) -> Figures:
    """From SIGKILL in the middle of a backlog to the first new committed record of its successor, started at once."""
    with _copying(bench, system) as copy:
        copy.wait(0, START_S_MAX)
        killed = time.monotonic()
        system.kill()
        system.start()
        recovered = copy.first_new_record(START_S_MAX)
    return {"kill_to_commit_s": recovered - killed}


def topic_name(kind: str) -> str:
    """A fresh topic name."""
    return f"{kind}-{uuid.uuid4().hex[:6]}"
