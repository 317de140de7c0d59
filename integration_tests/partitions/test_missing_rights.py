"""A right is missing on one topic: that topic waits and says which, where; the other one and the process go on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.failing_over import failover
from integration_tests.harness.guarded import USER, Guarded, Side, guard, login
from integration_tests.harness.replicator import Event, Replicator
from integration_tests.harness.secured import Secured, secured_broker
from integration_tests.harness.two_topics import assert_told, numbered

OLD, MORE = 20, 10
NOT_ALLOWED = 3
WAITS_S = 40.0  # below the transaction's and the requests' time-outs several times over
ALL = 1_000_000  # lines
LATER = pytest.mark.tier("full")
RIGHTS = [
    pytest.param("source", ("READ",), id="Read at the source", marks=LATER),
    pytest.param("source", ("READ", "DESCRIBE"), id="Read and Describe at the source", marks=LATER),
    pytest.param("target", ("WRITE",), id="Write at the target", marks=LATER),
    pytest.param("target", ("READ",), id="Read at the target", marks=LATER),
]
NOT_ALLOWED = 3
MakeGuarded = Callable[..., Guarded]


@pytest.fixture(scope="module")
def secured(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that checks rights."""
    with secured_broker(kind, tmp_path_factory.mktemp("secured")) as broker:
        clients.warm_up(broker.bootstrap)
        yield broker


@pytest.fixture
def make_guarded(secured: Secured, source: BrokerHandle, target: BrokerHandle, tmp_path: Path) -> Iterator[MakeGuarded]:
    """Makes flows whose source or target is the broker that checks rights; keywords as of `Copying`."""
    made: list[Copying] = []

    def make(side: Side, **settings: Any) -> Guarded:
        settings = {"partitions": 1, **settings}
        if side == "source":
            made.append(Copying(secured, target, tmp_path, source_via=login(secured), **settings))
        else:
            made.append(Copying(source, secured, tmp_path, via=login(secured), **settings))
        return guard(secured, made[-1], side)

    yield make
    for copying in made:
        copying.close()


def assert_names_the_right(
    waiting: Event, guarded: Guarded, rights: tuple[str, ...], *, committed: bool = True
) -> None:
    """The partition that waits says which right it lacks, on which topic of which cluster.

    Args:
        committed: whether it has a position, which expires where that can't be committed again.
    """
    unseen = guarded.side == "source" and "DESCRIBE" in rights  # nobody can tell which partitions there are
    assert (waiting["level"], waiting["partition"] in ((0, -1) if unseen else (0,))) == ("warning", True)
    assert waiting["reason"]
    assert_told(waiting, guarded.topic, guarded.cluster)
    assert any(right.capitalize() in waiting["detail"] for right in rights), waiting["detail"]
    if guarded.side == "source":
        assert guarded.two.flow.group not in waiting["detail"], "that is the target's group"
    if (guarded.side, rights) == ("target", ("READ",)):
        assert ("expires" in waiting["detail"]) is committed, waiting["detail"]


def assert_goes_on(worker: Replicator, guarded: Guarded, mark: int, expected: list[bytes]) -> None:
    """The topic goes on where it stood, and nothing has ended or failed meanwhile."""
    two = guarded.two
    worker.wait_event("copying", after=mark, topic=two.first, partition=0, timeout_s=WAITS_S)
    two.wait_copied(two.first, expected[-1])
    two.assert_second_goes_on()
    for name in ("incident", "lane_ended", "flow_ended"):
        assert not worker.seen(name), worker.tail()
    two.assert_stops(worker, 0)
    assert two.values(two.first) == expected
    assert "None[" not in worker.tail(ALL), "a message without a topic's name"


@pytest.mark.parametrize(("side", "rights"), RIGHTS)
def test_taken_away_and_given_back(make_guarded: MakeGuarded, side: Side, rights: tuple[str, ...]) -> None:
    guarded = make_guarded(side, limits={"recommit_interval_ms": 1_000})
    two = guarded.two
    worker = two.running(OLD)
    mark = worker.mark()
    guarded.take_away(*rights)
    two.put(two.first, numbered("more", MORE))
    waiting = worker.wait_event("waiting", after=mark, topic=two.first, timeout_s=WAITS_S)
    assert_names_the_right(waiting, guarded, rights)
    two.assert_second_goes_on()
    if rights != ("READ",) or side == "source":
        two.assert_kept_alive(two.first)
    assert two.position(two.first).offset in range(OLD, OLD + MORE + 1)
    assert two.position(two.first).offset == len(two.values(two.first)), "position and records disagree"
    mark = worker.mark()
    guarded.give_back(*rights)
    assert_goes_on(worker, guarded, mark, numbered("old", OLD) + numbered("more", MORE))


@pytest.mark.parametrize(("side", "rights"), [RIGHTS[0], *RIGHTS[2:]])
def test_missing_from_the_start(make_guarded: MakeGuarded, side: Side, rights: tuple[str, ...]) -> None:
    guarded = make_guarded(side)
    two = guarded.two
    if side == "target":
        clients.create_topic(two.target, guarded.topic)
    guarded.take_away(*rights)
    two.put(two.first, numbered("first", MORE))
    worker = two.flow.run()
    waiting = worker.wait_event("waiting", topic=two.first, timeout_s=WAITS_S)
    assert_names_the_right(waiting, guarded, rights, committed=False)
    two.assert_second_goes_on()
    assert two.values(two.first) == []
    mark = worker.mark()
    guarded.give_back(*rights)
    assert_goes_on(worker, guarded, mark, numbered("first", MORE))


def test_a_named_topic_that_a_new_flow_may_not_even_see_is_refused(make_guarded: MakeGuarded) -> None:
    """It could as well be a wrong name: nothing has been copied yet, and the message says which right is missing."""
    guarded = make_guarded("source")
    guarded.take_away("READ", "DESCRIBE")
    worker = guarded.two.flow.run()
    assert worker.wait_exit() == NOT_ALLOWED, worker.tail()
    (ended,) = worker.seen("flow_ended")
    assert_told(ended, guarded.topic, guarded.cluster, "Describe")


@pytest.mark.tier("full")
def test_missing_when_the_worker_starts_again(make_guarded: MakeGuarded) -> None:
    """The lane starts with what can start; the position of what waits is kept as it was."""
    guarded = make_guarded("source")
    two = guarded.two
    two.assert_stops(two.running(OLD), 0)
    guarded.take_away("READ")
    two.put(two.first, numbered("more", MORE))
    worker = two.flow.running()
    waiting = worker.wait_event("waiting", topic=two.first, timeout_s=WAITS_S)
    assert_names_the_right(waiting, guarded, ("READ",))
    two.assert_second_goes_on()
    assert two.position(two.first).offset == OLD
    mark = worker.mark()
    guarded.give_back("READ")
    assert_goes_on(worker, guarded, mark, numbered("old", OLD) + numbered("more", MORE))


@pytest.mark.tier("full")
def test_missing_when_the_worker_before_was_killed(make_guarded: MakeGuarded) -> None:
    """The dead one's name stays in the position that can't be committed: it must not be taken for a successor's."""
    guarded = make_guarded("target", limits={"discovery_interval_ms": 1_000})
    two = guarded.two
    worker = two.running(OLD)
    two.wait_copied(two.first, numbered("old", OLD)[-1])
    worker.kill()
    guarded.take_away("READ")
    worker = two.flow.run()
    waiting = worker.wait_event("waiting", topic=two.first, timeout_s=WAITS_S)
    assert_names_the_right(waiting, guarded, ("READ",))
    assert worker.runs_on(3.0), worker.tail()  # idle, so it asks for a successor with each discovery
    two.assert_second_goes_on()
    two.put(two.first, numbered("more", MORE))
    mark = worker.mark()
    guarded.give_back("READ")
    assert_goes_on(worker, guarded, mark, numbered("old", OLD) + numbered("more", MORE))


@pytest.mark.tier("extended")
def test_a_group_at_the_source_is_not_needed_or_named(make_guarded: MakeGuarded) -> None:
    """Positions are kept on the target alone. If the client asks for its group at the source, the message says that."""
    guarded = make_guarded("source")
    two = guarded.two
    guarded.take_group_away()
    two.put(two.first, numbered("first", MORE))
    worker = two.flow.run()
    told = worker.wait_any(
        lambda event: (
            event["event"] in ("waiting", "lane_ended", "flow_ended")
            or (event["event"] == "committed" and event["records"] > 0)
        ),
        "commit of a record, or a missing right",
    )
    if told["event"] != "committed":
        assert_told(told, guarded.cluster, two.flow.group)
    two.assert_stops(worker, 0, NOT_ALLOWED)
    assert "None[" not in worker.tail(ALL), "a message without a topic's name"


@pytest.mark.tier("full")
def test_a_stop_while_a_topic_waits_is_clean(make_guarded: MakeGuarded) -> None:
    guarded = make_guarded("target")
    two = guarded.two
    worker = two.running(OLD)
    guarded.take_away("WRITE")
    two.put(two.first, numbered("more", MORE))
    worker.wait_event("waiting", topic=two.first, timeout_s=WAITS_S)
    two.assert_second_goes_on()
    two.assert_stops(worker, 0, NOT_ALLOWED)
    guarded.give_back("WRITE")
    worker = two.flow.running()
    two.wait_copied(two.first, numbered("more", MORE)[-1])
    two.assert_stops(worker, 0)
    assert two.values(two.first) == numbered("old", OLD) + numbered("more", MORE)


@pytest.mark.tier("extended")
def test_other_flows_claims_that_may_not_be_seen_are_told_and_stop_nothing(make_guarded: MakeGuarded) -> None:
    """Circles over flows of other files can't be seen without them."""
    guarded = make_guarded("source")
    two = guarded.two
    worker = two.running(OLD)
    told = worker.wait_event("origins_not_checked")
    assert (told["level"], told["cluster"]) == ("warning", guarded.cluster)
    assert f"Describe on topic '__eos.{two.name}.claims'" in told["reason"]
    command = [sys.executable, "-m", "cli.main", "plan", "-c", str(two.flow.file.path), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert shown.returncode == 0, shown.stderr
    findings = json.loads(shown.stdout)["flows"][0]["findings"]
    (found,) = [found for found in findings if "come back over flows of other files" in found["message"]]
    assert (found["severity"], found["kind"]) == ("warning", "right")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    assert len(worker.seen("origins_not_checked")) == 1, "it is told once"


@LATER
def test_one_that_is_taken_away_while_the_flow_is_failed_over(make_guarded: MakeGuarded, secured: Secured) -> None:
    """The other topic's positions don't expire, and those of this one are kept again once the right is back."""
    guarded = make_guarded("target", limits={"recommit_interval_ms": 1_000})
    two = guarded.two
    secured.allow(USER, "GROUP", two.flow.group, "DESCRIBE", "READ", prefix=True)
    two.assert_stops(two.running(OLD), 0)
    code, verdict = failover(two.flow)
    assert code in (0, 1), verdict
    worker = two.flow.run("")
    worker.wait_event("positions_kept", timeout_s=WAITS_S)
    mark = worker.mark()
    guarded.take_away("READ")
    said = worker.wait_event("positions_not_kept", after=mark, timeout_s=WAITS_S)
    assert f"Read on topic {guarded.topic!r}" in said["reason"]
    two.assert_kept_alive(two.second)
    guarded.give_back("READ")
    two.assert_kept_alive(two.first)
    assert not worker.seen("flow_ended"), worker.tail()
    two.assert_stops(worker, 0)
