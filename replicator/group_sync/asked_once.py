"""Asks the offset map about the offsets of many groups, each once: groups of a topic often stand at the same ones. Used
by `commits` and `standing`."""

from __future__ import annotations

from collections.abc import Iterable

from replicator.group_sync.ports import LiveMap
from replicator.translation.answers import OffsetAnswer, OffsetToTranslate

InPartition = tuple[int, int]
"""A partition, and an offset in it."""


def answers_once(
    live_map: LiveMap, wanted: Iterable[tuple[str, Iterable[InPartition]]]
) -> dict[str, dict[InPartition, OffsetAnswer]]:
    """Translate offsets, by source topic. They are asked about, and so lie in memory, in the order in which they come
    first. Raises ReplicatorError."""
    once = dict[str, dict[InPartition, None]]()
    for topic, offsets in wanted:
        once.setdefault(topic, {}).update(dict.fromkeys(offsets))
    partitions = live_map.partitions()
    asked = [OffsetToTranslate(partitions[topic][at], offset) for topic, of_it in once.items() for at, offset in of_it]
    answers = iter(live_map.answers(asked))
    return {topic: {one: next(answers) for one in of_it} for topic, of_it in once.items()}
