"""Share groups (KIP-932) go on at the target where all is acknowledged at the source, and are moved only while they are
the flow's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest

from replicator.group_sync.followed import SLOW_S, SOON_S
from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.share import CONSUMED, GROWS
from replicator.model.errors import ReplicatorError, Retriable, Unsupported
from replicator.model.partition import Partition
from replicator.wire.offset_fetch_groups import GroupValues
from tests.budget import budget
from tests.replicator.group_sync.fakes import FakeNotes, copy_of, place
from tests.replicator.group_sync.test_sync import A, B, Rig

pytestmark = pytest.mark.tier("default")
SEEDS = budget(40, 10_000)


def share_rig(offset: int = 10, faults: Random | None = None, **groups: object) -> Rig:
    rig = Rig(faults, **groups)
    rig.source.kinds["g"] = "share"
    rig.source.end = 100
    stand(rig, offset)
    return rig


def stand(rig: Rig, offset: int, at: Partition = A) -> None:
    """At the source: share groups have no metadata."""
    rig.source.values["g", at] = GroupOffset(offset)


def detail(rig: Rig, at: Partition = A) -> str:
    return next(row.detail for it in rig.sync.shown() for row in it.rows if row.at == at)


def test_it_stands_at_the_target_where_it_stands_at_the_source() -> None:
    rig = share_rig()
    rig.rounds(5)
    assert (rig.there(), rig.target.kinds["g"], rig.commits()) == (place(10), "share", 1)
    (found,) = rig.sync.shown()
    assert (found.kind, found.said, found.again) == ("share", "share group: in sync", 0)
    assert (found.as_json()["kind"], found.rows[0].exact) == ("share", True)
    for offset in (30, 5):
        stand(rig, offset)
        rig.rounds(2)
        assert (rig.there(), rig.verdict()) == (place(offset), GroupVerdict.IN_SYNC)
    rig.clock.s += rig.flow.limits.recommit_interval_ms / 1000
    rig.rounds(2)
    assert rig.commits() == 3, "its offsets don't expire: they aren't set again"


def test_what_it_has_acknowledged_behind_its_offset_is_delivered_again() -> None:
    rig = share_rig()
    rig.source.acknowledged["g", A] = 4
    rig.rounds(3)
    (row,) = [it for it in rig.sync.shown()[0].rows if it.at == A]
    assert (row.again, row.exact, row.verdict) == (4, False, GroupVerdict.IN_SYNC)
    rig.source.acknowledged["g", A] = 6
    rig.rounds(3)
    assert (rig.sync.shown()[0].again, rig.commits()) == (6, 1)
    rig.clock.s += 120
    rig.rounds(3)
    assert rig.commits() == 1


def test_where_the_source_does_not_say_where_a_partition_ends_what_is_delivered_again_is_not_known() -> None:
    """It has no leader for a while, and its share group stands where it stood."""
    rig = share_rig()
    rig.source.acknowledged["g", A] = 4
    rig.source.acknowledged["g", B] = 3
    stand(rig, 10, B)
    rig.map.unknown[A] = Retriable("nobody leads it")
    rig.rounds(3)
    rows = {it.at: it for it in rig.sync.shown()[0].rows}
    assert [(rows[at].again, rows[at].exact, rows[at].verdict) for at in (A, B)] == [
        (None, False, GroupVerdict.IN_SYNC),
        (3, False, GroupVerdict.IN_SYNC),
    ]
    (found,) = rig.sync.shown()
    assert (found.again, found.again_unknown, found.again_said) == (3, 1, "at least 3")
    rig.clock.s += 120
    rig.rounds(3)
    assert rig.commits() == 2
    rig.map.unknown.clear()
    rig.rounds(3)
    (found,) = rig.sync.shown()
    assert (found.again, found.again_unknown, found.again_said, rig.commits()) == (7, 0, "7", 2)


def test_where_the_cluster_does_not_say_what_is_left_all_may_be_delivered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka 4.1."""
    rig = share_rig()
    asked = rig.source.offsets

    def without(*args: object, **kwargs: object) -> dict[str, GroupValues | ReplicatorError]:
        found = asked(*args, **kwargs)  # type: ignore[arg-type]
        for values in found.values():
            for of_topic in values.lags.values():  # type: ignore[union-attr]
                of_topic.update(dict.fromkeys(of_topic))
        return found

    monkeypatch.setattr(rig.source, "offsets", without)
    rig.rounds()
    assert rig.sync.shown()[0].again == 90


def test_one_with_members_at_the_source_is_listed_and_not_moved() -> None:
    rig = share_rig()
    rig.source.members.add("g")
    rig.rounds(3)
    (found,) = rig.sync.shown()
    assert (found.detail, found.rows, rig.commits()) == (GroupVerdict.MEMBERS_AT_SOURCE.value, [], 0)
    rig.source.members.clear()
    rig.rounds(2)
    assert rig.there() == place(10)
    rig.source.members.add("g")
    stand(rig, 50)
    rig.rounds(3)
    assert (rig.there(), rig.sync.shown()[0].rows) == (place(10), [])


def test_one_with_members_at_the_target_is_not_moved() -> None:
    rig = share_rig()
    rig.rounds()
    rig.target.members.add("g")
    stand(rig, 20)
    rig.rounds(3)
    assert (rig.there(), rig.verdict()) == (place(10), GroupVerdict.HAS_MEMBERS)
    rig.target.members.clear()
    rig.rounds(int(SOON_S))
    assert rig.there() == place(20)


def test_the_broker_refuses_one_that_has_got_members_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = share_rig()
    write = FakeNotes.write

    def joined(notes: FakeNotes, records: Sequence[tuple[bytes, bytes]]) -> None:
        rig.target.members.add("g")
        write(notes, records)

    monkeypatch.setattr(FakeNotes, "write", joined)
    rig.rounds()
    assert (rig.there(), rig.verdict()) == (None, GroupVerdict.HAS_MEMBERS)


@pytest.mark.parametrize("offset", [place(10) + 1, place(5)])
def test_what_its_consumers_or_an_operator_have_set_is_left_alone(offset: int) -> None:
    """Also an offset that the flow had set once."""
    rig = share_rig(5)
    rig.rounds()
    stand(rig, 10)
    rig.rounds(2)
    assert rig.there() == place(10)
    rig.target.values["g", copy_of(A)] = GroupOffset(offset)
    stand(rig, 20)
    rig.rounds(3)
    rig.sync = rig.worker()
    rig.rounds(3)
    assert (rig.there(), rig.verdict()) == (offset, GroupVerdict.NOT_OURS)
    del rig.target.values["g", copy_of(A)]
    rig.rounds(2 * int(SLOW_S) // 5)
    assert rig.there() == place(20)


def test_one_that_has_acknowledged_records_behind_its_offset_is_left_alone() -> None:
    rig = share_rig()
    rig.rounds()
    rig.target.acknowledged["g", copy_of(A)] = 1
    stand(rig, 20)
    rig.rounds(2)
    assert (rig.there(), rig.verdict(), detail(rig)) == (place(10), GroupVerdict.NOT_OURS, CONSUMED)
    rig.target.acknowledged.clear()  # by others, and so its start offset had moved
    rig.sync = rig.worker()
    rig.rounds(2)
    assert rig.there() == place(10)


def test_while_records_come_it_waits_until_that_can_be_told() -> None:
    rig = share_rig()
    rig.rounds()
    stand(rig, 20)
    rig.map.growth, rig.map.target_end = 1, 999
    rig.rounds()
    assert (rig.there(), rig.verdict(), detail(rig)) == (place(10), GroupVerdict.TO_COMMIT, GROWS)
    rig.map.growth, rig.map.target_end = 0, 1_000
    rig.rounds()
    assert (rig.there(), rig.verdict()) == (place(20), GroupVerdict.IN_SYNC)


@pytest.mark.parametrize(("here", "there"), [("share", "classic"), ("consumer", "share")])
def test_a_group_of_another_kind_is_not_touched(here: str, there: str) -> None:
    rig = share_rig()
    rig.source.kinds["g"], rig.target.kinds["g"] = here, there
    rig.rounds(3)
    assert (rig.verdict(), rig.commits()) == (GroupVerdict.REFUSED, 0)
    assert "at the target this is a" in detail(rig)


def test_a_target_without_share_groups_holds_up_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = share_rig()
    rig.at_source(30, group="other")
    asked = rig.target.offsets
    why = Unsupported("no share groups there")

    def without(wanted: dict[str, object], *args: object, **kwargs: object) -> dict[str, GroupValues | ReplicatorError]:
        found = asked({it: of for it, of in wanted.items() if it != "g"}, *args, **kwargs)  # type: ignore[arg-type, misc]
        return found | ({"g": why} if "g" in wanted else {})

    monkeypatch.setattr(rig.target, "offsets", without)
    assert why in rig.sync.round().unanswered
    assert (rig.there(group="other"), rig.verdict(), detail(rig)) == (place(30), GroupVerdict.REFUSED, str(why))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_fails_it_is_moved_only_while_it_is_the_flows(seed: int) -> None:
    """An operator or a consumer of the target has the last word, whoever dies or gets no answer; untouched groups stand
    in the end where they stand at the source."""
    random = Random(seed)
    rig = share_rig(faults=Random(seed))
    theirs: dict[Partition, GroupOffset] = {}
    for step in range(50):
        at = random.choice([A, B])
        match random.randrange(7):
            case 0 | 1:
                stand(rig, random.randrange(100), at)
            case 2 if random.random() < 0.3:
                theirs[copy_of(at)] = rig.target.values["g", copy_of(at)] = GroupOffset(2 * step + 1)  # no place
                rig.target.kinds["g"] = "share"
            case 3:
                rig.sync = rig.worker()
            case 4:
                rig.target.arrive()
                for there, value in theirs.items():  # one under way may overtake it: not what is asked here
                    rig.target.values["g", there] = value
            case 5:
                rig.target.members ^= {"g"}
            case _:
                rig.source.members ^= {"g"} if random.random() < 0.3 else set()
        with suppress(ReplicatorError):
            rig.sync.round()
        rig.clock.s += random.choice([1, 5, 70])
        assert {it: rig.target.values.get(("g", it)) for it in theirs} == theirs, step
    rig.without_faults()
    rig.sync = rig.worker()
    rig.target.members.clear()
    rig.source.members.clear()
    rig.target.late.clear()
    rig.rounds(int(SLOW_S))
    for at in (A, B):
        if copy_of(at) not in theirs and ("g", at) in rig.source.values:
            assert rig.there(at) == place(rig.source.values["g", at].offset)
