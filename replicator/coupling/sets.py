"""Coupled sets of topics: the connected components of what read-process-write loops and transactional producers write
and read. Pure.

A group ties what different producers do for it: which of them reads which partition changes with each rebalance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from replicator.coupling.evidence import TransactionalWriter


@dataclass(frozen=True, slots=True)
class CoupledSet:
    """Topics, two at least, of which none is consistent with the others where it is moved or read without them.

    Attributes:
        topics: by name.
        groups: consumer groups whose offsets are committed in the transactions.
        writers: the evidence: producers that tie topics of the set together, alone or through a group.
        outside: those of `topics` that the flow doesn't copy.
    """

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    writers: tuple[TransactionalWriter, ...]
    outside: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "topics": list(self.topics),
            "outside": list(self.outside),
            "groups": list(self.groups),
            "evidence": [it.as_json() for it in self.writers],
        }


class SplitSet(NamedTuple):
    """A coupled set of which only a part was chosen."""

    coupled: CoupledSet
    chosen: tuple[str, ...]
    left: tuple[str, ...]


class _Joined:
    """Topics and groups, joined to components (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(self, node: tuple[str, str]) -> tuple[str, str]:
        above = self._parent.setdefault(node, node)
        while above != node:
            self._parent[node] = self._parent[above]
            node, above = above, self._parent[above]
        return node

    def join(self, nodes: Sequence[tuple[str, str]]) -> None:
        for node in nodes[1:]:
            self._parent[self.root(node)] = self.root(nodes[0])


def coupled_sets(writers: Iterable[TransactionalWriter], copied: Collection[str]) -> list[CoupledSet]:
    """Return the coupled sets that have any topic of a flow, by their first topics.

    Args:
        copied: the topics that the flow copies.
    """
    joined, known = _Joined(), list(writers)
    for writer in known:
        joined.join([("topic", it) for it in sorted(writer.topics)] + [("group", it) for it in sorted(writer.reads)])
    of_set: defaultdict[tuple[str, str], list[TransactionalWriter]] = defaultdict(list)
    for writer in known:
        if writer.topics:
            of_set[joined.root(("topic", min(writer.topics)))].append(writer)
    found = (_coupled(of_one, frozenset(copied)) for of_one in of_set.values())
    return sorted((it for it in found if it is not None), key=lambda it: it.topics)


def _coupled(writers: Sequence[TransactionalWriter], copied: frozenset[str]) -> CoupledSet | None:
    topics = frozenset[str]().union(*(writer.topics for writer in writers))
    if len(topics) < 2 or copied.isdisjoint(topics):
        return None
    groups = sorted({group for writer in writers for group in writer.reads})
    tying = tuple(writer for writer in writers if len(writer.topics) > 1 or writer.reads)
    return CoupledSet(tuple(sorted(topics)), tuple(groups), tying, tuple(sorted(topics - copied)))


def split_sets(sets: Iterable[CoupledSet], topics: Collection[str]) -> list[SplitSet]:
    """Return the sets that would be split if these topics were moved and no others."""
    found = []
    for coupled in sets:
        chosen = tuple(topic for topic in coupled.topics if topic in topics)
        left = tuple(topic for topic in coupled.topics if topic not in topics)
        if chosen and left:
            found.append(SplitSet(coupled, chosen, left))
    return found
