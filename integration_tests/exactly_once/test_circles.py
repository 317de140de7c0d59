"""Flows of several files that would copy in a circle: refused before the first record, in whatever order they start."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from integration_tests.conftest import Pair
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.embedded import EmbeddedBroker
from integration_tests.harness.kafka_container import KafkaContainer
from integration_tests.harness.replicator import Event, FlowFile, Replicator
from integration_tests.harness.two_topics import numbered

INCIDENT = 4
DISCOVERY_S = 1.0  # as the tests' flow files say
RECORDS = 20
MODES = ("exactly_once", "at_least_once", "at_most_once")
RENAMES = ("identity", "prefix", "pattern")
LATER = pytest.mark.tier("full")
AT_ONCE = (("identity", "exactly_once"),)


@dataclass
class Circle:
    """Clusters in a ring, and a flow from each to the next, each in a file of its own."""

    directory: Path
    name: str
    clusters: Sequence[BrokerHandle]
    rename: str
    delivery: str
    workers: list[Replicator] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ring = [cluster.bootstrap for cluster in self.clusters]
        self.files = [self._file(number) for number in range(len(self.ring))]
        if self.rename == "prefix":
            clients.create_topic(self.ring[0], self.name)
        else:  # a flow without a prefix needs its target topic to be empty: all of them are there from the beginning
            for address in self.ring:
                clients.create_topic(address, self.name)

    def _file(self, number: int) -> FlowFile:
        source, target = self.ring[number], self.ring[(number + 1) % len(self.ring)]
        return FlowFile(
            self.directory,
            f"{self.name}-{number}",
            source,
            target,
            topics=[self.name] if self.rename == "identity" else [f"^.*{self.name}"],
            rename=f"from{number}.{{topic}}" if self.rename == "prefix" else "{topic}",
            delivery=self.delivery,
        )

    def run(self, number: int) -> Replicator:
        """Start the flow from this cluster to the next."""
        self.workers.append(Replicator(self.files[number]))
        return self.workers[-1]

    def put(self) -> None:
        """Records at the first cluster."""
        clients.put(clients.producer(self.ring[0]), self.name, *numbered("record", RECORDS))

    def held(self) -> list[dict[str, int]]:
        """How many records each topic of the circle holds on each cluster."""
        found: list[dict[str, int]] = []
        for address in self.ring:
            mine = [topic for topic in clients.topics(address) if topic.endswith(self.name) and topic[0] != "_"]
            found.append({topic: len(clients.read(address, topic)) for topic in sorted(mine)})
        return found

    def expected(self, hops: int) -> list[dict[str, int]]:
        """What must stand there once the records have gone so many hops."""
        found: list[dict[str, int]] = []
        topic = self.name
        for number in range(len(self.ring)):
            found.append({topic: RECORDS if number <= hops else 0})
            topic = f"from{number}.{topic}" if self.rename == "prefix" else topic
        return found if self.rename != "prefix" else found[: hops + 1] + [{}] * (len(self.ring) - hops - 1)

    def wait_expected(self, hops: int) -> None:
        """Until they have, and then for as long as two discoveries take: nothing comes back."""
        deadline = time.monotonic() + clients.TIMEOUT_S
        while (found := self.held()) != self.expected(hops):
            assert time.monotonic() < deadline, f"{found}, not {self.expected(hops)}\n" + self.logs()
            time.sleep(0.2)
        time.sleep(2 * DISCOVERY_S + 0.5)  # what must not happen has no event
        assert self.held() == self.expected(hops), self.logs()

    def logs(self) -> str:
        return "\n---\n".join(worker.tail() for worker in self.workers)

    def plan(self, number: int) -> tuple[int, str]:
        """Exit code and output of `plan` for one of the flows."""
        command = [sys.executable, "-m", "cli.main", "plan", "-c", str(self.files[number].path), "--json"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return shown.returncode, json.dumps(json.loads(shown.stdout)["flows"][0]["findings"])

    def refused(self) -> list[Replicator]:
        return [worker for worker in self.workers if worker.seen("incident", name="flows_in_conflict")]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


MakeCircle = Callable[..., Circle]


@pytest.fixture(scope="module")
def third(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerHandle]:
    """One more cluster."""
    handle: BrokerHandle = KafkaContainer() if kind == "kafka" else EmbeddedBroker(tmp_path_factory.mktemp("third"))
    try:
        handle.start()
        clients.warm_up(handle.bootstrap)
        yield handle
    finally:
        handle.stop()


@pytest.fixture
def make_circle(tmp_path: Path, unique: Callable[[str], str]) -> Iterator[MakeCircle]:
    """Makes circles; their processes end with the test."""
    with ExitStack() as stack:

        def make(clusters: Sequence[BrokerHandle], rename: str, delivery: str) -> Circle:
            circle = Circle(tmp_path, unique("circle"), clusters, rename, delivery)
            stack.callback(circle.close)
            return circle

        yield make


def begun(event: Event) -> bool:
    """Whether a worker runs, or was refused."""
    return event["event"] in ("lane_started", "incident")


def claimed(circle: Circle, number: int) -> bool:
    """Whether the flow has claimed a partition at its target."""
    target, topic = circle.ring[(number + 1) % len(circle.ring)], f"__eos.{circle.name}-{number}.claims"
    return topic in clients.topics(target) and bool(clients.read(target, topic))


def wait_claimed(circle: Circle, number: int) -> None:
    deadline = time.monotonic() + clients.TIMEOUT_S
    while not claimed(circle, number):
        assert time.monotonic() < deadline, circle.logs()
        time.sleep(0.1)


@pytest.mark.parametrize("delivery", [MODES[0], *(pytest.param(mode, marks=LATER) for mode in MODES[1:])])
@pytest.mark.parametrize("rename", ["identity", *(pytest.param(rename, marks=LATER) for rename in RENAMES[1:])])
def test_the_second_of_two_flows_is_refused(brokers: Pair, make_circle: MakeCircle, rename: str, delivery: str) -> None:
    circle = make_circle([brokers.source, brokers.target], rename, delivery)
    circle.run(0).wait_event("lane_started")
    wait_claimed(circle, 0)
    if rename == "prefix":
        circle.put()
        circle.wait_expected(1)
    code, findings = circle.plan(1)
    assert code == INCIDENT
    assert "flows_in_conflict" in findings
    back = circle.run(1)
    found = back.wait_event("incident", name="flows_in_conflict")
    assert f"flow '{circle.name}-0' reads its records from" in found["detail"]
    assert found["advice"]
    if rename != "prefix":
        circle.put()
    circle.wait_expected(1)
    assert back.stop() == INCIDENT
    assert circle.workers[0].stop() == 0


@pytest.mark.tier("extended")
@pytest.mark.parametrize(
    ("rename", "delivery"),
    [
        pytest.param(rename, mode, marks=() if (rename, mode) in AT_ONCE else LATER)
        for rename in ("identity", "pattern")
        for mode in MODES
    ],
)
def test_of_two_flows_that_start_at_the_same_time_one_is_refused_at_least(
    brokers: Pair, make_circle: MakeCircle, rename: str, delivery: str
) -> None:
    """Neither has claimed anything when the other lists its topics."""
    circle = make_circle([brokers.source, brokers.target], rename, delivery)
    for number in (0, 1):
        circle.run(number)
    for worker in circle.workers:
        worker.wait_any(begun, "start or refusal")
    circle.put()
    deadline = time.monotonic() + clients.TIMEOUT_S
    while not circle.refused():
        assert time.monotonic() < deadline, circle.logs()
        time.sleep(0.1)
    time.sleep(2 * DISCOVERY_S + 0.5)  # what must not happen has no event
    (here,), (there,) = (found.values() for found in circle.held())
    assert here == RECORDS, circle.logs()
    assert there in (0, RECORDS), circle.logs()


@LATER
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("rename", RENAMES)
def test_the_last_of_three_flows_is_refused_in_any_order(
    brokers: Pair, third: BrokerHandle, make_circle: MakeCircle, rename: str, order: tuple[int, ...]
) -> None:
    delivery = MODES[sum(map(ord, f"{rename}{order}")) % len(MODES)]
    circle = make_circle([brokers.source, brokers.target, third], rename, delivery)
    for number in order:
        circle.run(number).wait_any(begun, "start or refusal")
    circle.put()
    deadline = time.monotonic() + clients.TIMEOUT_S
    while not circle.refused():
        assert time.monotonic() < deadline, circle.logs()
        time.sleep(0.1)
    time.sleep(2 * DISCOVERY_S + 0.5)
    held = circle.held()  # an empty topic may have been made by a flow that looked before there was a claim
    assert held[0][circle.name] == RECORDS, f"{held}\n{circle.logs()}"
    assert all(sum(topics.values()) in (0, RECORDS) for topics in held), f"{held}\n{circle.logs()}"


@pytest.mark.tier("full")
def test_a_chain_over_three_clusters_is_copied(brokers: Pair, third: BrokerHandle, make_circle: MakeCircle) -> None:
    circle = make_circle([brokers.source, brokers.target, third], "pattern", "exactly_once")
    for number in (0, 1):
        circle.run(number).wait_event("lane_started")
    circle.put()
    circle.wait_expected(2)
    assert [worker.stop() for worker in circle.workers] == [0, 0]
