"""`demo-spark`: a backfill whose tasks are killed, then a live worker, and reconcile, which finds planted damage."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.demo import history, topic_reader
from cli.demo.processes import BrokerProcess, Child
from cli.demo.worker import Worker

TOPIC, PARTITIONS = "orders", 4
FLOW, CARELESS = "demo", "careless"
LIVE_SHARE = 50  # one in so many records is written while the live worker runs
SPARK_S_MAX, CATCH_UP_S_MAX, POLL_S = 600.0, 60.0, 0.1
DAMAGE_LISTED = 10  # of the findings that follow one another
KILL = "before_end_txn@1=kill"  # every task's first attempt, just before its first commit
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What the demo has shown. `aborted`: offsets of aborted records and markers on the target."""

    backfilled: int
    aborted: int
    live: int
    agrees: bool
    found: tuple[history.Damage, ...]
    report: Path

    @property
    def good(self) -> bool:
        """Whether the copy is exact, tasks were really killed, and exactly the planted damage was found."""
        return self.agrees and self.aborted > self.backfilled // 2 and set(self.found) == set(history.DAMAGE)


class Orchestrator:
    """One run in `directory`; `say` is called with each step as it begins."""

    def __init__(self, records: int, directory: Path, say: Say) -> None:
        self._records, self._directory, self._say = records, directory, say
        self._file = directory / "flows.yaml"
        self._stack = ExitStack()

    def run(self) -> Result:
        """Run the whole demo. Raises DemoFailed when a step fails; all children have ended in any case."""
        with self._stack:
            source, target = self._broker("source"), self._broker("target")
            source.ready()
            target.ready()
            self._write_file(source.address, target.address)
            self._say(f"writing {self._records:,} records to the source")
            topic_reader.create_topics(source.address, {TOPIC: PARTITIONS})
            history.write(source.address, TOPIC, PARTITIONS, 0, self._records)
            self._say("backfilling with Spark, and killing every task once, just before its first commit")
            done = self._spark(["backfill", "--flow", FLOW], 0, KILL)
            aborted = history.aborted(target.address, f"source.{TOPIC}", PARTITIONS, done["records"])
            more = self._records // LIVE_SHARE
            self._say(f"handing over to a live worker, and writing {more:,} records more")
            self._live(source.address, target.address, more)
            self._say("reconciling: Spark's own reader on both sides")
            report = self._spark(["reconcile", "--flow", FLOW, "--out", str(self._directory / "exact")], 0)
            self._say("making a damaged copy: one record missing, one doubled, one altered, two swapped")
            copy = f"{CARELESS}.{TOPIC}"
            written = history.careless(source.address, target.address, TOPIC, PARTITIONS, copy)
            history.commit_positions(self._file, CARELESS, TOPIC, (self._records + more) // PARTITIONS, written)
            self._say("reconciling the damaged copy")
            out = self._directory / "damaged"
            found = self._spark(["reconcile", "--flow", CARELESS, "--out", str(out)], 1)
        exact = report["agrees"] and report["totals"] == {"same": self._records + more}
        return Result(done["records"], aborted, more, exact, _damage(found), out / "report.html")

    def _broker(self, name: str) -> BrokerProcess:
        broker = BrokerProcess(name, self._directory)
        self._stack.callback(broker.kill)
        return broker

    def _write_file(self, source: str, target: str) -> None:
        self._file.write_text(
            f"""clusters:
  source: {{properties: {{bootstrap.servers: "{source}"}}}}
  target: {{properties: {{bootstrap.servers: "{target}"}}}}
flows:
  {FLOW}: {{source: source, target: target, topics: [{TOPIC}]}}
  {CARELESS}: {{source: source, target: target, topics: [{TOPIC}], rename: "{CARELESS}.{{topic}}"}}
"""
        )

    def _spark(self, command: list[str], expected: int, failpoints: str = "") -> dict[str, Any]:
        """Run a command to its end and return its JSON output. Raises DemoFailed unless it exits with `expected`."""
        log = self._directory / f"{command[0]}.log"
        child = Child(
            ["cli.main", command[0], "-c", str(self._file), *command[1:], "--json"],
            log,
            {"EOS_FAILPOINTS": failpoints},
        )
        self._stack.callback(child.kill)
        assert child.process.stdout is not None
        late = threading.Timer(SPARK_S_MAX, child.process.kill)
        late.start()
        said = child.process.stdout.read()  # until it ends; closing its stdin would end it, see die_with_parent
        child.process.wait()
        late.cancel()
        if child.process.returncode != expected:
            raise child.failed(f"ended with {child.process.returncode}, not {expected}")
        result: dict[str, Any] = json.loads(said)
        return result

    def _live(self, source: str, target: str, more: int) -> None:
        worker = Worker(self._file, self._directory / "replicator.log", FLOW)
        worker.start()
        self._stack.callback(worker.child.kill)
        history.write(source, TOPIC, PARTITIONS, self._records, self._records + more)
        deadline = time.monotonic() + CATCH_UP_S_MAX
        while worker.copied < more:
            if time.monotonic() > deadline or not worker.child.running():
                raise worker.child.failed(f"copied {worker.copied} of {more} records")
            time.sleep(POLL_S)  # its log has no event to wait for
            worker.read_log()
        worker.stop()


def _damage(found: dict[str, Any]) -> tuple[history.Damage, ...]:
    """Return the verdicts of reconcile as `Damage`. Of two swapped records it names one."""
    damage = set()
    for partition in found["partitions"]:
        number = partition["source"]["partition"]
        planted = next(damage for damage in history.DAMAGE if damage.partition == number)
        for item in partition["ranges"]:
            first = (item["source_offsets"] or item["target_offsets"])[0]
            for at in range(first, first + min(item["records"], DAMAGE_LISTED)):
                near = planted.rank if abs(at - planted.rank) <= 1 else at
                damage.add(history.Damage(item["verdict"], number, near))
    return tuple(sorted(damage, key=lambda item: item.partition))


def failed(result: Result) -> str:
    """Say what went wrong, in words; empty when nothing did."""
    if not result.agrees:
        return "the copy is not exact"
    if set(result.found) != set(history.DAMAGE):
        return f"planted {history.DAMAGE}, found {result.found}"
    return "" if result.good else f"no task was killed: only {result.aborted} records were aborted"
