"""`reconcile --local` begins from everything that knows of a partition: what only some of it knows is named, and no
agreement is told while it is."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.replicator import Replicator
from integration_tests.test_incidents_played import asked
from replicator.model import names

pytestmark = pytest.mark.tier("long")

AGREES, DIFFERS, UNPROVEN = 0, 1, 4
RECORDS = 20


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def put(copying: Copying, topic: str, values: list[bytes]) -> None:
    clients.put(clients.producer(copying.source), topic, *values)


def begun(copying: Copying, topics: list[str]) -> Replicator:
    """A worker that has copied RECORDS of each topic."""
    copying.file.write(topics=[f"^{copying.name}\\..*"])
    for topic in topics:
        clients.create_topic(copying.source, topic)
        put(copying, topic, numbered(0, RECORDS))
    worker = copying.running()
    for topic in topics:
        clients.wait_value(copying.target, f"{topic}.copy", 0, b"%d" % (RECORDS - 1))
    return worker


def local(copying: Copying, *options: str) -> tuple[int, dict[str, Any]]:
    code, found, said = asked(copying, "reconcile", "--local", *options)
    assert found, said
    return code, found


def unclear(found: dict[str, Any]) -> set[tuple[str, str, int]]:
    return {(it["name"], it["topic"], it["partition"]) for it in found["not_compared"]}


def test_what_only_some_know_of_is_named_and_agreement_is_not_told(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    gone, grown, kept = (f"{copying.name}.{name}" for name in ("gone", "grown", "kept"))
    worker = begun(copying, [gone, grown, kept])
    assert worker.stop() == 0, worker.tail()
    code, found = local(copying)
    assert (code, unclear(found), found["totals"]) == (AGREES, set(), {"same": 3 * RECORDS})

    put(copying, gone, numbered(RECORDS, 2 * RECORDS))  # half of it is copied when it goes
    clients.delete_topic(copying.source, gone)
    clients.grow_topic(copying.target, f"{grown}.copy", 3)
    clients.put(clients.producer(copying.target), f"{grown}.copy", b"of others", partition=2)
    code, found = local(copying)
    named = {("source_topic_deleted", gone, 0), ("target_partition_unknown", grown, 2)}
    assert (code, found["verdict"], unclear(found)) == (UNPROVEN, "unproven", named)
    assert found["totals"] == {"same": 2 * RECORDS}, "what both sides have is compared all the same"
    assert "2 partitions that can't be compared" in found["headline"]
    assert all(it["advice"] for it in found["not_compared"])
    assert local(copying, "--accept", "unproven")[0] == AGREES
    code, found = local(copying, "--repair", "apply")
    assert (code, unclear(found)) == (UNPROVEN, named), "and a repair has nothing to copy"
    assert clients.stable_end(copying.target, f"{gone}.copy") > RECORDS, "its copy stands as it stood"

    clients.delete_topic(copying.target, f"{kept}.copy")
    code, found = local(copying)
    assert (code, unclear(found)) == (UNPROVEN, named | {("target_topic_deleted", kept, 0)})
    code, found = local(copying, "--topics", grown)
    assert (code, unclear(found)) == (UNPROVEN, {("target_partition_unknown", grown, 2)})

    clients.delete_topic(copying.target, names.claims_topic(copying.file.flow))
    code, found = local(copying)
    assert code == UNPROVEN
    assert unclear(found) >= {("claims_topic_lost", kept, 0), ("source_topic_deleted", gone, 0)}


def test_without_target_and_claims_nothing_is_compared_and_all_is_named(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    only = f"{copying.name}.only"
    worker = begun(copying, [only])
    assert worker.stop() == 0, worker.tail()
    for topic in (f"{only}.copy", names.claims_topic(copying.file.flow)):
        clients.delete_topic(copying.target, topic)
    code, found = local(copying)
    assert (code, found["verdict"], found["totals"]) == (UNPROVEN, "unproven", {"same": 0})
    assert ("claims_topic_lost", only, 0) in unclear(found)
    assert not found["waiting"], "it isn't one that the flow has not begun"
