"""Puts a flow's parts together: control plane, lanes, and what each producer session of a lane works with.

Called by `eos-replicate run` and by jobs; nothing else makes these objects.
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import structlog

from replicator.clock import RealClock
from replicator.config import Flow
from replicator.config.engine import BATCHES, chosen_engine
from replicator.failpoints import Failpoint
from replicator.flow.cluster_watch import AwayClusters, watch_clusters
from replicator.flow.frozen import while_frozen
from replicator.flow.group_members import members_of
from replicator.flow.heartbeats import HeartbeatObserver, watch_heartbeats
from replicator.flow.newest_topics import newest_topics
from replicator.flow.parts import ConditionObserver, NoConditions, Note, Parts, Silence, Unwatched, WorkerObserver
from replicator.flow.settings_watch import watch_settings
from replicator.flow.shared_origins import SharedOrigins
from replicator.flow.topics import ControlPlane, questions_of, topics_of
from replicator.kafka.clusters import KafkaClusterQuestions
from replicator.kafka.coordinator_patience import CoordinatorPatience
from replicator.kafka.fetch_size import FetchSize
from replicator.kafka.group_consumer import GroupConsumer
from replicator.kafka.heartbeat_clients import KafkaHeartbeats
from replicator.kafka.note import write_note
from replicator.kafka.topic_questions import within
from replicator.kafka.topic_reader import TopicReader
from replicator.lane.driver import LaneDriver, Observe, Services, unobserved
from replicator.lane.flow_decisions import FlowDecisions
from replicator.lane.permit import FencePermit
from replicator.lane.plan import LanePlan
from replicator.lane.policy import LivePolicy, Policy
from replicator.lane.throttle import FlowThrottle
from replicator.model import names
from replicator.model.errors import ReplicatorError, TopicMissing
from replicator.model.partition import Partition
from replicator.offset_map.topic import map_partition
from replicator.planes.batches_io.budget import FetchBudget
from replicator.planes.records.losses import LostRecords
from replicator.planes.records.plane import RecordsPlane
from replicator.planes.records.record_reader import LogReader
from replicator.planes.settings import PlaneSettings
from replicator.state.flow_state import FlowState
from replicator.state.generation import Generation
from replicator.state.run_settings import rate_of
from replicator.wire.last_positions import LastPositions
from replicator.wire.map_log import WireMapLog
from replicator.wire.open_transactions import WireOpenTransactions

FETCHED_BYTES_MAX = 128 * 1024 * 1024
"""Of all lanes of a process, with the engine `batches`; librdkafka's queues are bounded for each lane."""
JITTER_MIN = 0.5
NOTE_S_MAX = 5.0
MEMBERS_S_MAX = 2.0
TOLD_ONE_BY_ONE = 4
"""Of more target topics a lane's reader is told when they are read, of all topics of the cluster in one request."""
if TYPE_CHECKING:
    from replicator.planes.batches_io.plane import BatchesPlane

T = TypeVar("T")
MoreDuties = Callable[[Flow, threading.Event, structlog.stdlib.BoundLogger, Callable[[BaseException], None]], None]
"""Starts a thread for a flow, which ends when the event is set; the last argument is told of a bug."""
LostObserver = Callable[[Partition, int], None]
"""Is told of how many records of a source partition were lost under at_most_once, by the lane's thread."""


class KafkaConnections:
    """Implements `lane.ports.Connections`: one producer session's clients on both clusters."""

    def __init__(
        self,
        plan: LanePlan,
        policy: Policy,
        asked: threading.Event,
        origins: SharedOrigins,
        patience: CoordinatorPatience,
        fetch_size: FetchSize,
        budget: FetchBudget,
        log: structlog.stdlib.BoundLogger,
        lost: LostObserver,
    ) -> None:
        """`asked` is set when the lane shall stop: then no cluster is waited for any longer than a moment."""
        flow, self.origins = plan.flow, origins
        self._open = ExitStack()
        with ExitStack() as stack:  # whatever one of them raises, those that are open are closed
            self.plane = _plane(plan, policy, patience, fetch_size, budget, log, lost)
            stack.callback(self.plane.close)
            self.source = questions_of(flow, "source", asked)
            stack.callback(self.source.close)
            target_topics = topics_of(flow, flow.target, "target")
            reader = TopicReader(flow, flow.target, target_topics)
            self.target = KafkaClusterQuestions(flow, flow.target, "target", target_topics, asked=asked, reader=reader)
            stack.callback(self.target.close)
            self.transactions = WireOpenTransactions(flow, flow.target, asked)
            stack.callback(self.transactions.close)
            self.source_records = LogReader(flow, flow.source, asked, plan.record_bytes_max)
            stack.callback(self.source_records.close)
            self.target_records = LogReader(flow, flow.target, asked, plan.record_bytes_max)
            stack.callback(self.target_records.close)
            self.map_log = WireMapLog(flow)
            stack.callback(self.map_log.close)
            owners = LastPositions(flow, asked)
            stack.callback(owners.close)
            self.last_positions = owners.positions
            self.state = FlowState(flow, reader, claim_partitions=plan.claim_partitions)
            connections = [
                *self.plane.connections(),
                partial(self.transactions.connect, plan.transactional_id),
                owners.connect,
                *self._to_topics(plan, reader),
            ]
            with ThreadPoolExecutor(len(connections)) as pool:
                list(pool.map(lambda connect: connect(), connections))
            self._open = stack.pop_all()

    def _to_topics(self, plan: LanePlan, reader: TopicReader) -> Iterator[Callable[[], None]]:
        """Yield what connects to the leaders of all that is read before the lane copies."""
        name, targets = plan.flow.name, {route.target.topic for route in plan.routes}
        own = {names.control_topic(name), names.claims_topic(name)}
        yield partial(self.source.connect, {route.source.topic for route in plan.routes})
        for topic in own | (targets if len(targets) <= TOLD_ONE_BY_ONE else set()):
            yield partial(reader.connect, topic, committed=True)
        if plan.writes_map and plan.map_topic_id:
            own_map = Partition(names.offsets_topic(name), map_partition(plan.lane))
            targets.add(own_map.topic)
            yield partial(self.map_log.connect, own_map, plan.map_topic_id)
        yield partial(self.target.connect, own | targets)

    def close(self) -> None:
        """Close all of them, whatever one of them raises."""
        self._open.close()


def _plane(
    plan: LanePlan,
    policy: Policy,
    patience: CoordinatorPatience,
    fetch_size: FetchSize,
    budget: FetchBudget,
    log: structlog.stdlib.BoundLogger,
    lost: LostObserver,
) -> RecordsPlane | BatchesPlane:
    """Make the plane of the flow's engine."""
    settings = PlaneSettings(
        flow=plan.flow,
        transactional_id=plan.transactional_id,
        claim_partition=plan.claim_partition,
        routes={route.source: route.target for route in plan.routes},
        batch_bytes_max=plan.batch_bytes_max,
        record_bytes_max=plan.record_bytes_max,
        bulk=not policy.copies_live,
        compress=plan.compress,
        patience=patience,
        fetch_size=fetch_size,
        timestamps={route.source: route.timestamps for route in plan.routes},
        compression={route.source: route.compression for route in plan.routes},
    )
    if chosen_engine(plan.flow).name == BATCHES:
        from replicator.planes.batches_io.plane import BatchesPlane  # which takes a while, and not every flow needs

        return BatchesPlane(settings, budget, partial(_client_error, log))
    return RecordsPlane(settings, partial(_client_error, log), partial(_lost_records, log, lost))


class _OfFlow(Generic[T]):
    """What all lanes of a flow have together, made anew when the flow has other settings. From any thread."""

    def __init__(self, make: Callable[[Flow], T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: dict[str, tuple[Flow, T]] = {}

    def of(self, flow: Flow) -> T:
        with self._lock:
            known = self._made.get(flow.name)
            if known is None or known[0] != flow:
                known = self._made[flow.name] = flow, self._make(flow)
            return known[1]


def services(
    failpoint: Failpoint,
    log: structlog.stdlib.BoundLogger,
    lost: Callable[[Flow], LostObserver] = lambda _: _unheard,
) -> Services:
    """Make what lanes are given from outside. `failpoint` is called at each named step, see `failpoints`. `lost` gives
    what is told of a flow's lost records."""

    origins: _OfFlow[SharedOrigins] = _OfFlow(SharedOrigins)
    patience = _OfFlow(lambda flow: CoordinatorPatience(flow.limits.transaction_timeout_ms / 1000))
    fetch_sizes = _OfFlow(lambda flow: FetchSize())
    budget = FetchBudget(FETCHED_BYTES_MAX)
    told: set[str] = set()

    def connect(plan: LanePlan, policy: Policy, asked: threading.Event) -> KafkaConnections:
        flow = plan.flow
        engine = chosen_engine(flow)
        if engine.told() and engine.told() not in told:
            told.add(engine.told())
            log.info("engine", engine=engine.name, reasons=list(engine.reasons))
        known = origins.of(flow), patience.of(flow), fetch_sizes.of(flow)
        return KafkaConnections(plan, policy, asked, *known, budget, log, lost(flow))

    return Services(
        connect=connect,
        clock=RealClock(),
        failpoint=failpoint,
        log=log,
        jitter=_jitter,
    )


def parts(
    failpoint: Failpoint,
    observe: Observe = unobserved,
    heartbeats: Callable[[Flow], HeartbeatObserver] = lambda _: _unseen,
    observe_worker: Callable[[Flow], WorkerObserver] = lambda _: Unwatched(),
    version: str = "",
    more_duties: MoreDuties = lambda flow, ended, log, failed: None,
    conditions: Callable[[Flow], ConditionObserver] = lambda _: NoConditions(),
    throttled: Callable[[Flow, FlowThrottle], None] = lambda flow, throttle: None,
    lost: Callable[[Flow], LostObserver] = lambda _: _unheard,
) -> Callable[[structlog.stdlib.BoundLogger], Parts]:
    """Return a function that makes what a live flow's worker is made of, given the flow's log. `observe` as of
    `Services`; `heartbeats` gives what is told of those of a flow, `observe_worker` what is told of a worker that
    shares it. `version`: of the program, which workers of a flow show each other. `more_duties`: starts what else the
    worker that has lane 0 does besides. `conditions` gives what is told of what keeps a whole flow from copying.
    `throttled` is told what its lanes keep to from now on. `lost` as of `services`."""

    def make(log: structlog.stdlib.BoundLogger) -> Parts:
        away = AwayClusters()
        throttle, decisions = _OfFlow(partial(_made_throttle, throttled)).of, _OfFlow(lambda flow: FlowDecisions()).of
        given = replace(services(failpoint, log, lost), cluster_away=lambda: bool(away), observe=observe)
        given = replace(given, throttle=throttle, decisions=decisions)

        def lane(plan: LanePlan, events: queue.SimpleQueue[Any], permit: FencePermit) -> LaneDriver:
            return LaneDriver(plan, LivePolicy(), given, events, permit)

        def watch(
            flow: Flow, generation: Generation, ended: threading.Event, failed: Callable[[BaseException], None]
        ) -> None:
            asks = partial(newest_topics, flow, flow.target, "settings")
            watch_settings(flow, generation, asks, (throttle(flow), decisions(flow)), ended, log, failed)

        def clusters(
            flow: Flow, ended: threading.Event, failed: Callable[[BaseException], None], told: dict[str, float]
        ) -> Callable[[], Sequence[Silence]]:
            watch_clusters(flow, topics_of, away, ended, log, failed, conditions(flow), told)
            return lambda: away.silent(given.clock.now_s())

        def duties(flow: Flow, ended: threading.Event, failed: Callable[[BaseException], None]) -> None:
            from replicator.flow.map_index_writer import watch_map_index  # not before a worker joins: it takes a while

            watch_map_index(flow, ended, log, failed)
            clients = partial(KafkaHeartbeats, flow)
            watch_heartbeats(flow, clients, heartbeats(flow), ended, log, failed, RealClock())
            more_duties(flow, ended, log, failed)

        def keep_frozen(
            flow: Flow, asked: threading.Event, log: structlog.stdlib.BoundLogger, found: Callable[[], None]
        ) -> bool:
            return while_frozen(flow, asked, log, found, conditions(flow), partial(write_flow_note, flow))

        return Parts(
            plane=ControlPlane,
            lane=lane,
            watch=watch,
            clusters=clusters,
            duties=duties,
            note=write_flow_note,
            group=GroupConsumer,
            members=member_clients,
            partitions=lambda flow, partitions: throttle(flow).listed(partitions),
            frozen=keep_frozen,
            observe=observe_worker,
            conditions=conditions,
            version=version,
        )

    return make


def _made_throttle(throttled: Callable[[Flow, FlowThrottle], None], flow: Flow) -> FlowThrottle:
    made = FlowThrottle(rate_of(flow))
    throttled(flow, made)
    return made


def member_clients(plane: ControlPlane) -> list[str]:
    """List the client.id of each member of the group that shares the flow's lanes, by the connection that `plane` has.
    From any thread. Raises ReplicatorError."""
    flow = plane.flow
    limit_s = min(MEMBERS_S_MAX, flow.limits.request_timeout_ms / 1000)
    return [member.client_id for member in members_of(plane, limit_s)]


def write_flow_note(flow: Flow, note: Note) -> None:
    """Write what only informs into a flow's claims topic, if there is one. Raises ReplicatorError."""
    claims, limit_s = names.claims_topic(flow.name), min(NOTE_S_MAX, flow.limits.request_timeout_ms / 1000)
    topics = topics_of(flow, flow.target, "notes")
    try:
        found = within(topics.describe([claims]), limit_s)[claims]
    finally:
        topics.close()
    if isinstance(found, TopicMissing):
        return  # the flow was never opened; writing could create the topic, without its configs
    if isinstance(found, ReplicatorError):
        raise found
    write_note(flow, claims, note.encode(), limit_s)


def _unseen(took_s: float, written_ms: int) -> None:
    """Ignore it: nobody wants to know."""


def _unheard(at: Partition, records: int) -> None:
    """Ignore it: nobody counts what was lost; the log has it."""


def _jitter() -> float:
    return random.uniform(JITTER_MIN, 1.0)


def _client_error(log: structlog.stdlib.BoundLogger, text: str) -> None:
    log.info("client", detail=text)


def _lost_records(log: structlog.stdlib.BoundLogger, observed: LostObserver, lost: LostRecords) -> None:
    """Count and log records that were lost, under at_most_once only. The sum of `records` over all lines that are
    `certain` is what was lost; nothing else is counted.
    """
    if lost.certain:
        observed(lost.at, lost.records)
    log.error(
        "records_lost",
        topic=lost.at.topic,
        partition=lost.at.partition,
        records=lost.records,
        offsets=[list(span) for span in lost.ranges],
        certain=lost.certain,
        detail=lost.why,
    )
