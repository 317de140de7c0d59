"""Looks at a flow's consumer groups from outside: what `run` would do with each now. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import structlog

from replicator.clock import RealClock
from replicator.config import Flow
from replicator.flow.topics import reading_topics
from replicator.group_sync.commits import ASK_S, CommitRound
from replicator.group_sync.followed import FollowedGroups
from replicator.group_sync.hold_topics import hold_topics_of
from replicator.group_sync.live_map import KafkaLiveMap
from replicator.group_sync.note_topic import read_notes
from replicator.groups.hold import not_known, waits_for
from replicator.groups.shown_groups import GroupShown
from replicator.model.errors import ReplicatorError
from replicator.proof.map_place import refuse_delivery
from replicator.state.group_notes import GroupNotes
from replicator.state.other_ends import OtherEnds
from replicator.state.transaction_notes import TransactionNotes
from replicator.wire.group_questions import GroupQuestions


class _NoNotes:
    """Implements `Notes` for who only looks."""

    def begin(self) -> GroupNotes:
        raise AssertionError("nothing is written")

    def transaction_notes(self) -> TransactionNotes:
        raise AssertionError("nothing is looked at")

    def other_ends(self) -> OtherEnds:
        raise AssertionError("nothing is noted")

    def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        raise AssertionError("nothing is written")

    def forget(self) -> None:
        pass


class GroupsSeen(NamedTuple):
    """Where groups stand. `unanswered`: why something isn't known."""

    groups: list[GroupShown]
    unanswered: tuple[ReplicatorError, ...]


def _held(flow: Flow, live_map: KafkaLiveMap) -> str:
    """Say what `run` would wait for before it moves groups; empty where that is nothing, or isn't known."""
    left_out = live_map.read_failed_over()
    source = live_map.source_ends()
    with closing(hold_topics_of(flow, structlog.wrap_logger(None, processors=[_silent]))) as hold_topics:
        hold_topics.look({at.topic for at in (*source.ends, *source.unknown)} - set(left_out))
        held = {at.topic for at in (*source.ends, *source.unknown) if hold_topics.holds(at.topic)} - set(left_out)
    waited = {at: end for at, end in source.ends.items() if at.topic in held}
    if unknown := {at: str(why) for at, why in source.unknown.items() if at.topic in held}:
        return not_known(unknown)
    if not waited:
        return ""
    live_map.read()
    return waits_for(waited, live_map.positions(), live_map.stable_ends)


def _silent(*_: Any) -> Any:
    raise structlog.DropEvent


def look(flow: Flow, only: Collection[str] = (), *, connect_timeout_ms: int | None = None) -> GroupsSeen:
    """Look at the groups that the flow syncs.

    Args:
        only: these groups of the source alone; empty: all.
        connect_timeout_ms: how long to wait for each cluster; None: as the flow file says.

    Raises:
        ConfigError: the flow's delivery has no map.
        Incident: map_lost, map_topic_unfit, newer_format.
        Unreachable, NotAllowed, Retriable, Unsupported: as for other clients.
    """
    refuse_delivery(flow)
    client_id = f"eos-replicate.{flow.name}.groups"
    followed, clock = FollowedGroups(flow), RealClock()
    unanswered: list[ReplicatorError] = []
    with (
        closing(GroupQuestions(flow.source, client_id)) as source,
        closing(GroupQuestions(flow.target, client_id)) as target,
        closing(KafkaLiveMap(flow, connect_timeout_ms=connect_timeout_ms)) as live_map,
        reading_topics(flow, flow.target) as reader,
    ):
        live_map.read_failed_over()
        listing = source.listing(ASK_S)
        unanswered += listing.unanswered
        listed = {name: it for name, it in listing.groups.items() if not only or name in only}
        selected = followed.select(listed, all_of_them=True)

        def copied() -> Mapping[str, range]:
            if not live_map.partitions():
                live_map.read()
            return {topic: range(len(of_topic)) for topic, of_topic in live_map.partitions().items()}

        found = source.offsets(dict.fromkeys(selected), ASK_S, stable=True, else_only=copied)
        unanswered += followed.take(found)
        target.share(followed.share_targets)
        if followed.share_targets:
            followed.bound(live_map.source_ends().ends)
        live_map.read()
        known = read_notes(flow, reader)
        due = (one._replace(renew=False) for one in followed.due(followed.snapshot(live_map.partitions()), 0.0))
        CommitRound(followed, target, live_map, _NoNotes(), clock).look(due, known, unanswered)
        if followed.moving:
            why = _held(flow, live_map)
            if why:
                followed.hold_moving(why)
        followed.end_round(clock.now_ms())
    return GroupsSeen(followed.shown(missed_max=1), tuple(unanswered))
