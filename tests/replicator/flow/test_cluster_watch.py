"""A cluster that is away is told once for all its partitions, and once when it is back."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from replicator.flow.cluster_watch import ASK_S, LEADERS_S, AwayClusters, ClusterWatch
from replicator.kafka.topic_questions import TopicQuestions
from replicator.lane.partition import Admit, PositionCommitted, Reason, Wait
from replicator.lane.partitions import Partitions
from replicator.model.errors import NotAllowed, ReplicatorError, TopicMissing, Unreachable
from replicator.model.partition import Partition
from replicator.model.route import Route
from replicator.observe.conditions import ObservedConditions
from tests.replicator.flow.fakes import flow


@dataclass
class Cluster:
    """Answers, or doesn't, in simulated time. `script`: what follows, each for so many seconds; `last`: what is
    answered when it is over, and the flow ends."""

    script: list[tuple[float, ReplicatorError | None]]
    last: ReplicatorError = field(default_factory=lambda: TopicMissing("the end"))
    time_s: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def describe(self, topics: Collection[str]) -> Cluster:
        return self

    def poll(self, timeout_s: float) -> bool:
        if self._now() is None:
            self.time_s += timeout_s
        return self._now() is not None

    def values(self) -> dict[str, ReplicatorError]:
        return {"__eos.f.control": self._now() or Unreachable("no answer in time")}

    def close(self) -> None:
        pass

    def _now(self) -> ReplicatorError | None:
        end_s = 0.0
        for for_s, answer in self.script:
            end_s += for_s
            if self.time_s < end_s:
                return answer
        self.ended.set()
        return self.last

    def now_s(self) -> float:
        return self.time_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.time_s += timeout_s
        return event.is_set()


def watched(*script: tuple[float, ReplicatorError | None]) -> list[tuple[str, float]]:
    """What is logged, and when."""
    cluster, away = Cluster(list(script)), AwayClusters()
    told: list[tuple[str, float]] = []
    at = flow()

    def note(logger: object, method: str, event: Any) -> Any:
        told.append((event["event"], round(cluster.time_s)))
        assert away
        # who asks the process hears the same as who reads the log
        assert bool(conditions.now()) == (event["event"] == "unreachable")
        if conditions.now():
            assert conditions.now().unreachable_ms[at.target.name] <= (told[-1][1] - 3) * 1000, "since the last answer"
        raise structlog.DropEvent

    log = structlog.wrap_logger(None, processors=[note])
    topics = cast(TopicQuestions, cluster)
    conditions = ObservedConditions(lambda: round(cluster.time_s * 1000))
    watch = ClusterWatch(at, at.target, topics, away, cluster.ended, log, conditions, {}, cast(Any, cluster))
    watch.run(told.append)  # type: ignore[arg-type]
    assert bool(away) == (cluster.time_s < told[-1][1] + LEADERS_S if told else False)
    assert not conditions.now(), "nobody asks the cluster any more"
    return told


HERE, REFUSED = TopicMissing("no such topic"), Unreachable("connection refused")


def test_it_is_told_within_five_seconds_once_and_once_when_it_is_back() -> None:
    for gone, after_s in ((None, 5.0), (REFUSED, 15.0)):
        (away, away_s), (back, back_s) = watched((10.0, HERE), (60.0, gone), (after_s, HERE))
        assert (away, back) == ("unreachable", "recovered")
        assert 10 + 3 <= away_s <= 10 + 5
        assert 70 <= back_s <= 70 + ASK_S


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("cluster 'b': cannot describe topic __eos.f.control: x:9092: refused", "no broker answers: x:9092: refused"),
        (
            "cluster 'b': cannot describe topic '__eos.f.control': no answer in time",
            "no broker answers: no answer in time",
        ),
        ("cluster 'b' refused the credentials: no such user", "cluster 'b' refused the credentials: no such user"),
    ],
)
def test_the_reason_names_no_topic(error: str, reason: str) -> None:
    """The one that is asked for is the flow's, and need not be one of the cluster that is away."""
    at, cluster = flow(), Cluster([(60.0, Unreachable(error))])
    conditions, failures = ObservedConditions(lambda: 0), list[BaseException]()
    with capture_logs() as logs:
        log, topics = structlog.get_logger(), cast(TopicQuestions, cluster)
        away, clock = AwayClusters(), cast(Any, cluster)
        watch = ClusterWatch(at, at.target, topics, away, cluster.ended, log, conditions, {}, clock)
        watch.run(failures.append)
    assert failures == []
    assert [entry["reason"] for entry in logs if entry["event"] == "unreachable"] == [reason]


def test_what_was_told_of_a_cluster_outlives_a_flow_that_ends_while_it_is_away() -> None:
    """Its process starts it again, and the next watch, or `Connecting`, meets the answer."""
    at, told, log = flow(), dict[str, float](), structlog.get_logger()

    def lines(cluster: Cluster) -> list[tuple[str, int]]:
        topics, clock, conditions = cast(TopicQuestions, cluster), cast(Any, cluster), ObservedConditions(lambda: 0)
        failures = list[BaseException]()
        with capture_logs() as logs:
            watch = ClusterWatch(at, at.target, topics, AwayClusters(), cluster.ended, log, conditions, told, clock)
            watch.run(failures.append)
        assert failures == []
        return [(it["event"], it["unreachable_s"]) for it in logs]

    assert lines(Cluster([(10.0, HERE), (20.0, REFUSED)], last=REFUSED)) == [("unreachable", 4)]
    assert told.keys() == {at.target.name}
    assert 9 <= told[at.target.name] <= 10, "since its last answer"
    assert lines(Cluster([(110.0, HERE)], time_s=100.0)) in ([("recovered", 90)], [("recovered", 91)])
    assert not told


def test_a_short_silence_is_none_and_a_missing_right_is_an_answer() -> None:
    assert watched((5.0, HERE), (3.0, None), (5.0, HERE), (60.0, NotAllowed("no right")), (3.0, REFUSED)) == []


def test_partitions_that_wait_for_it_are_not_told_one_by_one() -> None:
    away, routes = AwayClusters(), [Route(Partition("t", n), Partition("c", n), "i", "j") for n in range(3)]
    with capture_logs() as logs:
        made = Partitions(structlog.get_logger(), lambda: 0.0, cluster_away=lambda: bool(away))
        made.begin(routes)
        away.set("b", away=True)
        for route in routes:
            made.apply(route.source, Wait(Reason.NO_ANSWER, "no answer"))
        assert logs == []
        away.set("b", away=False)
        for route in routes[:2]:
            made.apply(route.source, Admit())
        made.on_committed()
        assert logs == [], "none of them was said to wait"
        made.apply(routes[2].source, Wait(Reason.NO_ANSWER, "no leader"))
        made.apply(routes[2].source, Admit())
        made.apply(routes[2].source, PositionCommitted())
    assert [(entry["event"], entry["partition"]) for entry in logs] == [("waiting", 2), ("copying", 2)]
