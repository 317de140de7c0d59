"""The control plane of one flow: its topics on both clusters, listed, created and grown. All I/O, no decisions.

Used by `flow.setup`, `inspect`, jobs and reconcile. Questions about many topics go in one request.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from replicator import config
from replicator.config import Flow
from replicator.config.routing import literals, name_fault, selects, target_topic
from replicator.flow.newest_topics import newest_topics
from replicator.flow.topic_rules import ListedTopic
from replicator.kafka import offset_reader
from replicator.kafka.admin import ClusterAdmin, TopicSpec
from replicator.kafka.cluster_info import ClusterInfo
from replicator.kafka.clusters import KafkaClusterQuestions, Side
from replicator.kafka.topic_questions import TopicInfo, TopicQuestions
from replicator.kafka.topic_reader import TopicReader
from replicator.lane.ports import ClusterQuestions
from replicator.model import names
from replicator.model.acls import TopicAcl
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.state.flow_state import FlowState
from replicator.state.source_claims import SourceClaims
from replicator.wire.cluster_versions import check_target
from replicator.wire.topics import topic_questions

LEADERS_S = 0.1  # between the first two questions whether new partitions are led: Kafka takes some ms for each
Waits = Callable[[config.Cluster, object, bool], None]
"""(cluster that doesn't answer yet, why, whether the target has answered and may be asked by the caller's thread)"""
Answers = Callable[[config.Cluster], None]
"""(cluster that answers)"""
One = TypeVar("One")
Other = TypeVar("Other")


def both(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """Ask two questions of different clusters at the same time, and return both results. Raises what the first
    raised.
    """
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(other)
        return one(), second.result()


def topics_of(flow: Flow, cluster: config.Cluster, role: str, *, kept_s: float = math.inf) -> TopicQuestions:
    """Ask a cluster for topics; `role` is the end of the client's id, `kept_s` as of `topic_questions`."""
    client_id, timeout_s = f"eos-replicate.{flow.name}.{role}", flow.limits.request_timeout_ms / 1000
    return topic_questions(cluster, client_id, timeout_s, kept_s=kept_s)


def questions_of(flow: Flow, side: Side, asked: threading.Event | None = None) -> KafkaClusterQuestions:
    """Make what asks one side of a flow, with connections of its own. It connects when it is first used. `asked`: see
    `KafkaClusterQuestions`."""
    cluster = flow.source if side == "source" else flow.target
    return KafkaClusterQuestions(flow, cluster, side, topics_of(flow, cluster, side), asked=asked)


@contextmanager
def reading_topics(flow: Flow, cluster: config.Cluster) -> Iterator[TopicReader]:
    """Yield a reader of a cluster's topics with connections of its own, and close it. It connects when it is used."""
    with closing(newest_topics(flow, cluster)) as topics, closing(TopicReader(flow, cluster, topics)) as reader:
        yield reader


class ControlPlane:
    """Admin clients on both clusters of a flow, and the reader of its state. Each cluster is used by one thread at a
    time. Close it, or use it as context manager.

    Every method raises Unreachable, NotAllowed, Retriable, or Incident when a cluster refuses for good.
    """

    def __init__(self, flow: Flow, *, connect_timeout_ms: int | None = None) -> None:
        limits = flow.limits
        patience = limits.connect_timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        self.flow = flow
        self.source, self.target = (
            ClusterAdmin(
                side,
                topics_of(flow, side, "topics", kept_s=limits.discovery_interval_ms / 2000),
                request_timeout_ms=limits.request_timeout_ms,
                connect_timeout_ms=patience,
            )
            for side in (flow.source, flow.target)
        )
        self.source_logs: ClusterQuestions  # both connect when they are first asked
        self.target_logs: ClusterQuestions
        self.source_logs, self.target_logs = questions_of(flow, "source"), questions_of(flow, "target")
        self._own_topics = {side.name: newest_topics(flow, side) for side in (flow.source, flow.target)}
        self._source_reader = TopicReader(flow, flow.source, self._own_topics[flow.source.name])
        self._source_names: frozenset[str] = frozenset()  # as they were listed last
        self.source_claims = SourceClaims(flow, self._source_reader, lambda: self._source_names)
        self.target_reader = TopicReader(flow, flow.target, self._own_topics[flow.target.name])
        self.state = FlowState(flow, self.target_reader)

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of both clusters."""
        self.source_logs.close()
        self.target_logs.close()
        self.source.close()
        self.target.close()
        self.target_reader.close()
        self._source_reader.close()
        for topics in self._own_topics.values():
            topics.close()

    def connect(
        self,
        waits: Waits = lambda cluster, why, target_answers: None,
        answers: Answers = lambda cluster: None,
    ) -> tuple[ClusterInfo, ClusterInfo]:
        """Connect to source and target, and return what they answer; bounded by limits.connect_timeout_ms, at the same
        time. `waits`: called while one of them doesn't, as by `ClusterAdmin.connect`, by the thread that waits for it,
        and `answers` by the same thread once it does. The one is waited for also where the other has failed."""

        def target_connected() -> ClusterInfo:
            found = self._connect_target(lambda why: waits(self.flow.target, why, False))
            answers(self.flow.target)
            return found

        with ThreadPoolExecutor(1) as pool:
            target = pool.submit(target_connected)

            def source_waits(why: object) -> None:
                waits(self.flow.source, why, target.done() and target.exception() is None)

            source = self._connect_source(source_waits)
            answers(self.flow.source)
            return source, target.result()

    def connect_if_any(self) -> tuple[ClusterInfo | Unreachable, ClusterInfo]:
        """Connect as `connect` does, but why a source doesn't answer is returned, for who has questions to the target
        alone, too."""

        def source() -> ClusterInfo | Unreachable:
            try:
                return self._connect_source()
            except Unreachable as error:
                return error

        return both(source, self._connect_target)

    def _connect_source(self, waits: Callable[[object], None] | None = None) -> ClusterInfo:
        found = self.source.connect(waits)
        self._own_topics[self.flow.source.name].connect()
        return found

    def _connect_target(self, waits: Callable[[object], None] | None = None) -> ClusterInfo:
        """Connect to the target, and the reader's clients once it has answered: without an answer closing them takes
        seconds.
        """
        found = self.target.connect(waits)
        topics = names.control_topic(self.flow.name), names.claims_topic(self.flow.name)
        with ThreadPoolExecutor(3) as pool:
            for topic in topics:
                pool.submit(self.target_reader.connect, topic, committed=True)
            pool.submit(self._own_topics[self.flow.target.name].connect, topics)
        return found

    def selected(self) -> set[str]:
        """Return the names of the source topics that the flow selects: those that the user may see, and those that it
        names.
        """
        self._source_names = self.source.topic_names()
        found = {name for name in self._source_names if selects(self.flow, name)}
        return found | self.named()

    def named(self) -> set[str]:
        """Return the topics that the flow names, and doesn't only select by a pattern."""
        return {name for name in literals(self.flow) if selects(self.flow, name)}

    def list_source(self, *, configs: bool = True) -> dict[str, TopicInfo]:
        """List selected source topics with partitions, ids and effective configs; raises where one may not be seen."""
        return self.source.topics(self.selected(), configs=configs)

    def list_target(self, sources: Collection[str], *, configs: bool = False) -> dict[str, TopicInfo]:
        """List existing target topics of these source topics, by target name."""
        return self.target.topics(self.possible_targets(sources), configs=configs)

    def listed_source(self, known: Collection[str] = (), *, rights: bool = False) -> dict[str, ListedTopic]:
        """List selected source topics, and those of `known`, each with what may not be seen of it."""
        return listed(self.source, self.selected().union(known), rights=rights)

    def listed_target(self, names_: Iterable[str], *, rights: bool = False) -> dict[str, ListedTopic]:
        """List these topics of the target, each with what may not be seen of it."""
        return listed(self.target, names_, rights=rights)

    def has_positions(self, sources: Mapping[str, TopicInfo]) -> bool:
        """Return whether the flow has a position in any existing target topic of these source topics, as far as it may
        see.
        """
        targets = self.listed_target(self.possible_targets(sources))
        seen = {name: it.info for name, it in targets.items() if it.info is not None}
        asked = [Partition(name, number) for name, info in seen.items() for number in range(info.partitions)]
        return any(found is not None for found in offset_reader.positions(self.flow, asked).values())

    def possible_targets(self, sources: Collection[str]) -> set[str]:
        """Return the names of target topics, without those that no topic can have: a cluster that is asked for one
        refuses the question.
        """
        return {target_topic(self.flow, name) for name in sources if not name_fault(self.flow, name)}

    def create(self, specs: Collection[TopicSpec]) -> dict[str, bool | ReplicatorError]:
        """Create target topics, and wait until the target shows them. See `ClusterAdmin.create_topics`."""
        answers = self.target.create_topics(specs)
        self.await_partitions({spec.name: spec.partitions for spec in specs if answers[spec.name] is True})
        self.await_partitions({spec.name: 1 for spec in specs if answers[spec.name] is False})
        return answers

    def grow(self, totals: Mapping[str, int]) -> dict[str, ReplicatorError | None]:
        """Add partitions to target topics, and wait until the target shows them. See `ClusterAdmin.grow_topics`."""
        answers = self.target.grow_topics(totals)
        refused = [name for name, answer in answers.items() if isinstance(answer, Incident)]
        if refused:  # another worker of the flow may have grown them meanwhile
            found = self.target.topics(refused)
            answers |= {name: None for name, info in found.items() if info.partitions >= totals[name]}
        self.await_partitions({name: total for name, total in totals.items() if answers[name] is None})
        return answers

    def set_configs(self, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, ReplicatorError | None]:
        """Set configs of target topics. See `ClusterAdmin.set_configs`."""
        return self.target.set_configs(wanted)

    def acls(self) -> tuple[list[TopicAcl], list[TopicAcl]]:
        """Return all ACLs of topics, of the source and of the target."""
        return both(self.source.topic_acls, self.target.topic_acls)

    def create_acls(self, wanted: Collection[TopicAcl]) -> dict[TopicAcl, ReplicatorError | None]:
        """Create ACLs on the target. See `ClusterAdmin.create_acls`."""
        return self.target.create_acls(wanted)

    def internal(self) -> dict[str, TopicInfo]:
        """Return those of the flow's own topics that exist, with configs."""
        return self.target.topics(
            (names.control_topic(self.flow.name), names.claims_topic(self.flow.name)), configs=True
        )

    def create_internal(self, lanes: int) -> None:
        """Make sure of the flow's own topics. Raises Unsupported, first, see `check_target`."""
        check_target(self.flow)
        for answer in self.create(internal_topics(self.flow, lanes)).values():
            if isinstance(answer, ReplicatorError):
                raise answer

    def make_lanes_topic(self, lanes: int) -> None:
        """Make sure of the topic that the flow's workers share out. Raises Incident `lanes_topic_unfit`."""
        spec = lanes_topic(self.flow, lanes)
        found = self.target.topics((spec.name,)).get(spec.name)
        if found is None:
            answer = self.create([spec])[spec.name]
            if isinstance(answer, ReplicatorError):
                raise answer
            found = self.target.topics((spec.name,))[spec.name]
        check_lanes_topic(found, lanes)

    def offsets_topic(self) -> TopicInfo | None:
        """Return the flow's map topic with configs; None where there is none."""
        name = names.offsets_topic(self.flow.name)
        return self.target.topics((name,), configs=True).get(name)

    def offsets_index_topic(self) -> TopicInfo | None:
        """Return the topic of the map's index with configs; None where there is none."""
        name = names.offsets_index_topic(self.flow.name)
        return self.target.topics((name,), configs=True).get(name)

    def create_map_topic(self, spec: TopicSpec) -> ReplicatorError | None:
        """Create the map topic, and wait until the target shows it; the error of a target that refuses."""
        answer = self.create([spec])[spec.name]
        return answer if isinstance(answer, ReplicatorError) else None

    def await_partitions(self, expected: Mapping[str, int]) -> None:
        """Wait until the brokers show what the controller has accepted, and lead it; Kafka has no event for that.

        A lane would find partitions that nobody leads yet waiting, and look at them again from time to time.
        """
        if not expected:
            return

        def shown() -> bool:
            found = self.target.topics(expected)
            return all(name in found and found[name].partitions >= count for name, count in expected.items())

        if not self.target.until(shown):
            raise Unreachable(
                f"cluster {self.flow.target.name!r} accepted topics but does not show them: " + ", ".join(expected)
            )
        numbered = [(name, number) for name, count in expected.items() for number in range(count)]

        def led() -> bool:
            try:
                self.target.offsets(numbered, end=True)
            except (Retriable, Unreachable):  # the leader of one of them may be down: its lane will tell
                return False
            return True

        self.target.until(led, LEADERS_S)


def internal_topics(flow: Flow, lanes: int) -> tuple[TopicSpec, TopicSpec]:
    """Return the specs of the flow's own topics: of its generations (control) and of its claims, with a partition for
    each lane.
    """
    replication = flow.topic_configs.replication_factor
    return (
        TopicSpec(names.control_topic(flow.name), 1, replication, {"cleanup.policy": "compact"}),
        TopicSpec(names.claims_topic(flow.name), lanes, replication, {"cleanup.policy": "compact"}),
    )


def lanes_topic(flow: Flow, lanes: int) -> TopicSpec:
    """Return the spec of the topic that the flow's workers share out, with a partition for each lane; nothing stands in
    it.
    """
    return TopicSpec(names.lanes_topic(flow.name, lanes), lanes, flow.topic_configs.replication_factor, {})


def check_lanes_topic(info: TopicInfo, lanes: int) -> None:
    """Raise Incident `lanes_topic_unfit` where workers would be given other lanes than there are."""
    if info.partitions != lanes:
        why = f"it has {info.partitions} partitions, and the flow {lanes} lanes"
        raise Incident("lanes_topic_unfit", why, topic=info.name)


NOTES_SEGMENT_BYTES = 16 * 1024 * 1024
"""What is in the newest segment isn't compacted, and is read as a whole at each beginning and at a failover."""


def notes_topic(flow: Flow) -> TopicSpec:
    """Return the spec of the topic of consumer groups, which holds the last note of each partition of each group."""
    configs = {"cleanup.policy": "compact", "segment.bytes": str(NOTES_SEGMENT_BYTES)}
    return TopicSpec(names.groups_topic(flow.name), 1, flow.topic_configs.replication_factor, configs)


ASIDE_BYTES_MAX = 104_857_600  # as much as a broker takes in one request by default


def aside_topic(flow: Flow) -> TopicSpec:
    """Return the spec of the flow's topic for records that operators have set aside: it keeps them until somebody
    deletes them.
    """
    limit = max(ASIDE_BYTES_MAX, flow.limits.record_bytes_max + 65_536)
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(limit),
    }
    return TopicSpec(names.aside_topic(flow.name), 1, flow.topic_configs.replication_factor, configs)


def listed(admin: ClusterAdmin, wanted: Iterable[str], *, rights: bool = False) -> dict[str, ListedTopic]:
    """List topics with their configs in two requests at the same time; what may not be seen of one topic hides no
    other.
    """
    asked = sorted(set(wanted))
    described, configs = admin.describe_with_configs(asked, rights=rights)
    return {name: _listed(described.get(name), configs.get(name)) for name in asked}


def _listed(
    answer: TopicInfo | ReplicatorError | None, configs: Mapping[str, str] | ReplicatorError | None
) -> ListedTopic:
    info = answer if isinstance(answer, TopicInfo) else None
    refused = answer if isinstance(answer, ReplicatorError) else configs
    if isinstance(refused, NotAllowed):
        return ListedTopic(info, refused, configs_denied=info is None and isinstance(configs, NotAllowed))
    if isinstance(refused, ReplicatorError):
        raise refused
    return ListedTopic() if info is None else ListedTopic(replace(info, configs=refused or {}))


def check_control_topic(info: TopicInfo) -> None:
    """Check the control topic: one that could lose a generation, or split them over partitions, is worse than none.
    Raises Incident."""
    policy = info.configs.get("cleanup.policy", "")
    if info.partitions == 1 and policy == "compact":
        return
    raise Incident(
        "control_topic_unfit",
        f"it has {info.partitions} partitions and cleanup.policy={policy}; it needs 1 and compact",
        topic=info.name,
    )
