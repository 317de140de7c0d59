"""What operators have decided to leave out is listed by reconcile, and is no difference; anything else is."""

from __future__ import annotations

import json

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics
from integration_tests.spark.conftest import Command
from integration_tests.test_incident_resolve import WHY, asked, filled_by_another, open_id

pytestmark = [pytest.mark.timeout(600), pytest.mark.tier("full")]
DIFFERS = 1


def test_a_record_that_was_skipped_is_no_difference(make_copying: MakeCopying, command: Command) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path, copy = two.flow.file.path, two.copy_of(two.first)
    clients.create_topic(two.target, copy, 1, {"cleanup.policy": "compact"})
    worker = two.flow.running()
    writer = clients.producer(two.source)
    for key, value in ((b"1", b"one"), (None, b"refused"), (b"2", b"two"), (b"3", b"three")):
        clients.put(writer, two.first, value, key=key)
    id_ = open_id(path, "record_refused", worker)
    assert asked(path, "resolve", id_, "--skip", "--why", WHY, "--by", "ann")[0] == 0
    two.wait_copied(two.first, b"three")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)

    code, said = command(two.flow, "--json")
    outcome, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert (code, outcome["agrees"], outcome["verdict"]) == (0, True, "no_difference"), said
    first = next(each for each in outcome["partitions"] if each["source"]["topic"] == two.first)
    (gap,) = first["signed_gaps"]
    assert (gap["first"], gap["end"], gap["by"], gap["why"], gap["command"]) == (1, 2, "ann", WHY, "skip")
    assert (first["source_records"], first["target_records"], first["position_records"]) == (3, 3, 3)
    assert command(two.flow)[1].count("as ann has decided") == 1

    clients.put(clients.producer(two.target), copy, b"somebody's", key=b"4")
    code, _ = command(two.flow)
    assert code == DIFFERS, "a gap that is signed hides nothing else"


def test_of_a_partition_that_was_adopted_what_comes_behind_is_compared(
    make_copying: MakeCopying, command: Command
) -> None:
    two = TwoTopics(make_copying(partitions=1))
    path, copy = two.flow.file.path, two.copy_of(two.first)
    worker, id_ = filled_by_another(two)
    assert asked(path, "resolve", id_, "--adopt", "6", "--why", WHY, "--by", "ann")[0] == 0
    two.wait_copied(two.first, b"old 9")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)

    code, said = command(two.flow, "--json")
    outcome, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert code == 0, said
    first = next(each for each in outcome["partitions"] if each["source"]["topic"] == two.first)
    assert (first["source_records"], first["target_records"], first["position_records"]) == (4, 4, 4)
    assert "before 6 (target_not_empty, --adopt), as ann has decided" in " ".join(first["notes"])

    clients.put(clients.producer(two.target), copy, b"somebody's")
    code, _ = command(two.flow)
    assert code == DIFFERS
