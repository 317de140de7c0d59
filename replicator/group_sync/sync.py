"""Syncs the consumer groups of one flow, round after round. Started by `group_sync.watch` where lane 0 is.

One round: offsets at the source → ends there → positions and map → translate → what stands at the target → decide →
note → commit → note. Whatever fails, the next round does it again from what is known then.

Invariants (design: each was shown to be needed by a model, see tests/model/groups)
- What is committed is noted before, durably; whose an offset is follows from the notes (`groups.ownership`).
- Commits are plain ones, without a member and without a leader epoch: the broker refuses them for a group that has
  members, whatever was known of it a moment before, and Java's consumers read on from them (KIP-320).
- Topics that were failed over are left alone: that is read behind the fence of the notes, and whoever fails topics over
  fences the notes afterwards. Their ends at the source are noted all the same.
- Offsets are read before the positions: what a group has passed is copied by then, or is said to be ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from replicator.config import Flow
from replicator.group_sync.commits import ASK_S, CommitRound
from replicator.group_sync.followed import FollowedGroups, Snapshot
from replicator.group_sync.gone import GoneGroup, GoneGroups
from replicator.group_sync.noted_ends import NotedEnds
from replicator.group_sync.ports import HoldTopics, LiveMap, Notes, SourceEnds, SourceGroups, TargetGroups
from replicator.group_sync.standing import Standing
from replicator.group_sync.transaction_looks import LOOK_S, TransactionLooks
from replicator.groups.hold import Hold
from replicator.groups.shown_groups import GroupShown
from replicator.lane.ports import Clock
from replicator.model import names
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.state.group_notes import GroupNotes

TRANSLATE_S = 60.0
"""Between two looks at whether the map still says of what is in sync what it said."""
HELD_S = 15.0
"""After which it is told that groups are held: for less than that copying takes its time."""
UNKNOWN_SAID = 3
"""Partitions of which it is said why nothing is known."""
GROUPS_AT_ONCE = 2_000
"""Of which the source is asked at once: as many answers are held besides what is kept of them."""


class RoundDone(NamedTuple):
    """What a round has done. `unanswered`: why something of it is missing; `gone`: what has become of groups that have
    gone at the source, of those that were looked at."""

    groups: int
    committed: int
    unanswered: tuple[ReplicatorError, ...] = ()
    gone: tuple[GoneGroup, ...] = ()


class GroupSync:
    """Of one flow. Used by one thread."""

    def __init__(
        self,
        flow: Flow,
        source: SourceGroups,
        target: TargetGroups,
        live_map: LiveMap,
        notes: Notes,
        hold_topics: HoldTopics,
        clock: Clock,
        transactions: TransactionLooks | None = None,
    ) -> None:
        """`transactions`: looks at the source's between the rounds."""
        self._transactions = transactions
        self._flow, self._clock, self._hold_topics = flow, clock, hold_topics
        self._source, self._target, self._map, self._notes = source, target, live_map, notes
        self._known: GroupNotes | None = None
        self._kept: frozenset[str] | None = None  # groups of which more is known than their names,
        self._dropped = set[str]()  # and those at the target whose notes were dropped
        self._followed = FollowedGroups(flow)
        self._commits = CommitRound(self._followed, target, live_map, notes, clock)
        self._standing = Standing(self._followed, target, live_map)
        self._gone = GoneGroups(flow, source, target, live_map, notes, clock)
        self._translate_s = 0.0
        self._topics = frozenset[str]()  # that there were at the source
        self._hold = Hold[Snapshot]()
        self._held_s: float | None = None  # since when nothing was released
        self._ends = NotedEnds(flow, target, live_map, notes, clock)
        self._at_source = SourceEnds({}, {}, {})  # where the partitions end, as that was asked last
        self._failed_over: Collection[str] = ()  # source topics

    def shown(self) -> list[GroupShown]:
        """Say where each group stands, by name."""
        return self._followed.shown()

    def round(self) -> RoundDone:
        """Make one round.

        Raises ReplicatorError: nothing is known then of what it has done, and the next one begins anew.
        """
        try:
            done = self._round()
        except BaseException as error:
            self._known = None
            self._notes.forget()
            self._followed.end_round(self._clock.now_ms(), str(error))
            raise
        self._followed.end_round(self._clock.now_ms())
        return done

    def look(self) -> float:
        """Take a look at the source's transactions, if it is time to; return how long to wait for the next one.

        Raises ReplicatorError: what was found isn't noted, and the next round begins anew.
        """
        if self._transactions is None or self._known is None:
            return LOOK_S
        at_source = self._at_source
        noted = self._transactions.look(at_source.noted, {*at_source.ends, *at_source.unknown})
        if noted:
            try:
                self._notes.write(noted)
            except BaseException:
                self._known = None
                self._notes.forget()
                raise
        return self._transactions.pause_s()

    def _round(self) -> RoundDone:
        if self._known is None:
            self._begin()
            self._hold, self._held_s = Hold(), None
            self._ends.forget()
            self._followed.anew()
        assert self._known is not None
        unanswered: list[ReplicatorError] = []
        self._read(unanswered)
        asked_ms = self._clock.now_ms()
        source = self._map.source_ends()
        self._at_source = source
        self._followed.bound(source.ends)
        committed = 0
        topics = frozenset(at.topic for at in source.noted)
        if topics != self._topics:
            self._topics = topics
            self._followed.changed()
        translate = self._clock.now_s() >= self._translate_s
        if translate or not self._followed.idle(self._clock.now_s()):
            self._map.read()
            source = self._at_source = source.without(self._map.outdated())
            self._hold_topics.look({at.topic for at in (*source.ends, *source.unknown)})
            released = self._released(source, unanswered)
            due = self._followed.due(released, self._clock.now_s())
            committed = self._commits.run(due, self._known, unanswered)
            if translate:
                self._translate_s = self._clock.now_s() + TRANSLATE_S
                self._standing.translate(self._clock.now_s(), TRANSLATE_S)
        unanswered += [*_first(source.unknown), *_first(self._map.unread())]
        self._standing.look(self._clock.now_s(), ASK_S, GROUPS_AT_ONCE, unanswered)
        gone = self._gone.run(self._known, topics, unanswered)
        self._ends.note(source, asked_ms, unanswered)
        return RoundDone(len(self._followed), committed, tuple(unanswered), tuple(gone))

    def _begin(self) -> None:
        known = self._notes.begin()
        # Fenced first: who fails over fences then. Whoever is fenced by that, and begins anew, must not go on.
        self._failed_over = self._map.read_failed_over()
        self._map.refuse_frozen()
        self._known, self._kept = known, None
        if self._transactions is not None:
            self._transactions.begin(self._notes.transaction_notes(), self._map.known_topics())
        self._dropped.clear()

    def _keep(self) -> None:
        """Let go of groups that have gone at the source. One may come back, and what it has at the target is the flow's
        still: then its notes are read again."""
        groups = self._followed.target_groups
        if groups.keys() == self._kept:
            return
        targets = set(groups.values())
        if not self._dropped.isdisjoint(targets):
            self._begin()
        assert self._known is not None
        self._kept = frozenset(groups)
        self._gone.take(groups.keys(), self._known)
        self._dropped |= self._known.keep(targets | set(self._gone.targets))
        self._source.keep(groups.keys())
        self._target.keep(targets | {names.ends_group(self._flow.name), *self._gone.targets})

    def _read(self, unanswered: list[ReplicatorError]) -> None:
        listing = self._source.listing(ASK_S)
        unanswered += listing.unanswered
        selected = self._followed.select(listing.groups, all_of_them=not listing.unanswered)
        self._target.share(self._followed.share_targets)
        self._keep()
        for at in range(0, len(selected), GROUPS_AT_ONCE):
            wanted = dict.fromkeys(selected[at : at + GROUPS_AT_ONCE])
            found = self._source.offsets(wanted, ASK_S, stable=True, else_only=self._copied)
            unanswered += self._followed.take(found)

    def _copied(self) -> Mapping[str, range]:
        """Return the partitions that the flow copied at the last look at the map, by topic."""
        return {topic: range(len(of_topic)) for topic, of_topic in self._map.partitions().items()}

    def _released(self, source: SourceEnds, unanswered: list[ReplicatorError]) -> Snapshot:
        """Return what groups had committed when what they had written is copied; nothing while it isn't. Adds to
        `unanswered` why it still isn't after a while."""
        snapshot = self._followed.snapshot(self._map.partitions())
        holds = {at: end for at, end in source.ends.items() if self._holds(at.topic)}
        self._hold.take(snapshot, holds, {at: str(why) for at, why in source.unknown.items() if self._holds(at.topic)})
        positions = self._map.positions()
        released = self._hold.released(positions)
        if released is not None:
            self._held_s = None
            if released is not snapshot:
                self._followed.changed()  # what was read since is looked at in the next round
            return released
        why = self._hold.why(positions, lambda ats: self._map.stable_ends([at for at in ats if at in source.ends]))
        now_s = self._clock.now_s()
        self._followed.hold(snapshot, self._map.target_topic, why, now_s)
        self._held_s = now_s if self._held_s is None else self._held_s
        if now_s >= self._held_s + HELD_S:
            unanswered.append(Retriable(f"groups are held: {why}"))
        return {}

    def _holds(self, topic: str) -> bool:
        return topic not in self._failed_over and self._hold_topics.holds(topic)


def _first(unknown: Mapping[Partition, ReplicatorError]) -> list[ReplicatorError]:
    """Say why nothing is known of partitions: of the first ones, and how many others there are."""
    found = [unknown[at] for at in sorted(unknown)[:UNKNOWN_SAID]]
    more = len(unknown) - len(found)
    return [*found, Retriable(f"nor is anything known of {more} more partitions")] if more else found
