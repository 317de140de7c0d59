"""What `reconcile --local` and `verify` say of a flow whose positions were set, and whose topics were restarted."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incident_resolve import asked as of_incidents
from integration_tests.test_incident_resolve import created_again, open_id
from integration_tests.test_position_set import WHY, asked, set_words, stopped


def compared(two: TwoTopics) -> tuple[int, dict[str, Any]]:
    """Exit code of `reconcile --local`, and what it says of the first topic."""
    words = ["reconcile", "--local", "-c", str(two.flow.file.path), "--json"]
    done = subprocess.run([sys.executable, "-m", "cli.main", *words], capture_output=True, text=True, check=False)
    outcome, _ = json.JSONDecoder().raw_decode(done.stdout[done.stdout.index("{") :])
    return done.returncode, next(it for it in outcome["partitions"] if it["source"]["topic"] == two.first)


@pytest.mark.tier("full")
def test_a_comparison_begins_behind_what_is_not_the_flows_and_finds_damage_there(make_copying: MakeCopying) -> None:
    two = stopped(make_copying)
    assert compared(two)[0] == 0
    assert asked(two, *set_words(two, 6))[0] == 0
    worker = two.flow.running()
    two.wait_position(two.first, 10)
    two.assert_stops(worker, 0)
    code, first = compared(two)
    assert code == 0, first
    assert (first["source_records"], first["target_records"], first["position_records"]) == (4, 4, 4)
    assert "before 6 (position set), as ann has decided" in " ".join(first["notes"])

    two.put(two.first, numbered("later", 10))
    assert asked(two, *set_words(two, 15))[0] == 0
    worker = two.flow.running()
    two.wait_copied(two.first, b"later 9")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    code, first = compared(two)
    assert code == 0, first
    assert [(gap["first"], gap["end"]) for gap in first["signed_gaps"]] == [(10, 15)]
    assert first["target_records"] == 9

    clients.put(clients.producer(two.target), two.copy_of(two.first), b"somebody's")
    code, first = compared(two)
    assert code == 1, first


def verified(two: TwoTopics) -> tuple[int, dict[str, Any]]:
    """Exit code of `verify`, and what it says of the first topic."""
    words = [sys.executable, "-m", "cli.main", "verify", "-c", str(two.flow.file.path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=90)
    found = json.loads(done.stdout)
    return done.returncode, next(it for it in found["partitions"] if it["source"]["topic"] == two.first)


@pytest.mark.tier("full")
@pytest.mark.parametrize("offset", [6, 10], ids=["back", "behind somebody's record"])
def test_the_map_is_verified_from_where_a_decision_has_the_flow_begin(make_copying: MakeCopying, offset: int) -> None:
    two = stopped(make_copying)
    if offset == 10:
        clients.put(clients.producer(two.target), two.copy_of(two.first), b"somebody's")
        code, first = verified(two)
        assert (code, first["foreign"]) == (1, 1)
    assert asked(two, *set_words(two, offset))[0] == 0
    code, first = verified(two)
    assert (code, first["source_offsets"], first["copies"], first["said"]) == (0, [offset, offset], 0, [])
    assert f"before {offset} (position set), as ann has decided" in " ".join(first["notes"])
    two.put(two.first, numbered("later", 3))
    worker = two.flow.running()
    two.wait_position(two.first, 13)
    two.assert_stops(worker, 0)
    code, first = verified(two)
    assert (code, first["source_offsets"], first["copies"]) == (0, [offset, 13], 13 - offset)
    assert first["said"] == []
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"somebody's")
    code, first = verified(two)
    assert (code, first["foreign"]) == (1, 1)


@pytest.mark.tier("full")
def test_what_was_left_out_is_nothing_that_the_map_should_tell_of(make_copying: MakeCopying) -> None:
    two = stopped(make_copying)
    two.put(two.first, numbered("unread", 10))
    assert asked(two, *set_words(two, 15))[0] == 0
    code, first = verified(two)
    assert (code, first["verdict"], first["said"]) == (0, "stands", []), "nothing was copied behind the gap yet"
    worker = two.flow.running()
    two.wait_position(two.first, 20)
    two.assert_stops(worker, 0)
    code, first = verified(two)
    assert (code, first["source_offsets"], first["copies"], first["said"]) == (0, [0, 20], 15, [])
    assert "source offsets 10 to 14 were left out (position set), as ann has decided" in " ".join(first["notes"])
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"somebody's")
    code, first = verified(two)
    assert (code, first["foreign"]) == (1, 1)


@pytest.mark.tier("full")
def test_of_a_topic_that_was_restarted_the_records_of_the_one_before_are_told_apart(make_copying: MakeCopying) -> None:
    two = TwoTopics(make_copying(partitions=1))
    worker = two.running(10)
    created_again(two, "new")
    id_ = open_id(two.flow.file.path, "source_topic_recreated", worker)
    words = ("resolve", id_, "--restart-topic", "--why", WHY, "--by", "ann")
    assert of_incidents(two.flow.file.path, *words)[0] == 0
    two.wait_copied(two.first, b"new 9")
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    code, first = compared(two)
    assert code == 0, first
    assert (first["source_records"], first["target_records"], first["position_records"]) == (10, 10, 10)
    assert "are of the source topic with the id" in " ".join(first["notes"])
    clients.put(clients.producer(two.target), two.copy_of(two.first), b"somebody's")
    assert compared(two)[0] == 1
