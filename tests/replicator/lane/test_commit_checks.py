"""What an aborted transaction is told with: a line that can be read, however many partitions it concerns."""

from __future__ import annotations

from replicator.lane.commit_checks import IdMismatch, TimestampsReplaced
from replicator.lane.readiness import TargetNotReady
from replicator.model.errors import Incident, TopicMissing, Unreachable
from replicator.model.partition import Partition

TOPIC = "payments.card-transactions"
PARTITIONS = [Partition(TOPIC, number) for number in range(64)]


def test_of_many_partitions_with_another_topic_the_first_are_named() -> None:
    told = str(IdMismatch(dict.fromkeys(PARTITIONS, "AAAAAAAAAAAAAAAAAAAAAA"), ()))
    assert told.startswith(f"not the topics of the positions: {TOPIC}[0]: AAAAAAAAAAAAAAAAAAAAAA, {TOPIC}[1]: ")
    assert told.endswith(" and 61 more")
    assert len(told) < 250


def test_where_nothing_differs_and_nobody_answers_no_other_topic_is_claimed() -> None:
    first, second = PARTITIONS[:2]
    away = Unreachable("cluster 'east': cannot describe topic payments: cannot connect")
    assert str(IdMismatch({first: away}, ())) == f"can't be asked: {first}: {away}"
    for answer in ("AAAAAAAAAAAAAAAAAAAAAA", TopicMissing("there is none"), Incident("source_topic_deleted", "gone")):
        assert str(IdMismatch({first: away, second: answer}, ())).startswith("not the topics of the positions: ")


def test_an_answer_that_is_an_incident_is_told_without_its_advice() -> None:
    gone = Incident("source_topic_deleted", "it isn't there any more", topic=TOPIC)
    told = str(IdMismatch(dict.fromkeys(PARTITIONS, gone), ()))
    assert "source_topic_deleted: it isn't there any more" in told
    assert gone.advice not in told
    assert len(told) < 320


def test_what_else_aborts_for_many_partitions_names_the_first() -> None:
    replaced = [Incident("target_rewrites_timestamps", "the broker says so", topic=TOPIC, partition=7)] * 64
    not_ready = TargetNotReady(dict.fromkeys(PARTITIONS, "it has no leader"))
    for error in (TimestampsReplaced(replaced), not_ready):
        assert str(error).endswith(" and 61 more")
        assert len(str(error)) < 250
