"""Heartbeats: written in time, measured by one clock when they arrive, and no reason for copying to stand still."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.config import Flow, load_text
from replicator.config.routing import selects, target_topic
from replicator.flow.heartbeats import AWAITED_MAX, Heartbeats, heartbeats_spec, prepare_heartbeats
from replicator.kafka.admin import TopicSpec
from replicator.model.errors import LocalFault, NotAllowed, ReplicatorError, Unreachable

OWN, COPY = "eos-heartbeat.f", "eos-heartbeat.f.copy"


def flow(settings: str = "heartbeat: 10s, exclude: ['^eos.*']") -> Flow:
    text = f"""\
clusters:
  a: {{properties: {{bootstrap.servers: "a:1"}}}}
  b: {{properties: {{bootstrap.servers: "b:1"}}}}
flows:
  f: {{source: a, target: b, topics: ["^.*"], rename: "x.{{topic}}", {settings}}}
"""
    return load_text(text, env={}).flows["f"]


class FakeClients:
    """What was written arrives after `late_s`; time passes while it is waited for."""

    def __init__(self, late_s: float = 0.25) -> None:
        self.late_s, self.time_s = late_s, 100.0
        self.on_way: list[tuple[float, bytes]] = []
        self.written: list[tuple[float, dict[str, Any]]] = []
        self.error: ReplicatorError | None = None
        self.closed = False

    def write(self, value: bytes) -> None:
        self.written.append((self.time_s, json.loads(value)))
        self.on_way.append((self.time_s + self.late_s, value))

    def failure(self) -> ReplicatorError | None:
        return self.error

    def read(self, timeout_s: float) -> Iterator[bytes]:
        due = [at_s for at_s, _ in self.on_way if at_s <= self.time_s + timeout_s]
        self.time_s = min(due, default=self.time_s + timeout_s)
        arrived = [value for at_s, value in self.on_way if at_s <= self.time_s]
        self.on_way = [each for each in self.on_way if each[0] > self.time_s]
        yield from arrived

    def close(self) -> None:
        self.closed = True

    # the clock

    def now_s(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return int(self.time_s * 1000)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.time_s += timeout_s
        return event.is_set()


def beating(clients: FakeClients) -> tuple[Heartbeats, list[tuple[float, int]], threading.Event]:
    seen: list[tuple[float, int]] = []
    ended = threading.Event()
    log = cast(structlog.stdlib.BoundLogger, structlog.get_logger())

    def note(took_s: float, written_ms: int) -> None:
        seen.append((round(took_s, 3), written_ms))

    return Heartbeats(flow(), lambda: clients, note, ended, log, clients), seen, ended


def run_to(beats: Heartbeats, clients: FakeClients, until_s: float) -> None:
    while clients.time_s < until_s:
        beats.step()


def test_one_is_written_every_interval_and_measured_when_it_arrives() -> None:
    clients = FakeClients()
    beats, seen, _ = beating(clients)
    run_to(beats, clients, 125.0)
    assert [at_s for at_s, _ in clients.written] == [100.0, 110.0, 120.0]
    assert seen == [(0.25, 100_000), (0.25, 110_000), (0.25, 120_000)]


def test_one_that_takes_longer_than_the_interval_is_measured_too() -> None:
    clients = FakeClients(late_s=35.0)
    beats, seen, _ = beating(clients)
    run_to(beats, clients, 146.0)
    assert seen == [(35.0, 100_000), (35.0, 110_000)]


def test_what_another_process_has_written_is_not_measured() -> None:
    clients = FakeClients()
    beats, seen, _ = beating(clients)
    elsewhere = FakeClients()
    beating(elsewhere)[0].step()
    clients.on_way += [(100.3, json.dumps(elsewhere.written[0][1]).encode())]
    clients.on_way += [(100.3, b"no JSON"), (100.3, b"[]"), (100.3, b'{"run": 1}')]
    run_to(beats, clients, 105.0)
    assert seen == [(0.25, 100_000)]


@pytest.mark.tier("extended")
def test_what_never_arrives_is_forgotten() -> None:
    clients = FakeClients(late_s=1e9)
    beats, seen, _ = beating(clients)
    for _ in range(AWAITED_MAX + 5):
        run_to(beats, clients, clients.time_s + 10.0)
    assert seen == []
    assert len(beats._awaited) == AWAITED_MAX


def test_what_fails_is_told_once_and_again_after_one_has_arrived() -> None:
    clients = FakeClients()
    clients.error = Unreachable("cluster 'a': no answer")
    with capture_logs() as logged:
        beats, seen, _ = beating(clients)
        run_to(beats, clients, 100.2)
        clients.error = None
        run_to(beats, clients, 115.0)
        assert len(seen) == 2
        clients.error = Unreachable("cluster 'a': no answer")
        beats.step()
    assert [each["event"] for each in logged] == ["heartbeats_failed"] * 2


def test_clients_that_cannot_be_made_yet_are_made_after_an_interval() -> None:
    clients = FakeClients()
    seen: list[float] = []
    ended = threading.Event()
    log = cast(structlog.stdlib.BoundLogger, structlog.get_logger())
    answers: list[FakeClients | ReplicatorError] = [Unreachable("no token"), LocalFault("no ca.pem"), clients]

    def make() -> FakeClients:
        answer = answers.pop(0)
        if isinstance(answer, ReplicatorError):
            raise answer
        return answer

    with capture_logs() as logged:
        beats = Heartbeats(flow(), make, lambda took_s, at_ms: seen.append(round(took_s, 3)), ended, log, clients)
        run_to(beats, clients, 125.0)
    assert [each["reason"] for each in logged] == ["no token", "no ca.pem"]
    assert seen == [0.25]


def test_the_thread_lets_go_of_its_clients() -> None:
    clients = FakeClients()
    beats, _, ended = beating(clients)
    ended.set()
    beats.run(lambda error: None)
    assert not clients.closed, "none were made"
    bugs: list[BaseException] = []
    ended.clear()
    clients.write = None  # type: ignore[method-assign,assignment]
    beats.run(bugs.append)
    assert [type(each) for each in bugs] == [TypeError]
    assert clients.closed


def test_its_topic_is_copied_whatever_the_flow_selects_and_by_no_other_flow() -> None:
    own = flow()
    assert selects(own, OWN)
    assert target_topic(own, OWN) == COPY
    assert not selects(own, COPY)
    assert not selects(own, "eos-heartbeat.g")
    assert not selects(flow("heartbeat: 0"), OWN)
    assert not selects(flow("heartbeat: 0, exclude: []"), OWN)
    assert target_topic(flow("heartbeat: 0"), OWN) == COPY, "where its position stands"


class Source:
    """Answers once."""

    def __init__(self, answer: bool | ReplicatorError) -> None:
        self.answer, self.asked = answer, list[TopicSpec]()

    def create_topics(self, specs: Sequence[TopicSpec]) -> dict[str, bool | ReplicatorError]:
        self.asked += specs
        return {spec.name: self.answer for spec in specs}


def test_its_topic_is_made_at_the_source_and_without_it_the_flow_goes_on() -> None:
    log = cast(structlog.stdlib.BoundLogger, structlog.get_logger())
    told = []
    for answer in (True, False, NotAllowed("the user needs Create on topic 'eos-heartbeat.f'")):
        source = Source(answer)
        with capture_logs() as logged:
            prepare_heartbeats(flow(), source, log)
        assert source.asked == [heartbeats_spec(flow())]
        told.append([each["event"] for each in logged])
    assert told == [["topic_created"], [], ["heartbeats_failed"]]
    source = Source(True)
    prepare_heartbeats(flow("heartbeat: 0"), source, log)
    assert source.asked == []
