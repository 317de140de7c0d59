"""Who ran which lane when, by the workers' logs and by what was done to them: how often lanes changed hands, and how
long one was nobody's. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Began(NamedTuple):
    """A worker has fenced its predecessor in a lane and reads. `at_s`: wall clock; `worker`: a number of the test's."""

    at_s: float
    generation: int
    lane: int
    worker: int


class Gone(NamedTuple):
    """A worker was killed, stopped or made to stand still; `until_s`: when it went on, if it did."""

    at_s: float
    worker: int
    until_s: float = float("inf")


@dataclass
class LaneHistory:
    """Of one flow. `disturbed_s`: when something was done, in order, whatever it was; `session_s`: of the workers;
    `away_s`: from when to when the target didn't run at all."""

    began: Sequence[Began]
    gone: Sequence[Gone]
    disturbed_s: Sequence[float] = field(default_factory=list)
    session_s: float = 0.0
    away_s: Sequence[tuple[float, float]] = field(default_factory=list)

    def disturbances(self, from_s: float, to_s: float) -> int:
        """How many there were in a time."""
        return bisect_right(self.disturbed_s, to_s) - bisect_right(self.disturbed_s, from_s)

    def orphaned(self) -> Iterator[tuple[float, int, str]]:
        """How long each lane of a worker that went was nobody's (seconds), how many other things were done meanwhile or
        within a session before, and which lane it was.

        What was done before counts because of rebalances: a member that dies while one is under way is counted on until
        a session after its end, and is given lanes in it (Kafka's GroupCoordinator, `shouldKeepAlive`).
        Where the generation ended meanwhile it was nobody's until any lane of the next one began. How long the target
        takes to start again is its own: that time doesn't count, as nobody can take over a lane in it.
        """
        began = sorted(self.began)
        for gone in self.gone:
            for last in self._held(began, gone):
                after = [each for each in began if each.at_s > gone.at_s]
                ours = [each for each in after if each[1:3] == last[1:3] or each.generation > last.generation]
                until_s = min((ours[0].at_s if ours else float("inf")), gone.until_s)
                if until_s < float("inf"):
                    lane = f"lane {last.lane} of generation {last.generation}, held by {gone.worker}"
                    others = self._just_before(gone.at_s) + self.disturbances(gone.at_s, until_s)
                    yield until_s - gone.at_s - self._away(gone.at_s, until_s), others, lane

    def _away(self, from_s: float, to_s: float) -> float:
        return sum(max(0.0, min(to_s, back_s) - max(from_s, at_s)) for at_s, back_s in self.away_s)

    def _just_before(self, at_s: float) -> int:
        return len([each for each in self.disturbed_s if at_s - self.session_s <= each < at_s])

    @staticmethod
    def _held(began: Sequence[Began], gone: Gone) -> Iterator[Began]:
        """The lanes that nobody has taken from the worker by then, in the newest generation."""
        before = [each for each in began if each.at_s <= gone.at_s]
        newest = max((each.generation for each in before), default=0)
        last = {each.lane: each for each in before if each.generation == newest}
        return (each for each in last.values() if each.worker == gone.worker)

    def taken_over(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By generation and lane: how often another worker began to run it, and how much was done meanwhile."""
        found: dict[tuple[int, int], tuple[int, int]] = {}
        began = sorted(self.began)
        for generation in {each.generation for each in began}:
            in_it = [each for each in began if each.generation == generation]
            later = [each.at_s for each in began if each.generation > generation]
            done = self.disturbances(in_it[0].at_s, min(later, default=float("inf")))
            for lane in {each.lane for each in in_it}:
                workers = [each.worker for each in in_it if each.lane == lane]
                found[generation, lane] = sum(one != other for one, other in pairwise(workers)), done
        return found
