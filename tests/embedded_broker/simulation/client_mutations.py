"""More planted bugs: in fetch sessions, topic ids, and the use of clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from embedded_broker.api.fetch_sessions import Asked, Fetching, FetchSessions
from embedded_broker.coordinators.background import Background
from embedded_broker.metadata.topics import Topic, Topics
from embedded_broker.simulation.history import ViolationKind
from embedded_broker.simulation.schedule import WorkloadKind
from tests.embedded_broker.simulation.mutations import Mutations, Patch

PRODUCERS, GROUPS = Mutations(WorkloadKind.PRODUCERS), Mutations(WorkloadKind.GROUPS)
TICK_MS = 50


@PRODUCERS.add(ViolationKind.STARVED, ViolationKind.BROKEN)  # a copier that doesn't get the last records never ends
def leave_out_partitions_whose_end_has_not_moved(patch: Patch) -> None:
    is_news = Asked.is_news

    def without_records(self: Asked, answer: Mapping[str, Any]) -> bool:
        return is_news(self, {**answer, "records": b""})

    patch.setattr(Asked, "is_news", without_records)


@PRODUCERS.add(ViolationKind.NON_MONOTONIC, ViolationKind.STARVED)
def keep_the_first_offsets_of_a_session(patch: Patch) -> None:
    def update(session: Any, named: Any, forgotten: Any) -> None:
        for each in named:
            session.partitions.setdefault((each.topic, each.data.partition), each)

    patch.setattr(FetchSessions, "_update", staticmethod(update))


@PRODUCERS.add(ViolationKind.BROKEN)
def take_any_session_epoch(patch: Patch) -> None:
    begin = FetchSessions.begin

    def lenient(self: FetchSessions, request: Any, version: int, named: Any, now_s: float) -> Fetching:
        session = self.sessions.get(getattr(request, "session_id", 0))
        if session is not None and request.session_epoch > 0:
            session.epoch = request.session_epoch
        return begin(self, request, version, named, now_s)

    patch.setattr(FetchSessions, "begin", lenient)


@PRODUCERS.add(ViolationKind.BROKEN, ViolationKind.NON_MONOTONIC, ViolationKind.SKIPPED_POLL)
def give_all_clients_the_same_session(patch: Patch) -> None:
    open_one = FetchSessions.open

    def shared(self: FetchSessions, *args: Any) -> int:
        session_id = open_one(self, *args)
        if session_id:
            self.sessions[1] = self.sessions.pop(session_id)
            self.sessions[1].session_id = 1
        return min(session_id, 1)

    patch.setattr(FetchSessions, "open", shared)


@PRODUCERS.add(ViolationKind.BROKEN, ViolationKind.DIRTY_READ)
def mix_up_topics_that_are_named_by_id(patch: Patch) -> None:
    by_id = Topics.by_id

    def neighbour(self: Topics, topic_id: Any) -> Topic | None:
        found = by_id(self, topic_id)
        topics = [topic for topic in self.all() if not topic.is_internal]
        return topics[topics.index(found) - 1] if found in topics else found

    patch.setattr(Topics, "by_id", neighbour)


@GROUPS.add(ViolationKind.UNSTABLE_GROUP)
def let_timers_follow_the_clock_on_the_wall(patch: Patch) -> None:
    schedule = Background.schedule

    def by_wall_clock(self: Background, key: Hashable, delay_ms: int, callback: Callable[[], object]) -> None:
        clock: Any = asyncio.get_running_loop()
        due_ms = clock.now_ms() + delay_ms

        def look() -> None:
            if clock.now_ms() >= due_ms:
                callback()
            else:
                schedule(self, key, TICK_MS, look)

        look_in_ms = min(delay_ms, TICK_MS)
        schedule(self, key, look_in_ms, look)

    patch.setattr(Background, "schedule", by_wall_clock)


MUTATIONS = [*PRODUCERS, *GROUPS]
