"""A flow in rounds, and what an operator decides about its incidents: those partitions go on, as with the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.exactly_once.test_rounds import continuous
from integration_tests.harness.jobs import Threads
from integration_tests.harness.processes import wait_until
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incident_resolve import WHY, asked, listed, lose

pytestmark = pytest.mark.tier("full", kafka="long")


@contextmanager
def rounds(two: TwoTopics) -> Iterator[Future[int]]:
    """Run it in rounds meanwhile; they end with 0."""
    flow, engine = continuous(two.flow), Threads()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run, engine)
        try:
            yield running
        finally:
            flow.stop()
        assert running.result(60) == 0
    engine.close()


def open_id(two: TwoTopics, name: str, running: Future[int]) -> str:
    """The id of the incident that is open, once a lane has written it down."""
    path = two.flow.file.path

    def found() -> list[str]:
        assert not running.done(), running.result()
        return [it["id"] for it in listed(path) if it["name"] == name and it["commands"]]

    wait_until(lambda: bool(found()), f"{name} is listed", str)
    (id_,) = found()
    return id_


def test_what_the_source_has_lost_is_skipped_while_rounds_run(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path = two.flow.file.path
    two.assert_stops(two.running(10), 0)
    lose(two, 10, 15)
    with rounds(two) as running:
        id_ = open_id(two, "source_records_gone", running)
        code, done, said = asked(path, "resolve", id_, "--skip", "--why", WHY, "--by", "ann", "--wait", "30")
        assert (code, done["acted"], done["moved"]) == (0, "skipped", [10, 15]), said
        two.wait_copied(two.first, b"unread 9")
        two.assert_second_goes_on()
    assert two.values(two.first) == [*numbered("old", 10), *numbered("unread", 10)[5:]]
    assert listed(path) == []
    (gap,) = two.status()["signed_gaps"]
    assert (gap["topic"], gap["first"], gap["end"], gap["by"]) == (two.first, 10, 15, "ann")
