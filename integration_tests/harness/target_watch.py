"""Watches at the target, in a thread, how far a flow is, where a group stands, and when rounds of group
sync end: by what is committed there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from integration_tests.harness.processes import wait_until
from replicator.config import Cluster, Properties
from replicator.groups.ownership import GroupOffset
from replicator.model.errors import ReplicatorError
from replicator.model.names import ends_group, position_group
from replicator.model.partition import Partition
from replicator.wire.group_questions import GroupQuestions
from replicator.wire.offset_fetch_groups import GroupValues

PAUSE_S, ASK_S = 0.03, 1.0


class Seen(NamedTuple):
    """One look that has ended at this time: positions and offsets of the group by target partition, and when the last
    round of group sync had ended, as it was committed just then; times in seconds since 1970 UTC."""

    at_s: float
    positions: Mapping[Partition, int]
    group: Mapping[Partition, int]
    round_s: float


class TargetWatch:
    """Of one flow. What isn't answered, because the target has died, isn't seen."""

    def __init__(self, bootstrap: str, flow: str, group: str) -> None:
        self._cluster = Cluster(name="west", properties=Properties({"bootstrap.servers": bootstrap}))
        self._groups = (position_group(flow), group, ends_group(flow))
        self.seen: list[Seen] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with closing(GroupQuestions(self._cluster, "watch")) as questions:
            while not self._over.wait(PAUSE_S):
                self._look(questions)

    def _look(self, questions: GroupQuestions) -> None:
        try:
            found = questions.offsets(dict.fromkeys(self._groups), ASK_S, stable=False)
        except ReplicatorError:
            return
        values = [_values(it) for group in self._groups if not isinstance(it := found[group], ReplicatorError)]
        if len(values) == len(self._groups):
            positions, group, ends = values
            round_s = max((int(it.metadata) / 1000 for it in ends.values()), default=0.0)
            self.seen.append(Seen(time.time(), _offsets(positions), _offsets(group), round_s))

    def wait_rounds(self, count: int) -> None:
        """Until so many rounds more have ended."""
        at = len(self.seen)

        def ended() -> bool:
            return len({it.round_s for it in self.seen[at:]} - {0.0}) > count

        wait_until(ended, f"{count} rounds", lambda: str(self.seen[-1:]))

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def last_rounds_s(self) -> tuple[float, float]:
        """When the last round that was seen had not begun yet, since the one before it was to be noted still; and when
        that last one was about to be."""
        for it in self.seen:
            assert it.round_s <= it.at_s, f"noted before it has ended: {it}"
        rounds = sorted({it.round_s for it in self.seen})
        return rounds[-2], rounds[-1]

    def positions_at(self, at_s: float) -> Mapping[Partition, int]:
        """How far the flow was at this time, at least."""
        return next((it.positions for it in reversed(self.seen) if it.at_s <= at_s), {})

    def moved(self, copy: Partition) -> Iterator[tuple[float, int]]:
        """Each offset of the group in this partition, and when it was seen first."""
        last = -1
        for it in self.seen:
            offset = it.group.get(copy, -1)
            if offset != last:
                last = offset
                yield it.at_s, offset


def _values(of_group: GroupValues) -> dict[Partition, GroupOffset]:
    return {
        Partition(topic, at): it
        for topic, of_topic in of_group.topics().items()
        for at, it in of_topic.items()
        if isinstance(it, GroupOffset)
    }


def _offsets(values: Mapping[Partition, GroupOffset]) -> dict[Partition, int]:
    return {at: it.offset for at, it in values.items()}
