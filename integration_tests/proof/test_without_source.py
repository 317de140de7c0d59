"""`verify --without-source`: what was copied is proven once the source is gone, and others write to the target."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incidents_played import asked, without_its_end
from replicator.model import names
from replicator.proof.verified import WITHOUT_SOURCE

pytestmark = pytest.mark.tier("long")

ALONE = ("verify", "--without-source")


def test_what_was_copied_is_proven_by_the_target_alone(
    make_copying: MakeCopying, source: BrokerHandle, target: BrokerHandle
) -> None:
    copying = make_copying(partitions=1)
    two = TwoTopics(copying)
    worker = two.running(20)
    two.put(two.first, numbered("new", 30))
    two.wait_copied(two.first, b"new 29")
    two.assert_stops(worker, 0)
    code, both, said = asked(copying, "verify")
    assert code == 0, said
    source.kill()
    try:
        code, alone, said = asked(copying, *ALONE)
        assert (code, alone["source_asked"], alone["notes"]) == (0, False, [WITHOUT_SOURCE]), said
        assert alone["partitions"] == both["partitions"]
        code, part, said = asked(copying, *ALONE, "--topics", two.first)
        assert [row["source"]["topic"] for row in part["partitions"]] == [two.first], said
        code, _, said = asked(copying, *ALONE, "--topics", "never")
        assert (code, "has not copied topic never" in said) == (2, True), said

        clients.put(clients.producer(target.bootstrap), two.copy_of(two.first), b"written after it went over")
        code, alone, said = asked(copying, *ALONE)
        assert (code, alone["verdict"]) == (0, "stands"), said

        without_its_end(two, target, 21)
        code, alone, said = asked(copying, *ALONE)
        wrong = [row["target"]["topic"] for row in alone["partitions"] if row["verdict"] != "stands"]
        assert (code, wrong) == (1, [two.copy_of(two.first)]), said
        clients.delete_topic(target.bootstrap, two.copy_of(two.second))
        code, alone, said = asked(copying, *ALONE)
        assert [it["name"] for it in alone["not_compared"]] == ["target_topic_deleted"], said
        clients.delete_topic(target.bootstrap, names.claims_topic(two.name))
        code, alone, said = asked(copying, *ALONE)
        lost = [(it["name"], it["topic"]) for it in alone["not_compared"]]
        assert lost == [("claims_topic_lost", two.second)], said
        clients.delete_topic(target.bootstrap, names.control_topic(two.name))
        code, _, said = asked(copying, *ALONE)
        assert (code, "nothing_to_reconcile" in said) == (4, True), said
    finally:
        source.restart()
