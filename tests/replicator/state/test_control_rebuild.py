"""A control topic that was lost is made of what else stands on the target, and every generation before is fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.model.checkpoint import NOBODY, Evidence, Position, Stored, Unreadable
from replicator.model.errors import ConfigError, Incident, TakenOver
from replicator.model.partition import Committed, Partition
from replicator.state.claims import Claim, Claims
from replicator.state.control_rebuild import (
    ControlEvidence,
    RebuiltControl,
    StillFailedOver,
    check_stopped,
    lanes_of_ids,
    rebuilt,
)
from replicator.state.control_topic import Control, check_generation, fold
from replicator.state.decisions import NotDecided, Objection
from replicator.state.generation import Generation, Kind, LaneAssignment, Phase
from replicator.state.starts import TopicStarts, encode
from replicator.workers.settings import OwnFile

pytestmark = pytest.mark.tier("default")

OWN = OwnFile(hash="h", revision=None, settings='{"lanes":2}', source_cluster="west-id")
A, B = Partition("t.copy", 0), Partition("t.copy", 1)


def claim(at: Partition, generation: int = 1, source_cluster: str = "west-id") -> Claim:
    source = Partition("t", at.partition)
    return Claim(at, source, "s", "d", 0, 0, generation, "me", 1, source_cluster)


def position(generation: int, owner: str = NOBODY) -> Position:
    evidence = Evidence(
        generation=generation,
        owner=owner,
        source_topic="t",
        source_cluster="west-id",
        source_topic_id="s",
        target_topic_id="d",
        log_start=0,
        next_target_offset=0,
        delivery="exactly_once",
    )
    return Position(7, evidence)


def standing(control: Control | None = None, generation: int = 2, ids: tuple[str, ...] = ()) -> ControlEvidence:
    claims = Claims({at: claim(at) for at in (A, B)}, ())
    positions: dict[Partition, Stored] = {A: position(1), B: position(generation)}
    return ControlEvidence(control, claims, positions, ids)


def made(of: ControlEvidence) -> RebuiltControl:
    return rebuilt("f", of, OWN, 2, "me", 1)


def written(control: Control | None, of: RebuiltControl) -> Control:
    """The topic once a change has written its records, as `Changer` does."""
    found = control or Control()
    for record in of.records:
        found = found.apply(record)
    return found


IDS = ("eos.f.1.0", "eos.f.1.1", "eos.f.3.4", "eos.f.control", "eos.f.groups", "eos.other.9.0", "eos.f.x.9.0")


def test_ids_say_which_generations_there_were_and_how_many_lanes_they_may_have() -> None:
    assert lanes_of_ids("f", IDS) == {1: 2, 3: 5}


def test_all_that_is_named_is_fenced_before_a_generation_above_it_opens() -> None:
    control = written(None, made(standing(ids=IDS)))
    assert control.newest == 4
    assert control.to_fence() == [
        *((1, lane) for lane in range(2)),
        (2, 0),
        *((3, lane) for lane in range(5)),
        *((4, lane) for lane in range(2)),
    ]
    for record in control.finish(2):
        control = control.apply(record)
    assert control.open is not None
    assert (control.open.number, control.open.lanes, control.open.partitions) == (4, 2, {"t": 2})
    assert (control.open.settings, control.open.source_cluster) == (OWN.settings, "west-id")
    assert [it.phase for it in control.generations.values()][:-1] == [Phase.CLOSED] * 3
    for generation in (1, 2, 3):
        with pytest.raises(TakenOver):
            check_generation(control, generation, LaneAssignment(2))
    check_generation(control, 4, control.open.assignment)
    assert control.starts() == {}, "what was never copied begins at earliest"
    assert control.claims_partition(0) is None, "nobody knows which lane has claimed what"
    again = fold((it.key, it.encode()) for it in control.generations.values())
    assert again.open == control.open


def test_a_topic_that_lost_its_last_records_goes_on_above_what_it_knows() -> None:
    known = Control({1: Generation(1, Phase.OPEN, 3, partitions={"t": 2}, start_records=0)})
    of = made(standing(known))
    assert of.lost == "it knows generation 1, and something on the target is of generation 2"
    control = written(known, of)
    assert control.to_fence() == [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1)]
    assert control.first_listing() == {"t": 2}


def test_what_somebody_says_is_failed_over_still_stays_so() -> None:
    def of(still: StillFailedOver) -> Generation:
        return rebuilt("f", standing(), OWN, 2, "me", 1, still).opened

    whole = of(StillFailedOver(whole=True))
    assert (whole.kind, whole.lanes, whole.partitions, whole.failed_over) == (Kind.FROZEN, 1, {"t": 2}, {})
    part = of(StillFailedOver(topics=frozenset({"t"})))
    assert (part.kind, part.lanes, part.failed_over) == (Kind.LIVE, 2, {"t": part.number})
    both = of(StillFailedOver(whole=True, topics=frozenset({"t"})))
    assert (both.kind, both.failed_over) == (Kind.FROZEN, {"t": both.number})
    with pytest.raises(ConfigError, match="never copied a source topic 'tt'"):
        of(StillFailedOver(topics=frozenset({"tt"})))


def test_topics_that_were_failed_over_stay_so() -> None:
    """They may have been given back since; then somebody can say so. Copied again they would be written twice."""
    known = Control({1: Generation(1, Phase.OPEN, 3, partitions={"t": 2}, start_records=0, failed_over={"t": 1})})
    assert made(standing(known)).opened.failed_over == {"t": 1}


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (ControlEvidence(None, Claims({}, ()), {}, ()), Objection.NOTHING_LOST),
        (standing(Control({2: Generation(2, Phase.OPEN, 1)})), Objection.NOTHING_LOST),
        (standing(Control({3: Generation(3, Phase.PREPARING, 1)})), Objection.NOTHING_LOST),
        (replace(standing(), claims=Claims({A: claim(A)}, ())), Objection.CONTRADICTORY),
        (replace(standing(), claims=Claims({at: claim(at, 1, "other") for at in (A, B)}, ())), Objection.CONTRADICTORY),
        (standing(Control({}, dict(encode({"t": TopicStarts("s", (1,))})))), Objection.CONTRADICTORY),
    ],
    ids=["never run", "known", "half done", "no claim", "other source", "some starts"],
)
def test_what_contradicts_itself_is_refused(of: ControlEvidence, reason: Objection) -> None:
    with pytest.raises(NotDecided) as refused:
        made(of)
    assert refused.value.reason is reason


def test_a_newer_version_s_position_is_refused() -> None:
    of = standing()
    newer = Unreadable(Committed(7, "{}"), "newer_format", "v 9")
    with pytest.raises(Incident, match="v 9"):
        made(replace(of, positions={**of.positions, A: newer}))


def test_a_flow_that_somebody_holds_is_left_alone() -> None:
    check_stopped("f", {A: position(1)}, 0)
    with pytest.raises(TakenOver, match="2 members of its group"):
        check_stopped("f", {A: position(1)}, 2)
    with pytest.raises(TakenOver, match="host:1"):
        check_stopped("f", {A: position(1, "host:1")}, 0)
