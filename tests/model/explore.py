"""Breadth-first exploration of a finite model: every state that can be reached, with the shortest way to a bad one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Step = tuple[str, State]


class TooLarge(Exception):
    """The model has more states than the caller allowed: it is not finite, or not small."""


class Bad(Exception):
    """Raised by a step that breaks a property; `kind` names which."""

    def __init__(self, kind: str, label: str) -> None:
        super().__init__(f"{label}: {kind}")
        self.kind, self.label = kind, label


@dataclass(frozen=True, slots=True)
class Found:
    """A property is broken: which, and the steps from the first state."""

    kind: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}:\n" + "\n".join(f"  {number:2} {step}" for number, step in enumerate(self.trace, 1))


@dataclass(slots=True)
class Explored(Generic[State]):
    """What an exploration has seen. `found` is None only if every reachable state was visited and none was bad."""

    found: Found | None
    states: dict[State, int]
    parents: array[int]
    labels: list[str]
    edges: tuple[array[int], array[int]] = field(default_factory=lambda: (array("i"), array("i")))

    def trace(self, number: int) -> tuple[str, ...]:
        """The steps that led to state `number`."""
        steps: list[str] = []
        while number > 0:
            steps.append(self.labels[number])
            number = self.parents[number]
        return tuple(reversed(steps))

    def stuck(self, goal: Callable[[State], bool]) -> Found | None:
        """The first state from which no goal can be reached any more; None when progress is always possible."""
        alive = self._can_reach(state_number for state, state_number in self.states.items() if goal(state))
        for number in range(len(alive)):
            if not alive[number]:
                return Found("stuck", self.trace(number))
        return None

    def _can_reach(self, goals: Iterable[int]) -> bytearray:
        heads, tails = self.edges
        starts = array("i", bytes(4 * (len(self.states) + 1)))
        for tail in tails:
            starts[tail + 1] += 1
        for number in range(len(self.states)):
            starts[number + 1] += starts[number]
        fill, sources = array("i", starts), array("i", bytes(4 * len(tails)))
        for head, tail in zip(heads, tails, strict=True):
            sources[fill[tail]] = head
            fill[tail] += 1
        alive = bytearray(len(self.states))
        todo = list(goals)
        for number in todo:
            alive[number] = 1
        while todo:
            number = todo.pop()
            for source in sources[starts[number] : starts[number + 1]]:
                if not alive[source]:
                    alive[source] = 1
                    todo.append(source)
        return alive


def explore(
    first: State,
    steps: Callable[[State], Iterator[Step[State]]],
    *,
    states_max: int,
    keep_edges: bool = False,
    counts: Callable[[str], bool] = lambda label: True,
) -> Explored[State]:
    """Visit everything that `steps` reaches from `first`, nearest first, until a step raises Bad.

    `counts` says by its label whether a step is one by which a goal may be reached, see `Explored.stuck`. Raises
    TooLarge beyond `states_max`: a model that was cut off proves nothing.
    """
    seen: dict[State, int] = {first: 0}
    queue: list[State] = [first]
    explored = Explored(None, seen, array("i", [0]), [""])
    heads, tails = explored.edges
    for number, state in enumerate(queue):  # the list grows while it is walked
        try:
            for label, after in steps(state):
                known = seen.setdefault(after, len(queue))
                if known == len(queue):
                    queue.append(after)
                    explored.parents.append(number)
                    explored.labels.append(label)
                    if known >= states_max:
                        raise TooLarge(f"more than {states_max} states")
                if keep_edges and counts(label):
                    heads.append(number)
                    tails.append(known)
        except Bad as bad:
            explored.found = Found(bad.kind, (*explored.trace(number), bad.label))
            return explored
    return explored
