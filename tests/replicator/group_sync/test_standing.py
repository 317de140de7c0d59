"""What is shown in sync is: what has changed without anything having changed at the source is seen as well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.group_sync import followed as following
from replicator.group_sync.sync import HELD_S, TRANSLATE_S
from replicator.group_sync.watch import GroupSyncWatch
from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.shown_groups import GroupShown
from replicator.model.errors import ReplicatorError, Unreachable
from replicator.model.names import ends_group
from replicator.observe.figures import ObservedFlow
from replicator.offset_map.translate import TranslatedOffset
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
from replicator.wire.offset_fetch_groups import GroupValues, Wanted
from tests.replicator.group_sync.fakes import FakeGroups, copy_of, place
from tests.replicator.group_sync.test_sync import OUT, A, B, Rig


def shown(rig: Rig, group: str = "g") -> GroupShown:
    (found,) = [it for it in rig.sync.shown() if it.group == group]
    return found


def in_sync() -> Rig:
    rig = Rig()
    rig.at_source(10)
    rig.at_source(20, OUT)
    rig.rounds(2)
    assert shown(rig).settled
    return rig


def test_a_topic_that_was_deleted_at_the_source_is_shown_no_more() -> None:
    rig = in_sync()
    del rig.source.values["g", OUT]
    del rig.map.copied[OUT], rig.map.ends[OUT]
    rig.rounds()
    assert {row.at.topic for row in shown(rig).rows} == {"a"}


def test_a_topic_that_goes_while_its_group_is_ahead_keeps_no_round_busy() -> None:
    rig = in_sync()
    rig.map.ends[OUT] = 200
    rig.at_source(150, OUT)
    rig.rounds(2)
    assert "ahead" in shown(rig).rows[-1].notes
    del rig.map.copied[OUT], rig.map.ends[OUT]  # the group keeps its offset for a while
    rig.rounds(2)
    reads = rig.map.reads
    rig.rounds(3)
    assert rig.map.reads == reads
    assert {row.at.topic for row in shown(rig).rows} == {"a"}


def test_a_group_without_offsets_is_not_shown_in_sync() -> None:
    rig = in_sync()
    rig.source.kinds["idle"] = "classic"
    rig.rounds()
    found = shown(rig, "idle")
    assert found.without_offsets
    assert "no offset" in found.said


def test_members_at_the_target_are_seen_while_the_source_stands_still() -> None:
    rig = in_sync()
    rig.target.members.add("g")
    rig.rounds(2)
    assert {row.verdict for row in shown(rig).rows} == {GroupVerdict.HAS_MEMBERS}
    rig.target.members.clear()
    rig.rounds(2)
    assert shown(rig).settled


def test_an_offset_that_was_deleted_at_the_target_is_committed_again() -> None:
    rig = in_sync()
    del rig.target.values["g", copy_of(A)]
    rig.rounds(2)
    assert rig.there() == place(10)


@pytest.mark.parametrize("value", [GroupOffset(3, "m10"), GroupOffset(place(10), "another's")])
def test_an_offset_that_was_replaced_at_the_target_is_shown_and_left_alone(value: GroupOffset) -> None:
    rig = in_sync()
    rig.target.values["g", copy_of(A)] = value
    rig.rounds(2)
    assert rig.verdict() is GroupVerdict.NOT_OURS
    rig.rounds(30)
    assert rig.target.values["g", copy_of(A)] == value


def test_what_is_replaced_by_what_was_there_before_is_seen_as_well() -> None:
    """Though the answer is the one that was compared last."""
    rig = Rig()
    for at in (A, B):
        rig.at_source(10, at)
    rig.rounds(2)
    before = dict(rig.target.values)
    for at in (A, B):
        rig.at_source(30, at)
    rig.rounds()
    rig.target.values |= {key: value for key, value in before.items() if key[0] == "g"}
    rig.rounds(2)
    assert (rig.verdict(), rig.there()) == (GroupVerdict.NOT_OURS, place(10))


def test_other_answers_of_the_map_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair has put records behind others, or the target has deleted what was copied."""
    rig = in_sync()
    answers = rig.map.answers

    def repaired(asked: Collection[OffsetToTranslate]) -> list[OffsetAnswer]:
        return [it._replace(translated=TranslatedOffset(5, 7, ())) if it.asked.at == A else it for it in answers(asked)]

    monkeypatch.setattr(rig.map, "answers", repaired)
    rig.rounds(int(TRANSLATE_S) // 5 + 2)
    assert rig.there() == 5
    assert {row.at: row.again for row in shown(rig).rows}[A] == 7


def silent(groups: FakeGroups, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The coordinator of this group doesn't answer what stands there."""
    offsets = groups.offsets

    def unanswered(
        wanted: Mapping[str, Wanted],
        timeout_s: float,
        *,
        stable: bool,
        else_only: Callable[[], Mapping[str, Collection[int]]] = dict,
    ) -> dict[str, GroupValues | ReplicatorError]:
        found = offsets(wanted, timeout_s, stable=stable)
        return {it: Unreachable("it is silent") if it == name else values for it, values in found.items()}

    monkeypatch.setattr(groups, "offsets", unanswered)


@pytest.mark.parametrize("moves", [False, True])
def test_what_a_silent_coordinator_does_not_tell_is_unknown_and_comes_back(
    moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = in_sync()
    rig.at_source(10, group="other")
    rig.rounds(2)
    looked_ms = shown(rig).looked_ms
    assert looked_ms > 0
    with monkeypatch.context() as patch:
        silent(rig.target, patch, "g")
        for number in range(following.MISSED_MAX + 1):
            if moves:
                rig.at_source(11 + number)
            rig.rounds()
        found = shown(rig)
        assert (found.unknown, found.settled, found.in_sync) == ("it is silent", False, 0)
        assert {row.verdict for row in found.rows} == {GroupVerdict.UNKNOWN}
        assert looked_ms <= {row.looked_ms for row in found.rows}.pop() < rig.clock.now_ms() - 10_000
        assert shown(rig, "other").settled
    rig.rounds(2)
    assert shown(rig).settled
    assert shown(rig).looked_ms > looked_ms


def test_a_group_of_which_nothing_was_seen_yet_is_not_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.at_source(10)
    silent(rig.target, monkeypatch, "g")
    rig.rounds()
    assert (shown(rig).unknown, shown(rig).settled) == ("it is silent", False)


def test_rounds_that_fail_leave_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = in_sync()

    def fails() -> None:
        raise Unreachable("the target doesn't answer")

    with monkeypatch.context() as patch:
        patch.setattr(rig.map, "source_ends", fails)
        for _ in range(following.MISSED_MAX):
            with pytest.raises(Unreachable):
                rig.rounds()
    assert shown(rig).unknown == "the target doesn't answer"
    rig.rounds()
    assert shown(rig).settled


def test_a_topic_of_which_all_is_unstable_is_not_forgotten() -> None:
    rig = in_sync()
    rig.at_source(30)
    rig.source.unstable |= {("g", A), ("g", B)}
    rig.rounds()
    assert rig.verdict() is GroupVerdict.UNSTABLE


def test_who_watches_is_told_of_rounds_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last round ended stays as it was; what is known no more is shown so."""
    rig, now_ms = in_sync(), 1_000
    observed = ObservedFlow(lambda: now_ms)
    watch = GroupSyncWatch(rig.flow, rig.sync, observed.groups_synced, threading.Event(), structlog.get_logger())
    watch.look()

    def fails() -> None:
        raise Unreachable("the target doesn't answer")

    monkeypatch.setattr(rig.map, "source_ends", fails)
    now_ms = 9_000
    for _ in range(following.MISSED_MAX):
        watch.look()
    figures = observed.figures().groups
    assert figures is not None
    assert figures.synced_ms == 1_000
    assert [it.unknown for it in figures.groups] == ["the target doesn't answer"]


def test_what_holds_groups_is_said_once() -> None:
    """A transaction that was left open at the source; not that copying takes a moment."""
    rig = Rig(hold_with=["out"])
    rig.at_source(10)
    rig.map.ends[OUT], rig.map.stable[OUT] = 110, 105
    with capture_logs() as lines:
        watch = GroupSyncWatch(rig.flow, rig.sync, lambda *_, **__: None, threading.Event(), structlog.get_logger())
        for _ in range(int(HELD_S) // 5):
            watch.look()
            rig.clock.s += 5
            assert rig.verdict() is GroupVerdict.HELD
        told = [it for it in lines if it["log_level"] == "warning"]
        assert told == []
        for _ in range(5):
            watch.look()
            rig.clock.s += 5
        (told_once,) = [it for it in lines if it["log_level"] == "warning"]
        assert told_once["event"] == "groups_not_synced"
        assert "held: a transaction at the source that hasn't ended holds up out[0]" in told_once["reason"]
        (row,) = [it for it in shown(rig).rows if it.at == A]
        assert "a transaction at the source" in row.detail
        rig.map.copied[OUT] = 110
        watch.look()
        assert lines[-1]["event"] == "groups_synced_again"
    assert rig.there() == place(10)


def test_what_is_known_of_a_group_goes_with_it_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offset at the target stays the flow's."""
    rig = Rig()
    rig.at_source(10)
    rig.at_source(10, group="stays")
    rig.rounds()
    kept: list[set[str]] = []
    monkeypatch.setattr(rig.target, "keep", lambda groups: kept.append(set(groups)))
    value = rig.source.values.pop(("g", A))
    rig.rounds()
    assert kept == [{"stays", ends_group("f")}]
    assert rig.sync._known is not None
    assert {group for group, _ in rig.sync._known} == {"stays"}
    rig.rounds(2)
    assert len(kept) == 1
    rig.source.values["g", A] = value._replace(offset=20)
    rig.rounds(2)
    assert (rig.verdict(), rig.there()) == (GroupVerdict.IN_SYNC, place(20))
    rig.sync = rig.worker()  # the notes of all are read at its start
    del rig.source.values["g", A]
    rig.rounds()
    assert rig.sync._known is not None
    assert {group for group, _ in rig.sync._known} == {"stays"}


def test_a_topic_that_goes_while_it_is_waited_for_stops_no_round() -> None:
    rig = Rig(hold_with=["out"])
    rig.at_source(10)
    rig.map.ends[OUT] = 110
    rig.rounds()
    del rig.map.ends[OUT], rig.map.copied[OUT]
    rig.rounds(3)
    assert rig.there() == place(10)
