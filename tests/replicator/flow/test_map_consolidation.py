"""Consolidating the offset map: when it is done, what is told of it, and what it never does."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.flow import map_consolidation
from replicator.flow.map_consolidation import MapConsolidation, RoundResult
from replicator.flow.map_index_writer import MapIndexWatch
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Unreachable
from replicator.offset_map.fold import PlacedSection
from replicator.offset_map.section import MapSection
from tests.model.map_index import MapLogs, Process, RawLog, read_all

TOPIC = bytes(range(20, 36))
KEY = TOPIC, 0


def section(number: int) -> MapSection:
    return MapSection(
        source_topic_id=TOPIC,
        partition=0,
        before=number,
        after=number + 1,
        first_target=2 * number,
        count=number + 1,
        runs=((number, number + 1),),
    )


def logs_of(*generations: int) -> MapLogs:
    """A block of one record for each, all of them written."""
    logs = MapLogs(random.Random(0))
    logs.write_blocks(
        PlacedSection(generation, number, 0, b"", section(number)) for number, generation in enumerate(generations)
    )
    logs.reveal(len(generations))
    return logs


def raw_of(logs: MapLogs, generation: int = 1) -> RawLog:
    return logs.raw[generation * 5 % 16]


def ends(logs: MapLogs) -> list[int]:
    return [one.section.after for one in read_all(logs, [KEY])[KEY]]


def test_few_blocks_wait_until_they_are_old() -> None:
    logs = logs_of(*[1] * 5)
    process = Process(logs)
    assert process.consolidation.round() == RoundResult()
    assert logs.root() is None
    process._now_s += map_consolidation.AGE_S_MAX
    assert process.consolidation.round().blocks == 5
    assert raw_of(logs).start == len(raw_of(logs).values)
    assert ends(logs) == [1, 2, 3, 4, 5]


def test_many_blocks_do_not_wait() -> None:
    logs = logs_of(*[1] * map_consolidation.BLOCKS_MAX)
    assert Process(logs).consolidation.round().blocks == map_consolidation.BLOCKS_MAX


def test_without_the_right_to_delete_blocks_stay_and_it_is_told() -> None:
    logs = logs_of(1, 1, 1)
    process = Process(logs)
    delete = process.consolidation._blocks.delete
    refused = NotAllowed("no Delete")

    def denied(offsets: Mapping[int, int]) -> None:
        raise refused

    process.consolidation._blocks.delete = denied  # type: ignore[method-assign]
    assert process.consolidation.round(all_of_it=True).denied is refused
    assert (raw_of(logs).start, ends(logs)) == (0, [1, 2, 3])
    process.consolidation._blocks.delete = delete  # type: ignore[method-assign]
    assert process.consolidation.round().deleted
    assert raw_of(logs).start > 0
    assert ends(logs) == [1, 2, 3]


@pytest.mark.parametrize("before", [0, 2])
def test_blocks_that_somebody_else_has_deleted_are_told_to_be_lost(before: int) -> None:
    logs = logs_of(*[1] * 6)
    logs.visible[5] = before
    process = Process(logs)
    process.consolidation.round(all_of_it=True)
    logs.visible[5] = len(raw_of(logs).values)
    raw_of(logs).start = 5
    told = [process.consolidation.round(all_of_it=True).lost for _ in range(2)]
    assert [bool(text) for text in told] == [True, False]
    assert "partition 5 begins at offset 5" in told[0]
    left = ends(logs)
    assert left[-1] == 6
    assert len(left) < 6


def test_bytes_that_are_no_block_are_counted_and_go() -> None:
    logs = logs_of(1, 1)
    raw_of(logs).values.insert(1, b"text")
    logs.visible[5] += 1
    Process(logs).consolidation.round(all_of_it=True)
    root = logs.root()
    assert root is not None
    assert root.unreadable == {5: (1, 1)}
    assert ends(logs) == [1, 2]


def test_a_block_of_a_newer_version_stops_it() -> None:
    logs = logs_of(1, 1)
    raw_of(logs).values.append(b"\x02\x01")
    logs.visible[5] = len(raw_of(logs).values)
    with pytest.raises(Incident, match=r"newer_format.*version 2"):
        Process(logs).consolidation.round(all_of_it=True)
    assert (raw_of(logs).start, logs.root()) == (0, None)


def test_a_block_behind_one_of_a_later_generation_stops_it() -> None:
    logs = logs_of(17, 1)  # both in one partition
    process = Process(logs)
    with pytest.raises(Incident, match="generation 1 follows one of 17"):
        process.consolidation.round(all_of_it=True)
    assert raw_of(logs).start == 0


def test_many_blocks_of_the_next_generation_hold_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They fill what may be in memory of their partition, which is read before that of the earlier generation."""
    monkeypatch.setattr(map_consolidation, "PARTITION_BYTES_MAX", 300)
    logs = logs_of(*[1] * 40, *[13] * 40)  # in partitions 5 and 1
    process = Process(logs)
    for _ in range(60):
        process.consolidation.round(all_of_it=True)
    assert [raw_of(logs, generation).start for generation in (1, 13)] == [logs.visible[5], logs.visible[1]]
    assert ends(logs) == list(range(1, 81))


def test_the_map_that_was_made_anew_goes_on_behind_what_the_index_has() -> None:
    logs = logs_of(1, 1, 1)
    Process(logs).consolidation.round(all_of_it=True)
    again = logs_of(1, 1, 1)
    again.index, again.outcome, again.epoch, again.transactions = logs.index, logs.outcome, 1, logs.transactions
    root = again.root()
    assert root is not None
    process = Process(again)
    process.topic_id = bytes(16)
    process.consolidation.round(all_of_it=True)
    assert ends(again) == [1, 2, 3, 1, 2, 3]


class Rounds:
    """What comes of each round."""

    def __init__(self, *results: RoundResult | ReplicatorError) -> None:
        self.results = list(results)

    def round(self) -> RoundResult:
        found = self.results.pop(0)
        if isinstance(found, ReplicatorError):
            raise found
        return found


def told(*results: RoundResult | ReplicatorError) -> list[str]:
    rounds = Rounds(*results)
    consolidation: MapConsolidation = rounds  # type: ignore[assignment]
    watch = MapIndexWatch(consolidation, threading.Event(), structlog.get_logger(), "__eos.f.offsets")
    with capture_logs() as logs:
        for _ in results:
            assert watch.look() > 0
    return [str(line["event"]) for line in logs]


def test_what_goes_wrong_is_told_once() -> None:
    away, unfit = Unreachable("away"), Incident("map_topic_unfit", "15 partitions", topic="__eos.f.offsets-index")
    assert told(away, away, RoundResult(), RoundResult()) == ["map_not_consolidated", "map_consolidated_again"]
    assert told(unfit, unfit) == ["incident"]
    assert told(RoundResult(lost="gone"), RoundResult()) == ["incident"]
    denied = RoundResult(blocks=3, denied=NotAllowed("no Delete"))
    assert told(denied, RoundResult(), denied, RoundResult(deleted=True), denied) == ["map_not_deleted"] * 2


def test_a_failure_is_tried_again_later_and_later() -> None:
    rounds: MapConsolidation = Rounds(*[Unreachable("away")] * 6)  # type: ignore[assignment]
    watch = MapIndexWatch(rounds, threading.Event(), structlog.get_logger(), "t")
    with capture_logs():
        pauses = [watch.look() for _ in range(6)]
    assert pauses[-1] > pauses[0]


@pytest.mark.tier("default")
def test_a_bug_ends_the_flow() -> None:
    rounds: MapConsolidation = Rounds()  # type: ignore[assignment]
    watch, failed = MapIndexWatch(rounds, threading.Event(), structlog.get_logger(), "t"), list[BaseException]()
    closed: list[bool] = []
    watch.run(failed.append, lambda: closed.append(True))
    assert ([type(error) for error in failed], closed) == ([IndexError], [True])
