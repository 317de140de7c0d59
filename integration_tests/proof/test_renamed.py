"""`verify` where the flow file has changed its topics: renamed at the target, and back; taken out of the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.copying import Copying
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incidents_played import asked

pytestmark = pytest.mark.tier("long", kafka="long")

BOTH = (("verify",), ("verify", "--without-source"))


def run(copying: Copying, target: str, values: Sequence[bytes], last: bytes = b"") -> None:
    """The flow runs until it has copied these, each in a transaction of its own, or until `last` stands there."""
    worker = copying.running()
    for value in values:
        clients.put(clients.producer(copying.source), copying.topic, value, partition=0, key=b"key")
        clients.wait_value(copying.target, target, 0, value)
    if last:
        clients.wait_value(copying.target, target, 0, last)
    assert worker.stop() == 0


def rows_of(copying: Copying, words: Sequence[str], verdict: str) -> list[dict[str, Any]]:
    code, found, said = asked(copying, *words)
    assert (code, found["verdict"]) == ({"stands": 0, "unproven": 4}[verdict], verdict), (found, said)
    return list(found["partitions"])


def assert_verified(copying: Copying, target: str, copies: int, verdict: str = "stands", former: str = "") -> None:
    for words in BOTH:
        (row,) = rows_of(copying, words, verdict)
        assert (row["target"]["topic"], row["standing"]) == (target, copies), row
        assert [former in note for note in row["notes"]] == [True] * bool(former), row


@pytest.mark.parametrize("quiet", [True, False])
def test_a_topic_that_was_renamed_and_back_does_not_differ(make_copying: MakeCopying, quiet: bool) -> None:
    """`quiet`: nothing new comes while it has the other name."""
    copying = make_copying(partitions=1)
    copy, other = copying.copy, f"{copying.topic}.other"
    second = numbered("second", 0 if quiet else 3)
    run(copying, copy, numbered("first", 8))
    assert_verified(copying, copy, 8)
    copying.file.write(rename="{topic}.other")
    run(copying, other, second, last=b"first 7")
    assert_verified(copying, other, 8 + len(second), former=copy)
    copying.file.write(rename="{topic}.copy")
    assert_verified(copying, copy, 8, former=other)  # before it runs
    run(copying, copy, numbered("third", 3))
    copies = 11 + len(second)
    assert_verified(copying, copy, copies, former=other)
    code, local, said = asked(copying, "reconcile", "--local")
    assert (code, [note for row in local["partitions"] for note in row["notes"] if "doubted" in note]) == (0, []), said

    copying.file.write(rename="{topic}.other")
    run(copying, other, numbered("fourth", 2))
    copying.file.write(rename="{topic}.copy")
    run(copying, copy, numbered("fifth", 2))
    (row,) = rows_of(copying, ("verify",), "unproven")  # which of the two the third were copied to nothing says
    assert row["said"][0].endswith(f"between source offsets 8 and {copies}: rename was changed")
    assert (row["empty"], row["foreign"]) == (0, 0)


def test_a_topic_that_was_taken_out_of_the_flow_is_named(make_copying: MakeCopying) -> None:
    copying = make_copying(partitions=1)
    two = TwoTopics(copying)
    worker = two.running(20)
    two.assert_stops(worker, 0)
    copying.file.write(topics=[two.first])
    code, found, said = asked(copying, "verify")
    assert (code, [row["source"]["topic"] for row in found["partitions"]]) == (0, [two.first]), said
    assert [note.split(", ")[0] for note in found["notes"]] == [f"topic {two.second} isn't part of the flow any more"]
    rows = rows_of(copying, ("verify", "--without-source"), "stands")
    assert [(row["source"]["topic"], row["standing"], len(row["notes"])) for row in rows] == [
        (two.first, 20, 0),
        (two.second, 20, 1),
    ]
    assert "isn't part of the flow any more" in rows[1]["notes"][0]
    rows = rows_of(copying, ("verify", "--without-source", "--topics", two.second), "stands")
    assert [row["source"]["topic"] for row in rows] == [two.second]
