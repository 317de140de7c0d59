"""Incidents made of a status: which there are, and what makes one the same as before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.inspect.flow_runs import EndedFlow
from replicator.inspect.flow_status import FlowStatus, PartitionStatus
from replicator.inspect.incidents import matching, open_incidents
from replicator.inspect.map_incidents import MapIncident
from replicator.model.errors import Incident
from replicator.model.incident_kinds import KINDS, advice_for
from replicator.model.partition import Partition
from replicator.state import occurrences

GONE = PartitionStatus(
    source_topic="t",
    partition=3,
    target_topic="copy",
    position=40,
    source_end=100,
    lag_records=60,
    state="records_lost",
    incident="source_records_gone",
    detail="offsets 40 to 59 are gone",
)
FINE = PartitionStatus(source_topic="t", partition=0, target_topic="copy", state="in_sync")
WAITS = PartitionStatus(source_topic="t", partition=1, target_topic="copy", state="waiting", detail="no leader")
MISSING = PartitionStatus(
    source_topic="s",
    partition=-1,
    target_topic="copy",
    state="topic_missing",
    incident="unknown_source_topic",
    detail="it isn't there",
)
FLOW = FlowStatus("f", "east", "west", "exactly_once", (FINE, GONE, WAITS, MISSING))


def test_what_needs_a_decision_is_one_and_what_only_takes_time_is_none() -> None:
    found = open_incidents(FLOW)
    assert [(it.name, it.where) for it in found] == [("unknown_source_topic", "s"), ("source_records_gone", "t[3]")]
    it = found[1]
    assert (it.flow, it.position, it.source_end, it.lag_records) == ("f", 40, 100, 60)
    assert (it.detail, it.target_topic) == ("offsets 40 to 59 are gone", "copy")
    assert open_incidents(replace(FLOW, partitions=(FINE, WAITS))) == []


def test_one_of_the_whole_flow_comes_first() -> None:
    first, *others = open_incidents(replace(FLOW, incident="control_topic_lost"))
    assert (first.name, first.where, first.topic) == ("control_topic_lost", "the flow", "")
    assert first.detail
    assert len(others) == 2


def test_one_that_has_ended_the_flow_is_one_of_the_flow_and_is_told_once() -> None:
    end = EndedFlow("Incident", "control_topic_unfit at __eos.f.control: why", 4, "me", 10, "control_topic_unfit")
    ended = replace(FLOW, partitions=(FINE,), ended=end)
    (it,) = open_incidents(ended)
    assert (it.name, it.where, end.detail in it.detail) == ("control_topic_unfit", "the flow", True)
    (found,) = open_incidents(replace(ended, incident="control_topic_unfit"))
    assert found.id == it.id, "found anew it is the same"
    assert [each.name for each in open_incidents(replace(ended, incident="control_topic_lost"))] == [
        "control_topic_lost",
        "control_topic_unfit",
    ]
    of_topic = replace(ended, ended=replace(end, incident=""))
    assert open_incidents(of_topic) == [], "those of partitions are judged anew"


def test_what_is_wrong_with_the_map_is_one() -> None:
    lost = MapIncident("map_lost", "__eos.f.offsets", -1, "it doesn't exist")
    opened = MapIncident("map_transaction_open", "__eos.f.offsets", 3, "since long")
    found = open_incidents(replace(FLOW, partitions=(), map_incidents=(lost, opened)))
    assert [(it.name, it.where, it.detail) for it in found] == [
        ("map_lost", "__eos.f.offsets", "it doesn't exist"),
        ("map_transaction_open", "__eos.f.offsets[3]", "since long"),
    ]
    assert found[0].id != found[1].id
    assert all(it.advice == KINDS[it.name].advice for it in found)


def test_the_same_facts_are_the_same_incident_and_others_are_not() -> None:
    (_, it) = open_incidents(FLOW)

    def id_of(**changed: object) -> str:
        return open_incidents(replace(FLOW, partitions=(replace(GONE, **changed),)))[0].id  # type: ignore[arg-type]

    assert id_of(lag_records=70, source_end=110, detail="more is gone", last_commit_ms=5) == it.id
    assert len({it.id, id_of(position=41), id_of(partition=4), id_of(incident="source_truncated")}) == 4
    assert open_incidents(replace(FLOW, flow="g"))[1].id != it.id


def test_an_id_is_as_long_before_a_lane_has_written_the_incident_down_as_after() -> None:
    at = Partition("t", 3)
    written = occurrences.found(Incident(GONE.incident, GONE.detail), at, at, "worker", 1, 0)
    (_, before) = open_incidents(FLOW)
    (after,) = open_incidents(replace(FLOW, partitions=(replace(GONE, occurrence=written.id),)))
    assert after.id == written.id != before.id
    assert len(before.id) == len(after.id)


def test_the_id_that_was_shown_before_a_lane_has_written_it_down_stays_good() -> None:
    (_, before) = open_incidents(FLOW)
    found = open_incidents(replace(FLOW, partitions=(MISSING, replace(GONE, occurrence="3f2a9c1d8e70"))))
    assert [it.id for it in matching(found, before.id)] == ["3f2a9c1d8e70"]
    assert [it.id for it in matching(found, "3f2a")] == ["3f2a9c1d8e70"]
    elsewhere = open_incidents(replace(FLOW, partitions=(replace(GONE, occurrence="3f2a9c1d8e70", position=41),)))
    assert matching(elsewhere, before.id) == []


def test_an_id_is_found_by_how_it_begins() -> None:
    found = open_incidents(FLOW)
    assert matching(found, found[0].id[:5].upper()) == [found[0]]
    assert matching(found, "") == found
    assert matching(found, "no such") == []


def test_each_kind_is_told_with_what_to_do() -> None:
    for name, kind in KINDS.items():
        (it,) = open_incidents(replace(FLOW, partitions=(replace(GONE, incident=name),)))
        assert (it.found, it.means, it.advice) == (kind.found, kind.means, advice_for(name, it.id, "f"))
        assert "resolve ID" not in it.advice
        assert "--flow FLOW" not in it.advice
    (it,) = open_incidents(replace(FLOW, partitions=(replace(GONE, incident="of_a_later_version"),)))
    assert (it.found, it.means) == ("", "")
    assert it.advice == advice_for("of_a_later_version") != ""


def test_of_a_record_that_is_too_large_it_is_said_beforehand_what_setting_it_aside_does_not_keep() -> None:
    (it,) = open_incidents(replace(FLOW, partitions=(replace(GONE, incident="record_too_large"),)))
    assert "larger than limits.record_bytes_max, --set-aside keeps only headers" in it.advice


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("target_has_later_records", "give the source offset after the last of them"),
        ("source_truncated", "--retry isn't safe"),
        ("target_not_empty", "no position in any partition of the target topic"),
        ("target_topic_recreated", "partitions and configs"),
        ("control_topic_unreadable", "pauses, rates, and what was failed over"),
        ("control_topic_unfit", "pauses, rates, and what was failed over"),
    ],
)
def test_the_advice_warns_of_what_would_lose_or_double_records(name: str, said: str) -> None:
    assert said in advice_for(name)
