"""What contradicts the positions of a flow in its map's topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.inspect.map_incidents import MapTopicFacts, found
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.checkpoint import Evidence
from replicator.model.partition import Span
from replicator.offset_map.topic import CONFIGS, MAP_PARTITIONS

TOPIC = "__eos.f.offsets"
INFO = TopicInfo(TOPIC, "this", MAP_PARTITIONS, dict(CONFIGS))


def evidence(topic_id: str = "this", partition: int = 0, offset: int = 10) -> Evidence:
    return Evidence(
        generation=1,
        owner="w",
        source_topic="t",
        source_cluster="c",
        source_topic_id="s",
        target_topic_id="t",
        log_start=0,
        next_target_offset=0,
        count=0,
        map_topic_id=topic_id,
        map_partition=partition,
        map_offset=offset,
    )


def incidents(
    *of: Evidence, info: TopicInfo | None = INFO, bounds: Span = (0, 20), open_ms: int | None = None
) -> list[tuple[str, int]]:
    opened = {} if open_ms is None else {3: open_ms}
    facts = None if info is None else MapTopicFacts(info, dict.fromkeys(range(MAP_PARTITIONS), bounds), opened)
    return [(it.name, it.partition) for it in found(TOPIC, facts, of, 1_000)]


def test_a_map_that_fits_its_positions_has_none() -> None:
    assert incidents(evidence(), evidence(partition=2, offset=19), evidence(topic_id="", offset=99)) == []


@pytest.mark.parametrize(
    ("bounds", "lost"), [((0, 20), False), ((10, 20), False), ((11, 20), True), ((0, 10), True), ((0, 11), False)]
)
def test_a_map_that_has_lost_its_newest_block_is_lost(bounds: Span, lost: bool) -> None:
    older = evidence(offset=3)
    assert incidents(older, evidence(offset=10), bounds=bounds) == ([("map_lost", 0)] if lost else [])


@pytest.mark.parametrize(("covered", "lost"), [(0, True), (14, True), (15, False), (18, False)])
def test_blocks_that_the_index_covers_are_not_lost(covered: int, lost: bool) -> None:
    facts = MapTopicFacts(INFO, dict.fromkeys(range(MAP_PARTITIONS), (15, 20)), {}, {0: covered})
    said = [it.name for it in found(TOPIC, facts, [evidence(offset=10)], 1_000)]
    assert said == (["map_lost"] if lost else [])


def test_a_topic_that_is_gone_or_another_one_is_lost() -> None:
    assert incidents(evidence(), info=None) == [("map_lost", -1)]
    assert incidents(evidence(topic_id="other", offset=99), evidence()) == [("map_lost", -1)]


def test_a_topic_that_would_lose_blocks_is_unfit() -> None:
    assert incidents(evidence(), info=replace(INFO, partitions=15)) == [("map_topic_unfit", -1)]


@pytest.mark.parametrize(("since_ms", "stays"), [(999, True), (1_000, False)])
def test_a_transaction_that_outlasts_the_time_out_stays_open(since_ms: int, stays: bool) -> None:
    assert incidents(evidence(), open_ms=since_ms) == ([("map_transaction_open", 3)] if stays else [])
