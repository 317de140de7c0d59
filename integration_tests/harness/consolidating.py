"""Consolidates a flow's offset map in the process of a test: once, or in a thread for as long as a block runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from replicator.config import Flow
from replicator.flow.map_consolidation import MapConsolidation
from replicator.flow.map_index_writer import MapIndexWatch, consolidation_of
from replicator.flow.offsets_topic import index_topic_of
from replicator.flow.topics import ControlPlane
from replicator.kafka.admin import TopicSpec
from replicator.model.names import offsets_topic
from replicator.model.partition import Partition
from replicator.offset_map.topic import MAP_PARTITIONS

WAIT_S = 30.0


def _spec(flow: Flow) -> TopicSpec:
    spec = index_topic_of(flow.model_copy(update={"consolidate_map": True}))
    assert spec is not None
    return spec


@contextmanager
def consolidation(flow: Flow) -> Iterator[MapConsolidation]:
    """What consolidates, as a process of its own would."""
    made, close = consolidation_of(flow, _spec(flow), structlog.get_logger())
    try:
        yield made
    finally:
        close()


def consolidate(flow: Flow) -> int:
    """Put all blocks into the index and delete them; how many rounds had blocks."""
    rounds = quiet = 0
    with consolidation(flow) as made:
        while quiet < 2:  # blocks of another generation wait for one more look at all partitions
            done = made.round(all_of_it=True).blocks > 0
            rounds, quiet = rounds + done, 0 if done else quiet + 1
    return rounds


@contextmanager
def consolidating(flow: Flow) -> Iterator[MapIndexWatch]:
    """In a thread, which must not fail."""
    made, close = consolidation_of(flow, _spec(flow), structlog.get_logger())
    ended, failed = threading.Event(), list[BaseException]()
    watch = MapIndexWatch(made, ended, structlog.get_logger(), offsets_topic(flow.name))
    thread = threading.Thread(target=watch.run, args=(failed.append, close))
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join(WAIT_S)
    assert not failed, failed


def starts(flow: Flow) -> int:
    """How many blocks and markers of the map are gone."""
    with ControlPlane(flow) as clusters:
        ats = [Partition(offsets_topic(flow.name), number) for number in range(MAP_PARTITIONS)]
        return sum(clusters.target.offsets(ats, end=False).values())


def wait_deleted(flow: Flow, more_than: int) -> int:
    """Wait until more blocks are gone."""
    until_s = time.monotonic() + WAIT_S
    while (gone := starts(flow)) <= more_than:
        assert time.monotonic() < until_s, f"{gone} blocks are gone"
        time.sleep(0.1)
    return gone
