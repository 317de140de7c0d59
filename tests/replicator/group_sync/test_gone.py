"""Of groups that were deleted at the source the flow's offsets are deleted at the target, and never anything else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from kio.schema.errors import ErrorCode as E

from replicator.config.routing import source_group
from replicator.group_sync.gone import AGAIN_S, GoneGroup
from replicator.groups.ownership import LATE_MS, GroupOffset
from replicator.model.errors import NotAllowed, ReplicatorError, Unreachable
from replicator.model.partition import Partition
from replicator.wire.group_coordinators import PartitionCodes
from replicator.wire.offset_fetch_groups import GroupValues
from tests.budget import budget
from tests.replicator.group_sync.fakes import copy_of, place
from tests.replicator.group_sync.test_share_groups import share_rig
from tests.replicator.group_sync.test_sync import A, B, Rig, make_flow

pytestmark = pytest.mark.tier("default")
SEEDS = budget(40, 10_000)


def followed(deleted: str = "delete") -> Rig:
    """A group that is at the target."""
    rig = Rig(deleted=deleted)
    rig.at_source(10)
    rig.at_source(20, B)
    rig.rounds(2)
    assert (rig.there(), rig.there(B)) == (place(10), place(20))
    return rig


def delete_at_source(rig: Rig, group: str = "g") -> None:
    rig.source.values = {at: value for at, value in rig.source.values.items() if at[0] != group}


def test_a_group_that_is_the_flows_is_deleted() -> None:
    rig = followed()
    delete_at_source(rig)
    done = rig.sync.round()
    assert (done.gone, rig.target.deleted, rig.there()) == ((GoneGroup("g", "g"),), ["g"], None)
    rig.rounds(20)
    rig.sync = rig.worker()
    rig.rounds(20)
    assert rig.target.deleted == ["g"]


def test_it_is_deleted_by_whoever_comes_after_it_was_deleted_at_the_source() -> None:
    rig = followed()
    delete_at_source(rig)
    rig.sync = rig.worker()
    rig.rounds()
    assert rig.target.deleted == ["g"]


def test_by_default_it_is_kept() -> None:
    rig = followed("keep")
    delete_at_source(rig)
    rig.rounds(20)
    assert (rig.target.deleted, rig.there()) == ([], place(10))


def members(rig: Rig) -> None:
    rig.target.members.add("g")


def reset(rig: Rig) -> None:
    rig.target.values["g", copy_of(B)] = GroupOffset(place(20) + 1, "m20")


def reset_to_an_earlier_one(rig: Rig) -> None:
    rig.at_source(30)
    rig.rounds()
    rig.target.values["g", copy_of(A)] = GroupOffset(place(10), "m10")


def another_topic(rig: Rig) -> None:
    rig.target.values["g", Partition("somebody's", 0)] = GroupOffset(1, "")


def open_transaction(rig: Rig) -> None:
    rig.target.unstable.add(("g", copy_of(A)))


def topic_gone(rig: Rig) -> None:
    for at in (A, B):
        del rig.map.ends[at]


def failed_over(rig: Rig) -> None:
    """The group's consumers go on at the target."""
    rig.map.failed_over = {B.topic}
    rig.sync = rig.worker()


def no_topics(rig: Rig) -> None:
    rig.map.ends.clear()


def not_selected(rig: Rig) -> None:
    rig.flow = make_flow(deleted="delete", exclude=["g"])
    rig.sync = rig.worker()


def not_listed(rig: Rig) -> None:
    """Its coordinator moves: it is there still."""
    rig.source.hidden.add("g")
    rig.at_source(10)


@pytest.mark.parametrize(
    "change",
    [
        members, reset, reset_to_an_earlier_one, another_topic, open_transaction, topic_gone, failed_over, no_topics,
        not_selected, not_listed,
    ],
)  # fmt: skip
def test_one_that_is_not_the_flows_alone_is_kept(change: Callable[[Rig], None]) -> None:
    rig = followed()
    change(rig)
    before = dict(rig.target.values)
    if change is not not_listed:
        delete_at_source(rig)
    rig.rounds(20)
    rig.sync = rig.worker()
    rig.rounds(20)
    ends = {at: value for at, value in rig.target.values.items() if at[0] == "g"}
    assert (rig.target.deleted, ends) == ([], {at: value for at, value in before.items() if at[0] == "g"})


def test_an_offset_in_a_topic_that_the_flow_may_not_see_stays() -> None:
    """The broker leaves it out of the group's offsets, and it belongs to another application."""
    rig = followed()
    theirs = "g", Partition("somebody's", 0)
    rig.target.values[theirs] = GroupOffset(1)
    rig.target.unseen.add(theirs[1].topic)
    delete_at_source(rig)
    assert rig.sync.round().gone == (GoneGroup("g", "g"),)
    assert rig.target.values == {theirs: GroupOffset(1)} | {
        at: value for at, value in rig.target.values.items() if at[0] != "g"
    }


def test_an_offset_that_the_target_refuses_to_delete_is_kept_and_tried_again() -> None:
    """The others are deleted."""
    rig = followed()
    delete_at_source(rig)
    rig.target.refuse[copy_of(B)] = int(E.group_subscribed_to_topic)
    (kept,) = rig.sync.round().gone
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in kept.kept
    assert (rig.there(), rig.there(B)) == (None, place(20))
    rig.target.refuse.clear()
    rig.rounds(int(AGAIN_S) // 5 + 1)
    assert (rig.there(B), rig.target.deleted) == (None, ["g", "g"])


@pytest.mark.parametrize("error", [NotAllowed("no right to Describe it"), Unreachable("no answer")])
def test_what_its_coordinator_does_not_say_deletes_nothing(
    error: ReplicatorError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that a user may not see aren't listed."""
    rig = followed()
    delete_at_source(rig)
    answers: dict[str, GroupValues | ReplicatorError] = {"g": error}
    asked = rig.source.offsets
    monkeypatch.setattr(rig.source, "offsets", lambda wanted, *_, **kw: answers if wanted else asked(wanted, 1.0, **kw))
    rig.rounds(20)
    assert rig.target.deleted == []


def test_it_is_looked_at_again_when_its_members_have_left() -> None:
    rig = followed()
    delete_at_source(rig)
    rig.target.members.add("g")
    (kept,) = rig.sync.round().gone
    assert "members" in kept.kept
    rig.target.members.clear()
    rig.rounds(int(AGAIN_S) // 5 + 1)
    assert rig.target.deleted == ["g"]


def test_one_that_the_target_refuses_to_delete_stays_the_flows() -> None:
    """It had no members when it was looked at."""
    rig = followed()
    delete_at_source(rig)
    rig.target.refuse["g"] = int(E.non_empty_group)
    rig.rounds(2)
    rig.target.refuse.clear()
    rig.at_source(40)
    rig.rounds(2)
    assert rig.there() == place(40)


def test_whoever_dies_before_it_is_deleted_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = followed()
    delete_at_source(rig)

    def dies(*_: object) -> dict[str, PartitionCodes | ReplicatorError]:
        raise Unreachable("it dies")

    with monkeypatch.context() as patch:
        patch.setattr(rig.target, "delete_offsets", dies)
        with suppress(Unreachable):
            rig.sync.round()
    rig.sync = rig.worker()
    rig.rounds(20)
    assert (rig.target.deleted, rig.there()) == ([], place(10))


def test_commits_that_may_still_arrive_are_waited_for() -> None:
    """They would make the group again."""
    rig = followed()
    rig.at_source(30)
    rig.target.commit = lambda wanted, _: {group: Unreachable("no answer") for group in wanted}  # type: ignore[method-assign, assignment]
    rig.rounds()
    delete_at_source(rig)
    rig.rounds(int(LATE_MS / 1000 / 5))
    assert rig.target.deleted == []
    rig.rounds(int(AGAIN_S) // 5 * 2)
    assert rig.target.deleted == ["g"]


def test_a_share_group_is_deleted_unless_it_was_consumed() -> None:
    for acknowledged, deleted in ((0, ["g"]), (1, [])):
        rig = share_rig(deleted="delete")
        rig.rounds()
        rig.target.acknowledged["g", copy_of(A)] = acknowledged
        rig.source.values.clear()
        del rig.source.kinds["g"]
        rig.rounds(3)
        assert rig.target.deleted == deleted


@pytest.mark.parametrize(
    ("rename", "target", "source"),
    [("{group}", "g", "g"), ("{flow}/{group}", "f/g", "g"), ("{flow}/{group}", "g", None), ("{group}.x", "g.x", "g"),
     ("{group}.x", ".x", None), ("{group}-{group}", "gg-gg", None)],
)  # fmt: skip
def test_names_at_the_source_follow_from_those_at_the_target(rename: str, target: str, source: str | None) -> None:
    """A longer name that is in it twice is not found: such groups are kept."""
    assert source_group(make_flow(rename=rename), target) == source


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_fails_only_the_flows_groups_are_deleted(seed: int) -> None:
    """An operator's offset is never lost, and what nobody has touched is deleted in the end, unless a deletion had no
    answer, or a worker died before one."""
    random = Random(seed)
    rig = Rig(Random(seed), deleted="delete")
    operators: dict[tuple[str, Partition], GroupOffset] = {}
    for step in range(60):
        at, group = random.choice([A, B]), random.choice(["g", "h"])
        match random.randrange(6):
            case 0:
                rig.at_source(random.randrange(100), at, group)
            case 1:
                delete_at_source(rig, group)
            case 2:
                value = GroupOffset(1000 + step, "operator")
                operators[group, copy_of(at)] = rig.target.values[group, copy_of(at)] = value
            case 3:
                rig.sync = rig.worker()
            case 4:
                rig.target.arrive()
            case _:
                rig.target.members ^= {group}
        with suppress(ReplicatorError):
            rig.sync.round()
        rig.clock.s += random.choice([1, 5, 70])
        assert {at: rig.target.values.get(at) for at in operators} == operators, step
