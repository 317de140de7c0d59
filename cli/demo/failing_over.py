"""`demo --failover`: the source is killed under load, and a consumer group goes on at the target."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.demo import consumer, topic_reader
from cli.demo.model import FLOW, RENAMED, TOPICS, DemoFailed, Settings
from cli.demo.processed import Processed, processed, times_processed
from cli.demo.processes import BrokerProcess, Child
from cli.demo.topic_reader import At
from cli.demo.worker import Worker

GROUP = "settlement"
COPIES = {RENAMED.format(name): count for name, count in TOPICS.items()}
SYNC_MS = 500
ENDLESS = 10**9  # records: the load is killed
FAILOVER_S_MAX, FIRST_S_MAX, DRAIN_S_MAX, POLL_S = 60.0, 30.0, 60.0, 0.1
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FailedOver:
    """What the demo has shown, by topic and partition.

    Attributes:
        verdict: what `failover --json` said.
        first_s: seconds from the command's start to the first record that the group processed at the target.
    """

    partitions: dict[At, Processed]
    verdict: dict[str, Any]
    first_s: float

    @property
    def total(self) -> Processed:
        """All partitions together."""
        return sum(self.partitions.values(), Processed())

    @property
    def good(self) -> bool:
        """Whether the promise was kept: nothing skipped, and the target is what the source was up to some record."""
        return self.total.good and self.total.once > 0


class FailoverDemo:
    """One run in `directory`; `say` is called with each step as it begins."""

    def __init__(self, settings: Settings, directory: Path, say: Say) -> None:
        self._settings, self._directory, self._say = settings, directory, say
        self._file, self._ledger = directory / "flow.yaml", directory / "processed.txt"
        self._worker = Worker(self._file, directory / "replicator.log")
        self._stack = ExitStack()

    def run(self) -> FailedOver:
        """Run the whole demo. Raises DemoFailed when there can be no verdict; all children have ended in any case."""
        with self._stack:
            source, target = self._broker("source"), self._broker("target")
            source.ready()
            target.ready()
            topic_reader.create_topics(source.address, TOPICS)
            self._write_flow_file(source.address, target.address)
            load = self._load(source.address)
            application = self._application("source", source.address, TOPICS, consumer.FOR_EVER)
            self._worker.start()
            self._stack.callback(self._worker.child.kill)
            self._say(f"producers write, the flow copies, and group {GROUP} processes each record at the source")
            self._under_load(load, target.address)
            self._say("the source is killed, and with it all that runs there")
            for child in (source, load, application):
                child.kill()
            began_s = time.monotonic()
            self._say("failing over: eos-replicate failover")
            verdict = self._failover()
            self._say(f"group {GROUP} goes on at the target")
            first_s = self._go_on(target.address) - began_s
            self._say("the source is started again, only to see what it had")
            source.restart()
            return FailedOver(self._compare(source.address, target.address), verdict, round(first_s, 1))

    def _broker(self, name: str) -> BrokerProcess:
        broker = BrokerProcess(name, self._directory)
        self._stack.callback(broker.kill)
        return broker

    def _child(self, arguments: list[str], log: str) -> Child:
        child = Child(arguments, self._directory / log)
        self._stack.callback(child.kill)
        return child

    def _load(self, address: str) -> Child:
        settings = self._settings
        topics = ",".join(f"{name}:{count}" for name, count in TOPICS.items())
        numbers = (settings.seed, ENDLESS, settings.records / settings.seconds)
        return self._child(["cli.demo.load", address, topics, *map(str, numbers)], "load.log")

    def _application(self, where: str, address: str, topics: Iterable[str], until: str) -> Child:
        arguments = [address, GROUP, ",".join(topics), str(self._ledger), until]
        return self._child(["cli.demo.consumer", *arguments], f"application-{where}.log")

    def _write_flow_file(self, source: str, target: str) -> None:
        self._file.write_text(
            f"""clusters:
  source: {{properties: {{bootstrap.servers: "{source}"}}}}
  target: {{properties: {{bootstrap.servers: "{target}"}}}}
flows:
  {FLOW}:
    source: source
    target: target
    topics: [{", ".join(TOPICS)}]
    groups: {{include: [{GROUP}], interval_ms: {SYNC_MS}}}
    limits: {{request_timeout_ms: 10000, transaction_timeout_ms: 20000}}
"""
        )

    def _under_load(self, load: Child, target: str) -> None:
        """Return when the group is synced and the load has then gone on for as long as was asked for."""
        load.line()  # it writes
        give_up_s, end_s = time.monotonic() + FIRST_S_MAX, None
        while end_s is None or time.monotonic() < end_s:
            if end_s is None and self._all_begun(target):
                end_s = time.monotonic() + self._settings.seconds
            if end_s is None and time.monotonic() > give_up_s:
                raise self._worker.child.failed("has not synced the group")
            if not load.running():
                raise load.failed("ended by itself")
            if not self._worker.child.running():
                raise self._worker.ended()
            time.sleep(POLL_S)  # its log has no event to wait for

    def _all_begun(self, target: str) -> bool:
        """Return whether records are copied and processed, and the group has an offset at the target in each
        partition.
        """
        self._worker.read_log()
        if not self._worker.copied or not self._processed():
            return False
        return all(offset >= 0 for offset in topic_reader.read_committed_positions(target, GROUP, COPIES).values())

    def _failover(self) -> dict[str, Any]:
        command = ["cli.main", "failover", "-c", str(self._file), "--yes-i-mean", FLOW, "--json"]
        verdict: dict[str, Any] = json.loads(self._child(command, "failover.log").rest(FAILOVER_S_MAX))
        if verdict.get("generation") is None:
            raise DemoFailed(f"failover said {verdict}")
        return verdict

    def _go_on(self, target: str) -> float:
        """Have the application process all that is at the target; when it had its first record."""
        application = self._application("target", target, COPIES, consumer.TO_END)
        application.line()
        first_s = time.monotonic()
        application.rest(DRAIN_S_MAX)
        if application.process.returncode != 0:
            raise application.failed(f"ended with {application.process.returncode}")
        return first_s

    def _processed(self) -> Counter[bytes]:
        if not self._ledger.exists():
            return Counter()
        with self._ledger.open("rb") as lines:
            return times_processed(lines)

    def _compare(self, source: str, target: str) -> dict[At, Processed]:
        self._say("comparing every record, and how often it was processed")
        here = topic_reader.read(source, TOPICS, stable=False)  # transactions that the load had open stay open a minute
        there = topic_reader.read(target, COPIES)
        times = self._processed()
        return {at: processed(records, there[RENAMED.format(at[0]), at[1]], times) for at, records in here.items()}
