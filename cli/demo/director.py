"""Runs the demo: starts everything, kills it by a seeded schedule while data flows, waits, and compares."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition

from cli.demo import reading
from cli.demo.compare import NOTHING, Verdict, judge
from cli.demo.processes import BrokerProcess, Child, ChildFailed

TOPICS = {"orders": 4, "payments": 2}
FLOW = "demo"
CATCH_UP_S_MAX = 60.0
WATCH_S = 0.1
LANE_S_MAX = 20.0
ENDLESS = 10**9


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for. `steps` kills the worker at named steps instead of random moments."""

    records: int
    seconds: float
    kills: int
    broker_kills: int
    seed: int
    delivery: str = "exactly_once"
    steps: bool = False


@dataclass(slots=True)
class Progress:
    """What a person sees while it runs. `copied` counts source offsets that the target has committed."""

    phase: str = "starting"
    written: int = 0
    copied: int = 0
    lag: int = 0
    worker_kills: int = 0
    broker_kills: int = 0
    seconds: float = 0.0
    last: str = ""


@dataclass(slots=True)
class Outcome:
    """The end of a run: verdicts by partition, kills that really happened."""

    verdicts: dict[tuple[str, int], Verdict] = field(default_factory=dict)
    worker_kills: int = 0
    broker_kills: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> Verdict:
        """All partitions together."""
        return sum(self.verdicts.values(), NOTHING)


class Director:
    """One run in `directory`; `show` is called with the progress several times a second."""

    def __init__(self, settings: Settings, directory: Path, show: Callable[[Progress], None]) -> None:
        self._settings, self._directory, self._show = settings, directory, show
        self._chance = random.Random(settings.seed)
        self._progress = Progress()
        self._began = time.monotonic()
        self._stack = ExitStack()

    def run(self) -> Outcome:
        """The whole demo. Raises ChildFailed or reading.ReadFailed; children are gone in any case."""
        with self._stack:
            source, target = self._broker("source"), self._broker("target")
            reading.create_topics(source.address, TOPICS)
            flow_file = self._flow_file(source.address, target.address)
            load = self._load(source.address)
            watch = _Watch(source.address, target.address)
            self._stack.callback(watch.close)
            worker = _Worker(flow_file, self._directory, self._point())
            self._stack.callback(lambda: worker.child.kill())
            self._massacre(watch, worker, target)
            self._say("stopping the load")
            if (load.running() and load.stop() != 0) or load.process.returncode != 0:
                raise ChildFailed(f"the load failed{load.tail()}")
            self._catch_up(watch, worker)
            if worker.child.stop() != 0:
                raise ChildFailed(f"the replicator did not stop cleanly{worker.child.tail()}")
            self._say("comparing every record")
            outcome = self._compare(source.address, target.address)
        return outcome

    def _broker(self, name: str) -> BrokerProcess:
        broker = BrokerProcess(name, self._directory)
        self._stack.callback(broker.stop)
        return broker

    def _load(self, address: str) -> Child:
        topics = ",".join(f"{name}:{count}" for name, count in TOPICS.items())
        enough = ENDLESS if self._settings.steps else self._settings.records  # steps need transactions to die in
        numbers = (self._settings.seed, enough, self._rate())
        child = Child(["cli.demo.load", address, topics, *map(str, numbers)], self._directory / "load.log")
        self._stack.callback(child.kill)
        child.first_line()
        return child

    def _rate(self) -> int:
        """Records a second, so that the load lasts as long as the kills."""
        return max(1, int(self._settings.records / self._settings.seconds))

    def _flow_file(self, source: str, target: str) -> Path:
        path = self._directory / "flow.yaml"
        path.write_text(
            f"""clusters:
  source: {{properties: {{bootstrap.servers: "{source}"}}}}
  target: {{properties: {{bootstrap.servers: "{target}"}}}}
flows:
  {FLOW}:
    source: source
    target: target
    topics: [{", ".join(TOPICS)}]
    delivery: {self._settings.delivery}
    limits: {{request_timeout_ms: 5000, transaction_timeout_ms: 10000}}
"""
        )
        return path

    def _point(self) -> str:
        """The fail point at which the next worker kills itself, in a run by steps; else none."""
        if not self._settings.steps or self._progress.worker_kills >= self._settings.kills:
            return ""
        step = ("after_end_txn", "before_end_txn")[self._progress.worker_kills % 2]
        return f"{step}@{self._chance.randrange(3, 12)}=kill"

    def _say(self, phase: str) -> None:
        self._progress.phase = phase
        self._report()

    def _report(self) -> None:
        self._progress.seconds = round(time.monotonic() - self._began, 1)
        self._show(self._progress)

    def _massacre(self, watch: _Watch, worker: _Worker, target: BrokerProcess) -> None:
        """Kill by the schedule. A worker that was killed is started again and has to commit before the next kill."""
        self._say("copying, and killing")
        plan = self._schedule()
        while True:
            elapsed_s = time.monotonic() - self._began
            waiting = plan or (self._settings.steps and self._progress.worker_kills < self._settings.kills)
            if not waiting and elapsed_s >= self._settings.seconds:
                return
            if not worker.child.running():
                worker.died(expected=self._settings.steps)
                self._killed(f"worker killed at {worker.point.partition('@')[0]}")
                worker.start(self._point())
            if plan and plan[0][0] <= elapsed_s:
                _, victim = plan.pop(0)
                if victim == "worker":
                    worker.wait_lane()
                    worker.child.kill()
                    self._killed("worker killed")
                    worker.start(self._point())
                else:
                    target.kill()
                    self._progress.broker_kills += 1
                    self._progress.last = "target broker killed"
                    target.restart()
            self._watch(watch)
            if elapsed_s > self._settings.seconds * 4 + CATCH_UP_S_MAX:
                raise ChildFailed(f"the schedule of kills could not be kept{worker.child.tail()}")

    def _killed(self, what: str) -> None:
        self._progress.worker_kills += 1
        self._progress.last = what

    def _schedule(self) -> list[tuple[float, str]]:
        """Seeded moments (seconds from the start) with their victims, spread over the time of the load."""
        start_s, end_s = time.monotonic() - self._began + 1.0, self._settings.seconds
        victims = ["broker"] * self._settings.broker_kills
        victims += [] if self._settings.steps else ["worker"] * self._settings.kills
        self._chance.shuffle(victims)
        slot_s = max(0.1, (end_s - start_s) / max(1, len(victims)))
        return [
            (start_s + slot_s * (number + self._chance.uniform(0.1, 0.9)), victim)
            for number, victim in enumerate(victims)
        ]

    def _watch(self, watch: _Watch) -> None:
        seen = watch.look()
        if seen is not None:
            self._progress.written, self._progress.copied = seen
            self._progress.lag = max(0, seen[0] - seen[1])
        self._report()
        time.sleep(WATCH_S)  # the rate of the display; nothing waits for it

    def _catch_up(self, watch: _Watch, worker: _Worker) -> None:
        """Until the flow's positions have reached the ends of the source."""
        self._say("catching up")
        deadline = time.monotonic() + CATCH_UP_S_MAX
        while True:
            self._watch(watch)
            seen = watch.look()
            if seen is not None and seen[1] >= seen[0]:
                return
            if not worker.child.running():
                raise ChildFailed(f"the replicator ended by itself{worker.child.tail()}")
            if time.monotonic() > deadline:
                raise ChildFailed(f"the flow did not catch up within {CATCH_UP_S_MAX:.0f} s{worker.child.tail()}")

    def _compare(self, source: str, target: str) -> Outcome:
        here = reading.read(source, TOPICS)
        there = reading.read(target, {f"source.{name}": count for name, count in TOPICS.items()})
        verdicts = {at: judge(records, there[f"source.{at[0]}", at[1]]) for at, records in here.items()}
        seconds = round(time.monotonic() - self._began, 1)
        return Outcome(verdicts, self._progress.worker_kills, self._progress.broker_kills, seconds)


class _Worker:
    """The replicator's process, started again and again."""

    def __init__(self, flow_file: Path, directory: Path, point: str) -> None:
        self._flow_file, self._log = flow_file, directory / "replicator.log"
        self.start(point)

    def start(self, point: str) -> None:
        """A new process; `point` is the fail point at which it kills itself."""
        self.point = point
        self._from = self._log.stat().st_size if self._log.exists() else 0
        arguments = ["cli.main", "run", "-c", str(self._flow_file), "--log-format", "json"]
        self.child = Child(arguments, self._log, {"EOS_FAILPOINTS": point})

    def wait_lane(self) -> None:
        """Wait until its lane copies, so that a kill hits it at work."""
        deadline = time.monotonic() + LANE_S_MAX
        while "lane_started" not in self._events():
            if not self.child.running() or time.monotonic() > deadline:
                raise ChildFailed(f"the replicator did not start{self.child.tail()}")
            time.sleep(WATCH_S)

    def _events(self) -> set[str]:
        with self._log.open("rb") as log:
            log.seek(self._from)
            lines = [line for line in log.read().splitlines() if line.startswith(b"{") and line.endswith(b"}")]
        return {json.loads(line)["event"] for line in lines}

    def died(self, expected: bool) -> None:
        """Its end was asked for, or the demo has failed."""
        if not expected or not self.point:
            raise ChildFailed(f"the replicator ended by itself{self.child.tail()}")


class _Watch:
    """Source ends and committed positions, for the display and for the end of the wait."""

    def __init__(self, source: str, target: str) -> None:
        self._source = reading.consumer(source)
        self._target = reading.consumer(target, f"eos-replicate.{FLOW}", "read_uncommitted")  # never waits

    def look(self) -> tuple[int, int] | None:
        """(source ends, positions), summed over all partitions; None while a broker is away."""
        asked = [TopicPartition(f"source.{topic}", p) for topic, count in TOPICS.items() for p in range(count)]
        try:
            ends = reading.ends(self._source, TOPICS)
            positions = self._target.committed(asked, timeout=2)
        except KafkaException:
            return None  # only looking: the flow itself is what must cope
        if any(at.error is not None for at in positions):
            return None
        return sum(ends.values()), sum(max(0, at.offset) for at in positions)

    def close(self) -> None:
        """Close both clients."""
        self._source.close()
        self._target.close()
