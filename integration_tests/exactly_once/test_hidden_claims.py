"""An open transaction hides claims of a flow: who starts does what can be done, and who would fence others waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from integration_tests.conftest import MakeCopying
from integration_tests.exactly_once.test_workers import crew_of
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.crew import LANES, Crew
from replicator.model import names

pytestmark = pytest.mark.tier("full")
HIDDEN = 1
"""The partition of the claims topic, and the lane that claims there."""
LONG_S = 3.0
"""What a worker takes many times to open a generation."""


@pytest.fixture
def crew(make_copying: MakeCopying, target: BrokerHandle) -> Crew:
    """One worker, which has started all lanes."""
    made = crew_of(make_copying, target, limits={"transaction_timeout_ms": 60_000})
    first = made.join()
    for lane in range(LANES):
        first.wait_event("lane_started", lane=lane)
    return made


@pytest.fixture
def hanging(crew: Crew) -> Iterator[Producer]:
    """Stands inside a transaction that hides what is claimed."""
    copying = crew.copying
    writer = clients.transactional(copying.target, f"hanging-{copying.name}")
    writer.begin_transaction()
    clients.put(writer, names.claims_topic(copying.file.flow), b"", partition=HIDDEN, key=b"x")
    yield writer
    writer.purge()


def test_a_restarted_worker_runs_all_lanes_but_the_one_whose_claims_are_hidden(crew: Crew, hanging: Producer) -> None:
    crew.kill(crew.alive[0])
    crew.copying.load.mixed(100)
    again = crew.join()
    for lane in range(LANES):
        if lane != HIDDEN:
            again.wait_event("lane_started", lane=lane)
    assert not any(event["lane"] == HIDDEN for event in again.seen("lane_started"))
    hanging.abort_transaction(clients.TIMEOUT_S)
    again.wait_event("lane_started", lane=HIDDEN)
    crew.finish()


def test_nobody_opens_a_generation_whose_lanes_could_not_start(crew: Crew, hanging: Producer) -> None:
    """The lanes that run don't need to read claims again; their successors would."""
    first = crew.alive[0]
    crew.copying.file.write(commit={"linger_ms": 5})
    second = crew.join()
    second.wait_event("connecting")
    since_s = time.monotonic()
    while time.monotonic() - since_s < LONG_S:
        crew.copying.load.mixed(20)
        crew.copying.wait_copied()
    assert not second.seen("generation_opened")
    assert not first.seen("generation_over")
    hanging.abort_transaction(clients.TIMEOUT_S)
    for worker in (first, second):
        worker.wait_event("lane_started", generation=2)
    crew.finish()
