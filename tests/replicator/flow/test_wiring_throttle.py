"""What was listed of a flow's topics reaches what its lanes keep to, and what a lane tells reaches log and figures."""

from __future__ import annotations

import queue

import pytest
import structlog
import structlog.testing

from replicator.flow import wiring
from replicator.lane.driver import LaneDriver
from replicator.lane.permit import UNASKED
from replicator.lane.throttle import FlowThrottle
from replicator.model.partition import Partition
from replicator.planes.records.losses import LostRecords
from replicator.state.run_settings import NO_SETTINGS, RateLimit
from tests.replicator.lane.test_throttle import copied, plan


def test_a_lane_keeps_to_the_part_of_a_topic_s_limit_that_follows_from_the_last_listing() -> None:
    made: list[FlowThrottle] = []
    parts = wiring.parts(lambda name: None, throttled=lambda flow, throttle: made.append(throttle))(
        structlog.get_logger()
    )
    one = plan(0, 2, [0, 1])
    lane = parts.lane(one, queue.SimpleQueue(), UNASKED)
    parts.partitions(one.flow, {"t": 8})
    (throttle,) = made
    assert isinstance(lane, LaneDriver)
    assert lane._memory.throttle is throttle
    throttle.take(NO_SETTINGS.limit(["t"], RateLimit(records_per_s=100)), 1)
    throttle.runs(one)
    eighths = copied(throttle, 60.0, "t")
    parts.partitions(one.flow, {"t": 4})
    assert copied(throttle, 120.0, "t") > eighths * 1.2


@pytest.mark.parametrize("certain", [True, False])
def test_only_what_is_certainly_lost_is_counted(*, certain: bool) -> None:
    counted: list[int] = []
    lost = LostRecords(Partition("t", 1), 3, ((0, 3),), "why", certain=certain)
    with structlog.testing.capture_logs() as logged:
        wiring._lost_records(structlog.get_logger(), lambda at, records: counted.append(records), lost)
    assert counted == ([3] if certain else [])
    ((event, records, said),) = [(it["event"], it["records"], it["certain"]) for it in logged]
    assert (event, records, said) == ("records_lost", 3, certain)
