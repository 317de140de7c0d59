"""A worker's membership in the group that shares out a flow's lanes, on both brokers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.group_member import GroupMember
from replicator.kafka.group_consumer import PROOF_S_MAX
from replicator.kafka.group_events import (
    GroupEnded,
    GroupTrouble,
    LanesRevoked,
    LanesTopicUnfit,
    MembershipLost,
    ProofAnswered,
)
from replicator.model import names
from replicator.model.errors import TopicMissing, Unreachable
from replicator.workers.proofs import ProofResult, result_of
from tests.running.users_packages import users_packages

pytestmark = pytest.mark.tier("full")
LANES = 2
Join = Callable[[], GroupMember]
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def flow(target: BrokerHandle, unique: Callable[[str], str]) -> str:
    """A flow with a lanes topic."""
    name = unique("shared")
    clients.create_topic(target.bootstrap, names.lanes_topic(name, LANES), LANES)
    return name


@pytest.fixture
def join(target: BrokerHandle, flow: str) -> Iterator[Join]:
    """Makes members in this process."""
    made: list[GroupMember] = []

    def joined() -> GroupMember:
        made.append(GroupMember(target.bootstrap, flow, LANES))
        return made[-1]

    yield joined
    for member in made:
        member.close()
        assert member.events[-1] == GroupEnded(None)


@pytest.fixture
def start(target: BrokerHandle, flow: str) -> Iterator[Start]:
    """Makes members in processes of their own."""
    made: list[subprocess.Popen[str]] = []

    def started() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "integration_tests.harness.group_member", target.bootstrap, flow, str(LANES)]
        pipe = subprocess.PIPE
        made.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=users_packages()))
        assert _line(made[-1]) == "joined"
        return made[-1]

    yield started
    for process in made:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _proof(process: subprocess.Popen[str], lane: int) -> str:
    assert process.stdin is not None
    process.stdin.write(f"{lane}\n")
    process.stdin.flush()
    return _line(process)


def test_lanes_are_shared_and_come_back(join: Join) -> None:
    """What stays with a member isn't taken away in between; a proof proves the lanes that a member has, no others."""
    first = join()
    assert first.wait_lanes(2) == {0, 1}
    second = join()
    (taken,) = second.wait_lanes(1)
    (kept,) = first.wait_lanes(1)
    assert {taken, kept} == {0, 1}
    assert [event.lanes for event in first.events if isinstance(event, LanesRevoked)] == [{taken}]
    assert first.consumer.holds(kept)
    assert not first.consumer.holds(taken)
    assert result_of(first.proof(kept)) is result_of(second.proof(taken)) is ProofResult.PROVED
    assert result_of(first.proof(taken)) is ProofResult.AGAIN
    second.consumer.unsubscribe()
    assert first.wait_lanes(2) == {0, 1}
    assert not second.consumer.holds(taken)
    assert not any(isinstance(event, LanesRevoked | MembershipLost) for event in second.events)


def test_lanes_of_a_killed_member_come_after_its_session(join: Join, start: Start) -> None:
    killed = start()
    alive = join()
    alive.wait_lanes(1)
    killed.kill()
    assert alive.wait_lanes(2) == {0, 1}


def test_a_member_that_stood_still_proves_nothing(join: Join, start: Start) -> None:
    """It was expelled and doesn't know: what it asks first is refused. Then it is a member again, under another id."""
    stopped = start()
    alive = join()
    (own,) = alive.wait_lanes(1)
    (other,) = {0, 1} - {own}
    assert _proof(stopped, other) == "PROVED"
    stopped.send_signal(signal.SIGSTOP)
    alive.wait_lanes(2)
    stopped.send_signal(signal.SIGCONT)
    assert _proof(stopped, other) != "PROVED"
    alive.wait_lanes(1)
    deadline = time.monotonic() + 60
    while "PROVED" not in (_proof(stopped, 0), _proof(stopped, 1)):
        assert time.monotonic() < deadline


@pytest.mark.tier("default")
def test_a_refused_proof_proves_nothing(join: Join, target: BrokerHandle, flow: str) -> None:
    """Also while the member has its id and its lanes: what counts is the coordinator's answer."""
    member = join()
    member.wait_lanes(2)
    assert result_of(member.proof(0)) is ProofResult.PROVED
    clients.delete_topic(target.bootstrap, names.lanes_topic(flow, LANES))
    answer = member.proof(0)
    assert (answer.error != "", result_of(answer) is not ProofResult.PROVED) == (True, True), answer


def test_a_coordinator_that_is_away_holds_nothing_up(join: Join, target: BrokerHandle) -> None:
    """A proof is answered by its deadline, and once; another thread's commands return at once all the while."""
    member = join()
    member.wait_lanes(2)
    target.suspend()
    try:
        asked_s = time.monotonic()
        answer = member.proof(0)
        waited_s = time.monotonic() - asked_s
    finally:
        target.resume()
    assert (answer.error, result_of(answer)) == ("REQUEST_TIMED_OUT", ProofResult.AGAIN)
    assert PROOF_S_MAX <= waited_s < PROOF_S_MAX * 3
    deadline = time.monotonic() + 60
    while result_of(member.proof(0)) is not ProofResult.PROVED:
        assert time.monotonic() < deadline
    numbers = [event.answer.number for event in member.events if isinstance(event, ProofAnswered)]
    assert len(numbers) == len(set(numbers)), "answered twice"


def test_a_member_of_another_protocol_is_told(join: Join, target: BrokerHandle, flow: str) -> None:
    """A consumer that took the group's name: nothing is assigned while it is there."""
    settings = {"partition.assignment.strategy": "range", "session.timeout.ms": 6000}
    with closing(clients.consumer(target.bootstrap, **{"group.id": names.workers_group(flow)}, **settings)) as foreign:
        foreign.subscribe([names.lanes_topic(flow, LANES)])
        while not foreign.assignment():
            foreign.poll(0.1)
        member = join()
        member.wait(lambda events: any(isinstance(event, GroupTrouble) for event in events), "trouble")
        (told,) = member.events
        assert isinstance(told, GroupTrouble)
        assert "INCONSISTENT_GROUP_PROTOCOL" in str(told.error)
    member.wait_lanes(2)


def test_a_lanes_topic_with_more_partitions_is_told(join: Join, target: BrokerHandle, flow: str) -> None:
    clients.grow_topic(target.bootstrap, names.lanes_topic(flow, LANES), 3)
    member = join()
    assert member.wait_lanes(2) == {0, 1}
    assert LanesTopicUnfit(frozenset({2})) in member.events
    assert not member.consumer.holds(2)


def test_a_lanes_topic_that_is_missing_is_waited_for(target: BrokerHandle, unique: Callable[[str], str]) -> None:
    name = unique("missing")
    with closing(GroupMember(target.bootstrap, name, LANES)) as member:
        member.wait(lambda events: any(isinstance(event, GroupTrouble) for event in events), "trouble")
        (told,) = member.events
        assert isinstance(told, GroupTrouble)
        assert isinstance(told.error, TopicMissing)
        clients.create_topic(target.bootstrap, names.lanes_topic(name, LANES), LANES)
        assert member.wait_lanes(2) == {0, 1}


def test_a_target_that_is_away_is_told_once(join: Join, target: BrokerHandle) -> None:
    """Of one outage librdkafka reports some ten errors a second, of each broker and of all of them."""
    member = join()
    member.wait_lanes(2)
    target.kill()
    member.wait(lambda events: any(isinstance(event, GroupTrouble) for event in events), "trouble")
    target.restart()
    while result_of(member.proof(0)) is not ProofResult.PROVED:
        pass  # each takes until it is answered, or its deadline
    told = [event for event in member.events if isinstance(event, GroupTrouble)]
    assert [type(event.error) for event in told] == [Unreachable]
