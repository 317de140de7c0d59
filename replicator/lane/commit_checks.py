"""What must be so before a transaction ends, by what the clusters have answered. Pure; called by `lane.transaction`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replicator.lane.partition import LanePartition
from replicator.lane.policy import Progress
from replicator.lane.positions import LanePositions
from replicator.model.counting import named
from replicator.model.errors import Abortable, Fatal, Incident, ReplicatorError, TopicMissing
from replicator.model.partition import Partition, Seek
from replicator.planes.contract import Copied


class IdMismatch(Abortable):
    """Topics of these source partitions have another id than their positions say, or their clusters don't say which."""

    def __init__(self, answers: Mapping[Partition, str | ReplicatorError], at_target: Collection[Partition]) -> None:
        """`at_target`: those of which the target's answers are meant, not the source's."""
        self.answers, self.at_target = dict(answers), frozenset(at_target)
        told = named([f"{at}: {_short(answer)}" for at, answer in sorted(self.answers.items())])
        unknown = all(map(_says_nothing, self.answers.values()))
        super().__init__(("can't be asked: " if unknown else "not the topics of the positions: ") + told)


class OriginMismatch(IdMismatch):
    """These source partitions come from where they would go, or that can't be known now."""

    def __init__(self, answers: Mapping[Partition, ReplicatorError]) -> None:
        super().__init__(answers, ())


class TimestampsReplaced(Abortable):
    """The target has given records of these source partitions other timestamps."""

    def __init__(self, incidents: Collection[Incident]) -> None:
        self.incidents = incidents
        super().__init__(named([_short(found) for found in incidents], "; "))


def _says_nothing(answer: str | ReplicatorError) -> bool:
    """Tell whether the cluster has said neither an id nor that there is no such topic."""
    return not isinstance(answer, (str, Incident, TopicMissing))


def _short(answer: str | ReplicatorError) -> str:
    """Return an id, or why it isn't known. Advice comes with the incident that is found."""
    return f"{answer.name}: {answer.detail}" if isinstance(answer, Incident) else str(answer)


def with_position(positions: LanePositions, partitions: Collection[Partition]) -> dict[Partition, LanePartition]:
    """Return those that have a position."""
    return {at: positions.entries[at] for at in partitions if positions.entries[at].position is not None}


def moves(entry: LanePartition, end: Seek | None) -> bool:
    """Tell whether the position moves without records."""
    return entry.position is not None and end is not None and end.offset > entry.position.offset


def acks_tell(entry: LanePartition, done: Copied) -> bool:
    """Tell whether the acks of exactly_once show that the target topic is the one of the position.

    They do where the first record stands directly behind the marker that ended the position's last record: a topic that
    was created anew begins at 0, and there would have to be as many foreign records in it. Such a one is found by the
    next discovery. After an abort, and before the first record, the acks tell nothing.
    """
    assert entry.position is not None
    covered = entry.position.evidence.next_target_offset
    return done.records > 0 and covered > 0 and done.first_target == covered + 1


def check_covered(copied: Mapping[Partition, Copied], progress: Progress) -> None:
    """Check that records and position commit together: without its position a partition is copied twice."""
    uncovered = {at for at, done in copied.items() if done.records} - progress.positions.keys()
    if uncovered:
        raise Fatal(f"records without a position: {named([str(at) for at in sorted(uncovered)])}")


def check_ids(
    entries: Mapping[Partition, LanePartition],
    here: Mapping[str, str | ReplicatorError],
    there: Mapping[str, str | ReplicatorError],
) -> None:
    """Raise IdMismatch unless ids are those of the positions. `here` are ids of the source's topics, `there` those that
    the target was asked for."""
    others: dict[Partition, str | ReplicatorError] = {}
    at_target: set[Partition] = set()
    for at, entry in entries.items():
        assert entry.position is not None
        was, target = entry.position.evidence, entry.route.target.topic
        answer = here[at.topic]
        if answer != was.source_topic_id:
            others[at] = answer
        elif target in there and there[target] != was.target_topic_id:
            others[at] = there[target]
            at_target.add(at)
    if others:
        raise IdMismatch(others, at_target)
