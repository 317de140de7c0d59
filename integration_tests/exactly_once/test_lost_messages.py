"""A request or a reply is lost on the way: invariant 6, an unknown outcome starts over."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.harness.proxy import Action, Proxy, Side

pytestmark = pytest.mark.tier(kafka="full")

LIMITS = {"request_timeout_ms": 2_000, "transaction_timeout_ms": 6_000}
LANE = ".lane"  # in the client.id of the lane's transactional producer
OTHERS_OF_THE_LANE_START = (
    ("Metadata", 2),
    ("CreateTopics", 1),
    ("CreateTopics", 2),
    ("DescribeConfigs", 1),
    ("ListOffsets", 1),
    ("ListOffsets", 2),
    ("ListOffsets", 3),
    ("ListOffsets", 9),
    ("ListOffsets", 12),
    ("InitProducerId", 1),
)


@pytest.mark.parametrize(
    ("side", "action"),
    [
        (Side.REQUEST, Action.CUT),
        pytest.param(Side.REPLY, Action.DROP, marks=pytest.mark.tier(kafka="long")),
        pytest.param(Side.REQUEST, Action.DROP, marks=pytest.mark.tier("full", kafka="long")),
        pytest.param(Side.REPLY, Action.CUT, marks=pytest.mark.tier("full")),
    ],
)
def test_a_lost_commit_starts_over(make_copying: MakeCopying, proxy: Proxy, side: Side, action: Action) -> None:
    """Whether it was applied or not: the outcome is read from the target and never assumed."""
    copying = make_copying(via=proxy.bootstrap, limits=LIMITS)
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        mark = worker.mark()
        lost = proxy.rule("EndTxn", side, action, client=LANE)
        lost.wait_hit()
        worker.wait_event("restarted", after=mark)
        worker.wait_event("committed", after=mark)
    copying.finish(worker)


def test_a_commit_whose_reply_is_late_is_one_commit(make_copying: MakeCopying, proxy: Proxy) -> None:
    copying = make_copying(via=proxy.bootstrap)
    worker = copying.running()
    with copying.writing():
        late = proxy.rule("EndTxn", Side.REPLY, Action.DELAY, delay_s=1.0, client=LANE)
        late.wait_hit()
        mark = worker.mark()
        worker.wait_event("committed", after=mark)
    copying.finish(worker)
    assert not worker.seen("restarted"), "a slow reply is no lost one"


def test_a_commit_that_arrives_after_its_producer_was_given_up_ends_nothing(
    make_copying: MakeCopying, proxy: Proxy
) -> None:
    """The late EndTxn carries an old epoch: it must not end its successor's transaction."""
    copying = make_copying(via=proxy.bootstrap, limits=LIMITS)
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        mark = worker.mark()
        held = proxy.rule("EndTxn", Side.REQUEST, Action.HOLD, client=LANE)
        held.wait_hit()
        worker.wait_event("lane_started", after=mark)
        next_one = proxy.rule("EndTxn", Side.REQUEST, Action.HOLD, client=LANE)
        next_one.wait_hit()
        held.release()
        next_one.release()
        mark = worker.mark()
        worker.wait_event("committed", after=mark)
    copying.finish(worker)


@pytest.mark.parametrize(
    ("action", "sides"),
    [
        pytest.param(Action.CUT, (Side.REQUEST, Side.REPLY), id="cut", marks=pytest.mark.tier("full")),
        pytest.param(Action.DROP, (Side.REPLY,), id="drop", marks=pytest.mark.tier("full", kafka="long")),
    ],
)
def test_any_other_message_of_a_transaction_is_lost(
    make_copying: MakeCopying, proxy: Proxy, action: Action, sides: tuple[Side, ...]
) -> None:
    """One after the other in one flow, each followed by a commit. A dropped one costs a request timeout."""
    copying = make_copying(via=proxy.bootstrap, limits=LIMITS)
    worker = copying.running()
    with copying.writing():
        for api in ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit"):
            for side in sides:
                mark = worker.mark()
                lost = proxy.rule(api, side, action, client=LANE)
                lost.wait_hit()
                worker.wait_event("committed", after=mark)
    copying.finish(worker)


@pytest.mark.parametrize(
    ("api", "nth"),
    [
        *(pytest.param(*message, marks=pytest.mark.tier("full")) for message in OTHERS_OF_THE_LANE_START),
        ("InitProducerId", 2),
        ("OffsetFetch", 1),
    ],
)
def test_a_message_of_the_lane_start_is_lost(make_copying: MakeCopying, proxy: Proxy, api: str, nth: int) -> None:
    """The first topics that are created are the flow's own, then come the copies."""
    copying = make_copying(via=proxy.bootstrap, limits=LIMITS)
    copying.load.mixed(200)
    lost = proxy.rule(api, Side.REPLY, Action.CUT, nth=nth)
    worker = copying.running()
    assert lost.hit
    copying.finish(worker)


def test_all_connections_break_again_and_again(make_copying: MakeCopying, proxy: Proxy) -> None:
    copying = make_copying(via=proxy.bootstrap)
    worker = copying.running()
    with copying.writing():
        for _ in range(5):
            mark = worker.mark()
            worker.wait_event("committed", after=mark)
            proxy.cut_all()
    copying.finish(worker)
