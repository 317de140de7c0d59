"""As `test_exploration`, with the offset map on: two things go wrong at any two calls, also with the map itself, and
then every offset that the map gives is compared with both logs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from replicator.model.checkpoint import Unreadable
from replicator.model.errors import Abortable, NotAllowed, Retriable, UnknownOutcome, Unreachable
from replicator.model.partition import Partition
from tests.budget import budget
from tests.replicator.lane import test_exploration
from tests.replicator.lane.fakes.map_truth import check_map, target_of
from tests.replicator.lane.fakes.plane import MAP
from tests.replicator.lane.fakes.world import World
from tests.replicator.lane.test_exploration import ALL, Schedule

SCHEDULES, PARTS = budget(1_200, 6_000), 4
ERRORS = {
    "plane.write_blocks": (Abortable, UnknownOutcome, NotAllowed),
    "plane.wait_blocks": (Abortable, UnknownOutcome, NotAllowed),
    "east.map_log": (Retriable, Unreachable),
}


class MapSchedule(Schedule):
    """One run of a lane that writes a map. `disturbed`: the map may have holes, and has to say so."""

    disturbed = False

    def events(self) -> list[Callable[[], None]]:
        return [*super().events(), self.refuse_blocks, self.map_without_leader, self.lose_map_markers, self.remake_map]

    def refuse_blocks(self) -> None:
        self.disturbed = True
        topic = self.world.target.topics[MAP]
        topic.refuses = frozenset({"any"})
        self.later(100, lambda: setattr(topic, "refuses", frozenset()))

    def map_without_leader(self) -> None:
        self.disturbed = True
        log = self.world.target.log(Partition(MAP, 0))
        log.not_ready = f"{MAP}[0] has no leader"
        self.unready_logs.append(log)
        self.later(200, lambda: setattr(log, "not_ready", ""))

    def lose_map_markers(self) -> None:
        self.disturbed = True
        log = self.world.target.log(Partition(MAP, 0))
        log.drops_markers = True
        self.dropping.append(log)
        self.later(60, lambda: setattr(log, "drops_markers", False))

    def remake_map(self) -> None:
        self.disturbed = True
        self.world.target.delete(MAP)
        self.world.target.create(MAP, 16)

    def check_copies(self, *, restarted: bool = False) -> None:
        super().check_copies(restarted=restarted)
        for at in ALL:
            if ("u.copy" in self.recreated and at.topic == "u") or at in self.strays or self.stolen:
                continue
            stored = self.world.target.position(target_of(at))
            if stored is None or isinstance(stored, Unreadable):
                continue
            hidden, others = at in self.markers_lost, at.topic in self.recreated
            whole = not (self.disturbed or self.unready_logs or others or hidden)
            found = check_map(self.world, at, hidden=hidden, others=others, ends=whole)
            if not whole or self.world.told("map_not_checked"):
                continue
            assert list(found.unmapped) == [], f"{at}: the map has holes"
            if found.passed:
                assert stored.evidence.map_topic_id, f"{at}: the position names no block"


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=pytest.mark.tier("full" if part else "default")) for part in range(PARTS)],
)
def test_two_things_go_wrong_at_any_two_calls_and_the_map_says_where_each_copy_is(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_exploration, "World", partial(World, maps=True))
    monkeypatch.setattr(test_exploration, "ERRORS", test_exploration.ERRORS | ERRORS)
    for seed in range(part * SCHEDULES // PARTS, (part + 1) * SCHEDULES // PARTS):
        schedule = MapSchedule(seed)
        try:
            schedule.run()
        except BaseException as error:
            last = "\n".join(schedule.world.trace[-80:])
            raise AssertionError(f"seed {seed}: {error}\n{last}\n{schedule.world.events[-10:]}") from error
