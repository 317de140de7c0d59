"""What comes before the lanes of a flow, whatever runs them: listing, conflicts, generation, target topics, routes.

Everything that changes topics and generations passes here; lanes and tasks only ever read them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from replicator import routing
from replicator.admin import TopicInfo
from replicator.config import Config, Flow
from replicator.control import Changer
from replicator.errors import Incident, Retriable, UnknownOutcome, Unreachable
from replicator.generation import Generation
from replicator.ledger import Route
from replicator.planes.contract import Partition
from replicator.planes.records.reading import Reader
from replicator.topics import ControlPlane

CHANGE_ATTEMPTS_MIN = 3
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
T = TypeVar("T")


class Setup:
    """The control plane of one flow in this process. Raises ConfigError, Incident, Unreachable, NotAllowed, …"""

    def __init__(
        self,
        flow: Flow,
        config: Config,
        plane: ControlPlane,
        owner: str,
        log: structlog.stdlib.BoundLogger,
        asked: threading.Event,
    ) -> None:
        """`owner` is this process's name; `asked` is set when it shall stop, and cuts waits short."""
        self._flow, self._config, self._plane = flow, config, plane
        self._owner, self._log, self._asked = owner, log, asked
        self._cluster_ids: dict[str, str] = {}

    @property
    def source_cluster(self) -> str:
        """The source's cluster id."""
        return self._cluster_ids[self._flow.source.name]

    def begin(self) -> tuple[dict[str, TopicInfo], Incident | None]:
        """Connect, list the source's topics, make sure of the flow's own topics.

        A topic that the flow names and that isn't there is a mistake in a new flow, and an incident of that topic
        (returned with the listing) in a flow that has been opened before.
        """
        self._connect()
        return self._patiently(self._begun)

    def _begun(self) -> tuple[dict[str, TopicInfo], Incident | None]:
        infos, missing = self.listing()
        if missing is not None and not self._plane.opened_before():
            raise missing
        self._plane.ensure_internal(self._flow.lanes)
        return infos, missing

    def look(self) -> dict[str, TopicInfo]:
        """Connect and list the source's topics; changes nothing. Raises the incident of a topic that isn't there."""
        self._connect()
        infos, missing = self._patiently(self.listing)
        if missing is not None:
            raise missing
        return infos

    def _connect(self) -> None:
        source, target = self._plane.connect()
        self._cluster_ids = {self._flow.source.name: source.cluster_id, self._flow.target.name: target.cluster_id}

    def listing(self) -> tuple[dict[str, TopicInfo], Incident | None]:
        """The source's topics that the flow selects, checked against all flows of the file; what is missing."""
        infos = self._plane.list_source()
        known = {self._flow.source.name: list(infos)}
        routing.check_conflicts(self._config, known, self._cluster_ids, self._flow.name)
        return infos, self._plane.missing(infos)

    def change(self, ask: Callable[[Changer], T]) -> T:
        """What `ask` wants of a changer. Half done or done, the next attempt reads which; a hand-over that was asked to
        stop still has this to do."""
        reader = Reader(self._flow, self._flow.target)
        try:
            return self._patiently(
                lambda: ask(Changer(self._flow, reader, self._owner, self._noise)),
                attempts_min=CHANGE_ATTEMPTS_MIN,
                whatever_is_asked=True,
            )
        finally:
            reader.close()

    def _patiently(
        self,
        step: Callable[[], T],
        *,
        attempts_min: int = 1,
        whatever_is_asked: bool = False,
    ) -> T:
        """What `step` returns, tried for until the connect timeout while it raises what may pass.

        A cluster that comes up has no leaders at first, and a broker that goes down takes requests with it.
        """
        attempt, give_up = 0, time.monotonic() + self._flow.limits.connect_timeout_ms / 1000
        while True:
            try:
                return step()
            except (UnknownOutcome, Retriable, Unreachable) as error:
                attempt += 1
                if attempt >= attempts_min and time.monotonic() >= give_up:
                    raise
                self._log.warning("setup_tried_again", reason=str(error))
                pause_s = min(PAUSE_S_MAX, PAUSE_S * 2 ** min(attempt, 10))
                if self._asked.wait(pause_s):
                    if not whatever_is_asked:
                        raise
                    time.sleep(pause_s)

    def wanted(self, infos: Mapping[str, TopicInfo], first: Mapping[str, int]) -> dict[str, TopicInfo]:
        """All selected topics, or under `new_topics: ignore` those of the flow's first listing, `first`."""
        if self._flow.new_topics == "copy":
            return dict(infos)
        return {name: info for name, info in infos.items() if name in first}

    def first_routes(self, infos: Mapping[str, TopicInfo]) -> dict[Partition, Route]:
        """As `routes`, for a process that has nothing to go on with if they can't be made now."""
        return self._patiently(lambda: self.routes(infos))

    def routes(self, infos: Mapping[str, TopicInfo]) -> dict[Partition, Route]:
        """Make sure of the target topics, then map every source partition to its target partition."""
        done = self._plane.ensure_target(infos)
        for spec in done.create:
            self._log.info("topic_created", topic=spec.name, partitions=spec.partitions)
        for growth in done.grow:
            self._log.info("topic_grown", topic=growth.topic, partitions=growth.partitions)
        targets = self._plane.list_target(infos)
        routes: dict[Partition, Route] = {}
        for name, info in infos.items():
            target = targets.get(routing.target_topic(self._flow, name))
            if target is None:
                raise Retriable(f"target topic of {name} has gone while it was looked at")
            for number in range(info.partitions):
                at = Partition(name, number)
                routes[at] = Route(at, Partition(target.name, number), info.topic_id, target.topic_id)
        return routes

    def _noise(self, text: str) -> None:
        self._log.debug("client", detail=text)


def partitions(infos: Mapping[str, TopicInfo]) -> dict[str, int]:
    """Partition counts by topic."""
    return {name: info.partitions for name, info in infos.items()}


def occupied(flow: Flow, found: Generation) -> str:
    """Why a daemon doesn't start: a job has the flow."""
    begun = f"generation {found.number}, begun by {found.by or 'an unknown process'}"
    return (
        f"flow {flow.name}: a {found.kind.value} has it ({begun}). Let it finish, run it again if it died, or take the "
        "flow from it with --take-over"
    )
