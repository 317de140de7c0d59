"""What comes before the lanes of a flow, whatever runs them: listing, first start, generation, target topics, routes.

Used by `flow.worker` and by jobs. Everything that changes topics and generations passes here; lanes and tasks only ever
read them. Each topic is decided on by itself (`topic_rules`); what is raised here concerns the whole flow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeVar

import structlog

from replicator.config import Config, Flow, routing
from replicator.flow.connecting import Connecting
from replicator.flow.deciding import prepare_aside
from replicator.flow.first_offsets import resolve_starts
from replicator.flow.first_start import is_first_start
from replicator.flow.heartbeats import prepare_heartbeats
from replicator.flow.listing import (
    Listing,
    Routing,
    config_changes,
    decide_topics,
    known_topics,
    message_bytes,
    unknown_source_topic,
)
from replicator.flow.offsets_topic import MapTopic, map_topic_of
from replicator.flow.retrying import Retrying
from replicator.flow.topic_rules import (
    MAX_MESSAGE_BYTES,
    ListedTopic,
    TopicDecision,
    needs_claims,
    refused,
    topic_routes,
)
from replicator.flow.topic_sync import TopicSync
from replicator.flow.topics import ControlPlane, both, check_control_topic
from replicator.flow.unclaimed import unclaimed
from replicator.model import names
from replicator.model.errors import ReplicatorError, Retriable
from replicator.model.origins import NONE
from replicator.model.route import Route
from replicator.state import starts
from replicator.state.claims import Claims
from replicator.state.control import Changer
from replicator.state.control_topic import Control, check_generation
from replicator.state.generation import Generation, LaneAssignment
from replicator.state.origins import loops
from replicator.state.own_file import lanes_wanted

CHANGE_ATTEMPTS_MIN = 3
BATCH_BYTES = 256  # of a batch with one record, besides its value
T = TypeVar("T")


class Setup:
    """The control plane of one flow in this process. Raises Incident, Unreachable, NotAllowed, Retriable, …"""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        plane: ControlPlane,
        owner: str,
        log: structlog.stdlib.BoundLogger,
        asked: threading.Event,
        *,
        connecting: Connecting | None = None,
    ) -> None:
        """`owner`: this process's name; `asked`: it shall stop, which cuts waits short. `connecting`: that of a worker
        which sets its flow up several times."""
        self._flow, self._config, self._plane = flow, config, plane
        self._owner, self._log, self._asked = owner, log, asked
        self._connecting = connecting or Connecting(asked, log)
        self._patiently = Retrying(flow.limits.connect_timeout_ms, asked, log)
        self._cluster_ids: dict[str, str] = {}
        self.claim_partitions = 1  # of the claims topic, as many as there are lanes or more
        self._first = False  # the flow has never run: its control topic may be empty
        self._control: Control | None = None  # as it was read at the beginning, until it is changed
        self._looked: tuple[Control, Callable[[], Claims | None]] | None = None  # just now, until it is used
        self._known: set[str] = set()  # source topics that were seen or claimed: asked for by name
        self._claims = Claims({}, ())
        self._first_counts: dict[str, int] = {}  # partitions of source topics when the flow listed them first
        self._failed_over: Mapping[str, int] = {}  # source topics, see `Generation.failed_over`
        self._unread: dict[str, str] = {}  # other flows' claims topics on the source, and why they can't be read
        self._control_bytes_max = starts.RECORD_BYTES_MAX
        self._routes: dict[str, list[Route]] = {}  # by source topic, as they were made last
        self._map = MapTopic(flow, plane, log)
        self._sync = TopicSync(flow, plane, log)

    @property
    def source_cluster(self) -> str:
        """The source's cluster id."""
        return self._cluster_ids[self._flow.source.name]

    @property
    def target_cluster(self) -> str:
        """The target's cluster id."""
        return self._cluster_ids[self._flow.target.name]

    @property
    def has_map(self) -> bool:
        """Whether the flow has an offset map. Whether it can be written just now is the lanes' to find out."""
        return map_topic_of(self._flow) is not None

    @property
    def map_topic_id(self) -> str:
        """The id of the map topic, as it was found fit last; empty where it can't be used."""
        return self._map.topic_id

    def take_generation(self, generation: Generation) -> None:
        """Take which topics are left out, for as long as this generation is open."""
        self._failed_over = generation.failed_over

    def take(self, config: Config) -> None:
        """Take another state of the whole file, in which this flow is the same. From any thread."""
        self._config = config

    def look_after_map(self) -> None:
        """Make the map topic again where it was deleted, and tell what is wrong with it. Raises nothing."""
        self._map.prepare()

    def sync_topics(self) -> None:
        """Set the configs that the flow's own target topics lacked when `routes` listed them last, and create ACLs that
        they lack now, if the flow wants it. Raises nothing."""
        self._sync.sync(self.source_cluster)

    def begin(self) -> Listing:
        """Connect, list the source's topics, make sure of the flow's own topics.

        Raises Incident `control_topic_lost` or `claims_topic_lost` where one is missing of a flow that has run, before
        anything is created. A new flow doesn't start without a topic that it names: `start` covers what is listed now.
        """
        self.connect()
        return self._patiently(self._begun)

    def list_only(self) -> Listing:
        """Connect and list the source's topics; changes nothing. Raises the incident of a topic that isn't there."""
        self.connect()
        found = self._patiently(self.listing)
        for missing in found.missing:
            raise missing
        return found

    def connect(self) -> None:
        """Connect to both clusters, once. Raises Unreachable, NotAllowed, FlowFrozen as `Connecting`."""
        if self._cluster_ids:
            return
        source, target = self._connecting.connect(self._plane)
        self._cluster_ids = {self._flow.source.name: source.cluster_id, self._flow.target.name: target.cluster_id}

    def _begun(self) -> Listing:
        self._first = False
        prepare_heartbeats(self._flow, self._plane.source, self._log)
        listing, (control, claims) = both(self.listing, self._state)
        if control is None or not control.begun:
            claims = self._plane.state.claims_if_any()  # also those of a transaction that is open just now
            control = self._before_first_start(listing, claims)
        lanes = lanes_wanted(self._flow, listing.partitions, control or Control())
        if self._first:
            self._create_internal(listing, lanes)
        elif claims is None:
            claims = self._plane.state.claims()  # raises claims_topic_lost, or reads what was just created
        self._check_internal(lanes)
        self._map.prepare()
        prepare_aside(self._flow, self._plane, self._log)
        self._control = control
        self._first_counts |= control.first_listing() if control is not None else {}
        return self.listing() if self._take_claims(claims or self._claims) else listing

    def _take_claims(self, claims: Claims) -> bool:
        """Take claims as they were read just now. Return whether they name a source topic that wasn't known: it is
        asked for by name from now on."""
        self._claims = claims
        claimed = {claim.source.topic for claim in claims.claims.values()} - self._known
        self._known |= claimed
        return bool(claimed)

    def _state(self) -> tuple[Control | None, Claims | None]:
        """Return the state as `look` has just read it, if the flow has run: what else it says of a flow is read
        again.
        """
        looked, self._looked = self._looked, None
        control, claims = looked or self._plane.state.both_if_any()
        return control, claims()

    def _before_first_start(self, listing: Listing, claims: Claims | None) -> Control | None:
        """Set `_first`; the control topic as it was read last. Raises Incident, see `first_start`."""
        has_claims = bool(claims is not None and claims.claims)
        has_positions = self._plane.has_positions(listing.topics)
        state = self._plane.state
        control = state.control_confirmed() if has_claims or has_positions else state.control_if_any()
        self._first = is_first_start(
            self._flow.name, has_claims=has_claims, has_positions=has_positions, control=control
        )
        return control

    def _create_internal(self, listing: Listing, lanes: int) -> None:
        for wrong in (*listing.missing, *listing.hidden.values()):
            raise wrong
        self._plane.create_internal(lanes)

    def _check_internal(self, lanes: int) -> None:
        found = self._plane.internal()
        control, claims = names.control_topic(self._flow.name), names.claims_topic(self._flow.name)
        if control not in found or claims not in found:
            raise Retriable(f"cluster {self._flow.target.name!r} doesn't show {control} and {claims} yet")
        check_control_topic(found[control])
        taken = int(found[control].configs.get(MAX_MESSAGE_BYTES, starts.RECORD_BYTES_MAX))
        self._control_bytes_max = min(taken, self._flow.limits.record_bytes_max, starts.RECORD_BYTES_MAX) - BATCH_BYTES
        self.claim_partitions = lanes
        if found[claims].partitions < lanes:
            answer = self._plane.grow({claims: lanes})[claims]
            if answer is not None:
                raise answer

    def listing(self) -> Listing:
        """List the source's topics that the flow selects, checked against all flows of the file.

        A topic that was known before is asked for by name: without the right to see it the source leaves it out, as if
        it was deleted.
        """
        known = {name for name in self._known if routing.selects(self._flow, name)}
        found = self._plane.listed_source(known)
        found = {name: it for name, it in found.items() if it != ListedTopic() or name in self._plane.named()}
        self._known |= {name for name, it in found.items() if it != ListedTopic()}
        topics = {self._flow.source.name: [name for name, it in found.items() if it != ListedTopic()]}
        conflicts = routing.topic_conflicts(self._config, self._flow.name, topics, self._cluster_ids)
        absent = [name for name, it in sorted(found.items()) if it == ListedTopic()]
        missing = [unknown_source_topic(self._flow, name) for name in absent if not self._may_be_gone(name)]
        return self._with_origins(Listing.of(found, conflicts, missing))

    def _may_be_gone(self, name: str) -> bool:
        """Return whether a topic was there before, and its lanes say what becomes of its positions."""
        told = self._flow.deleted_topics != "stop" and name in self._known
        return told or name in self._failed_over

    def _with_origins(self, listing: Listing) -> Listing:
        """Add where the source has the topics from, by the claims that other flows have there."""
        found = self._plane.source_claims.origins({name: info.topic_id for name, info in listing.topics.items()})
        unread = {topic: str(error) for topic, error in found.unread.items()}
        for topic, reason in sorted(unread.items()):
            if self._unread.get(topic) != reason:
                self._log.warning("origins_not_checked", topic=topic, cluster=self._flow.source.name, reason=reason)
        self._unread = unread
        return listing.coming_from(found, loops(self._flow, self.source_cluster, self.target_cluster, found.origins))

    def check_generation(self, generation: int, assignment: LaneAssignment) -> None:
        """Check that running lanes of this generation may go on. Raises TakenOver, Incident (`FlowState.control`)."""
        check_generation(self._plane.state.control(), generation, assignment, running=True)

    def look(self, *, ahead: bool = False) -> Control:
        """Read the control topic; `change` begins with what was read. Empty where there is no such topic. `ahead`: read
        the claims at the same time, and let `begin` go on with both."""
        state, claims = self._plane.state, None
        if ahead:
            self._control, claims = self._patiently(state.both_if_any)
        else:
            self._control = self._patiently(state.control_if_any)
        found = self._control or Control()
        self._looked = (found, claims) if claims is not None and found.begun else None
        return found

    @property
    def seen(self) -> Control | None:
        """The control topic as it was read last, until it is changed."""
        return self._control

    def change(self, ask: Callable[[Changer], T]) -> T:
        """Do what `ask` wants of a changer. Half done or done, the next attempt reads which; a hand-over that was asked
        to stop still has this to do."""
        seen, self._control = self._control, None

        def attempt() -> T:
            nonlocal seen
            first, seen = seen, None
            changer = Changer(
                self._flow,
                self._plane.state,
                self._owner,
                self._client_error,
                self._resolve_starts,
                seen=first,
                first=self._first,
            )
            return ask(changer)

        changed = self._patiently(attempt, attempts_min=CHANGE_ATTEMPTS_MIN, whatever_is_asked=not self._first)
        self._first = False
        return changed

    def settle_claims(self) -> None:
        """Wait for the end of transactions that hide claims, before lanes that run are fenced: where one hangs, their
        successors could not start. Raises Retriable where one stays open, and as `FlowState.claims`."""
        self._take_claims(self._plane.state.claims())

    def _resolve_starts(self, partitions: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
        found = resolve_starts(self._flow, self._plane.source_logs, partitions, self._asked, self._log)
        return starts.encode(found, self._control_bytes_max)

    def wanted(self, listing: Listing, first: Collection[str]) -> Listing:
        """Return the same listing with `wanted_topics` alone; `first`: those of the flow's first listing."""
        return listing.wanted(self._flow, known_topics(first, self._claims))

    def first_routes(self, listing: Listing) -> Routing:
        """Make routes as `routes` does, for a process that has nothing to go on with if they can't be made now."""
        return self._patiently(lambda: self.routes(listing))

    def routes(self, listing: Listing) -> Routing:
        """Make sure of the target topics, then map every source partition to its target partition."""
        named = {name: routing.target_topic(self._flow, name) for name in listing.topics}
        targets = self._plane.listed_target(to for name, to in named.items() if name not in listing.conflicts)
        asked = {name: targets[named[name]] for name in listing.topics if name not in listing.conflicts}
        creates = any(
            needs_claims(listing.topics[name], it) for name, it in asked.items() if name not in self._failed_over
        )
        if creates or listing.origins_unknown:
            self._take_claims(self._plane.state.claims())
        changes = config_changes(self._flow, listing, targets, self._failed_over)
        known = self._flow, listing, targets, self._claims
        growing = unclaimed(*known, self._first_counts, self._plane.target_logs)
        decisions, made, met = self._make(decide_topics(*known, growing, self._failed_over))
        if met:  # made by somebody else meanwhile: now visible, and decided on as they are
            return self.routes(listing)
        targets |= self._plane.listed_target(made)
        self._sync.note_created(
            targets[it.create.name] for it in decisions.values() if it.create and it.create.name in made
        )
        found: dict[str, list[Route]] = {}
        for name, info in listing.topics.items():
            target, origins = targets.get(named[name], ListedTopic()).info, listing.origins.get(name, NONE)
            found[name] = topic_routes(self._flow, info, target, decisions[name], origins)
        for name, denied in listing.hidden.items():
            found[name] = [replace(route, stopped=None, waiting=str(denied)) for route in self._before(name)]
        self._routes = found
        copied = {name for name, routes in found.items() if any(route.stopped is None for route in routes)}
        synced = {name: named[name] for name in (copied & named.keys()) - self._failed_over.keys()}
        self._sync.note(listing, targets, changes, synced)
        for name in copied & named.keys():
            self._first_counts.setdefault(name, listing.topics[name].partitions)
        routes = {route.source: route for of_topic in found.values() for route in of_topic}
        return Routing(routes, message_bytes(targets))

    def _make(self, decisions: Mapping[str, TopicDecision]) -> tuple[dict[str, TopicDecision], set[str], bool]:
        """Create and grow what the decisions want: decisions with what was refused, what was made, and whether
        something to create was there already."""
        wanted = {name: decision for name, decision in decisions.items() if decision.create or decision.grow}
        created = self._plane.create([it.create for it in wanted.values() if it.create])
        grown = self._plane.grow({it.grow.topic: it.grow.partitions for it in wanted.values() if it.grow})
        done, made = dict(decisions), set[str]()
        for name, decision in wanted.items():
            topic = decision.create.name if decision.create else decision.grow.topic if decision.grow else ""
            answer = created.get(topic) if decision.create else grown[topic]
            if isinstance(answer, ReplicatorError):
                done[name] = refused(name, decision, answer)
                continue
            made.add(topic)
            if decision.create and answer:
                self._log.info("topic_created", topic=topic, partitions=decision.create.partitions)
            elif decision.grow:
                self._log.info("topic_grown", topic=topic, partitions=decision.grow.partitions)
        return done, made, any(answer is False for answer in created.values())

    def _before(self, name: str) -> list[Route]:
        """Return the routes of a topic that may not be seen now: as they were made last, or as its partitions were
        claimed.
        """
        if name in self._routes:
            return self._routes[name]
        return [
            Route(claim.source, claim.target, claim.source_topic_id, claim.target_topic_id)
            for claim in self._claims.of_topic(routing.target_topic(self._flow, name))
        ]

    def _client_error(self, text: str) -> None:
        self._log.info("client", detail=text)
