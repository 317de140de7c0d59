"""Topics that `new_topics: ignore` leaves out are nothing that `status` and `plan` speak of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from replicator.config import Config, load_text
from replicator.flow.topic_rules import ListedTopic
from replicator.inspect import planning, status
from replicator.inspect.expected_starts import ExpectedStart, ExpectedStarts, list_topics
from replicator.inspect.flow_plan import FlowPlan
from replicator.kafka.cluster_info import ClusterInfo
from replicator.kafka.topic_questions import TopicInfo
from replicator.lane.start_decision import StartDecision
from replicator.model.errors import NotAllowed, ReplicatorError
from replicator.model.partition import LogEnds, Partition
from replicator.model.route import Route
from replicator.state.claims import Claim, Claims
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Phase
from replicator.state.origins import FoundOrigins

pytestmark = pytest.mark.tier("default")

RUNS = Control({1: Generation(1, Phase.OPEN, 1, partitions={"orders": 1})})
NO_RIGHTS = frozenset[str]()


class FakePlane:
    """Implements what is asked of `ControlPlane`: the source has the topic of the first listing, and a new one that
    the user may only see."""

    def __init__(self, control: Control | ReplicatorError | None) -> None:
        self._control = control
        self.claims: Claims | None = None
        self.state: Any = self
        self.source_claims: Any = self
        self.source: Any = self
        self.target: Any = self
        self.target_logs: Any = self

    def __enter__(self) -> FakePlane:
        return self

    def __exit__(self, *_: object) -> None:
        """See `ControlPlane`."""

    def connect_if_any(self) -> tuple[ClusterInfo, ClusterInfo]:
        """See `ControlPlane`."""
        return ClusterInfo("ca", ()), ClusterInfo("cb", ())

    def group_rights(self, group: str) -> None:
        """See `ClusterAdmin`."""

    def listed_source(self, *, rights: bool = False) -> dict[str, ListedTopic]:
        """See `ControlPlane`."""
        return {
            "orders": ListedTopic(TopicInfo("orders", "o", 1)),
            "later": ListedTopic(TopicInfo("later", "l", 1, rights=NO_RIGHTS)),
            "hidden": ListedTopic(denied=NotAllowed("no Describe on hidden")),
        }

    def listed_target(self, names_: Iterable[str], *, rights: bool = False) -> dict[str, ListedTopic]:
        """See `ControlPlane`."""
        return {name: ListedTopic() for name in names_}

    def origins(self, topic_ids: Mapping[str, str]) -> FoundOrigins:
        """See `SourceClaims`."""
        return FoundOrigins()

    def topic_names(self) -> frozenset[str]:
        """See `ClusterAdmin`."""
        return frozenset()

    def create_topics(self, specs: Iterable[object], *, dry: bool = False) -> dict[str, bool]:
        """See `ClusterAdmin`."""
        assert dry
        return {}

    def grow_topics(self, totals: Mapping[str, int], *, dry: bool = False) -> dict[str, None]:
        """See `ClusterAdmin`."""
        return dict.fromkeys(totals)

    def log_ends(self, partitions: Collection[Partition]) -> dict[Partition, LogEnds]:
        """See `ClusterQuestions`."""
        return {}

    def control_if_any(self) -> Control | None:
        """See `FlowState`."""
        if isinstance(self._control, ReplicatorError):
            raise self._control
        return self._control

    def claims_if_any(self) -> Claims | None:
        """See `FlowState`."""
        return self.claims


class FakeForecast:
    """Says of each partition that it would begin."""

    def __init__(self, *_: object) -> None:
        pass

    def decide(self, routes: Sequence[Route], claims: Claims) -> ExpectedStarts:
        """See `StartForecast`."""
        ends = LogEnds("id", 0, 10, 10)
        return {it.source: ExpectedStart(it, None, ends, ends, StartDecision()) for it in routes}


def config_of(new_topics: str) -> Config:
    text = f"""\
clusters: {{a: {{properties: {{bootstrap.servers: "a:1"}}}}, b: {{properties: {{bootstrap.servers: "b:1"}}}}}}
flows: {{f: {{source: a, target: b, topics: ["^.*"], new_topics: {new_topics}}}}}
"""
    return load_text(text, env={})


def planned(control: Control | ReplicatorError | None, new_topics: str) -> tuple[set[str], list[str]]:
    """Return the source topics that `plan` has, and what it finds of rights."""
    config, plane = config_of(new_topics), FakePlane(control)
    result = FlowPlan("f", "a", "b")
    clusters: Any = plane
    planner = planning._Planner(config.flows["f"], config, clusters, result)
    listing = planner._listing(*plane.connect_if_any())
    planner._topics(listing, {})
    return {it.source for it in result.topics}, [it.message for it in result.findings if it.kind == "right"]


Shown = Callable[[Control | ReplicatorError | None, str], dict[str, int | None]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Lag in records by source topic, as `status` says it."""

    def of(control: Control | ReplicatorError | None, new_topics: str) -> dict[str, int | None]:
        own = control if isinstance(control, Control) else None
        config = config_of(new_topics)
        for name, value in {
            "ControlPlane": lambda *_, **__: FakePlane(control),
            "own_topics": lambda _: (own, Claims({}, ()), ""),
            "StartForecast": FakeForecast,
            "map_incidents": lambda *_: [],
            "newest_heartbeat_ms": lambda *_: None,
            "offset_reader": SimpleNamespace(times_at=lambda *_, **__: {}),
        }.items():
            monkeypatch.setattr(status, name, value)
        found = status.status(config.flows["f"], config, now_ms=1, connect_timeout_ms=1)
        return {row.source_topic: row.lag_records for row in found.partitions}

    return of


def test_a_topic_that_the_flow_ignores_has_no_row(shown: Shown) -> None:
    """Its records would be lag for good, and `plan` would announce a topic that `run` doesn't create."""
    assert shown(RUNS, "ignore") == {"orders": 10}
    assert planned(RUNS, "ignore") == ({"orders"}, [])


def test_a_topic_that_was_copied_before_the_flow_was_to_ignore_new_ones_is_told() -> None:
    plane = FakePlane(RUNS)
    plane.claims = Claims(
        {Partition("a.later", 0): Claim(Partition("a.later", 0), Partition("later", 0), "l", "t", 0, 0, 1, "me", 1)}, ()
    )
    clusters: Any = plane
    config = config_of("ignore")
    there, *_ = list_topics(config.flows["f"], config, clusters, {"a": "ca", "b": "cb"})
    assert set(there) == {"orders", "later"}


@pytest.mark.parametrize(
    ("control", "new_topics"),
    [(RUNS, "copy"), (None, "ignore"), (Control(), "ignore"), (NotAllowed("no Read on control"), "ignore")],
)
def test_all_are_told_of_a_flow_that_copies_them_or_has_never_run_or_does_not_say(
    shown: Shown, control: Control | ReplicatorError | None, new_topics: str
) -> None:
    assert shown(control, new_topics) == {"orders": 10, "later": 10, "hidden": None}
    topics, rights = planned(control, new_topics)
    assert topics == {"orders", "later"}
    assert len(rights) == 2
