"""A generation of a job: opened with a lane for each partition, and handed over to the daemon at its end.

Invariants
- Opening it fences whatever ran the flow before; handing over fences whatever of the job may still run.
- A live worker that holds the flow is not stopped unasked.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from replicator import sighting
from replicator.admin import TopicInfo
from replicator.config import Flow
from replicator.control import MayReplace
from replicator.errors import ReplicatorError, Superseded
from replicator.generation import Cut, Generation, Kind
from replicator.ledger import Route
from replicator.planes.contract import Partition
from replicator.setup import Setup, partitions
from replicator.sighting import Sighted
from replicator.topics import ControlPlane


class Tenure:
    """One generation of a job on one flow. Use from one thread."""

    def __init__(self, flow: Flow, setup: Setup, plane: ControlPlane, log: structlog.stdlib.BoundLogger) -> None:
        self._flow, self._setup, self._plane, self._log = flow, setup, plane, log
        self._infos: Mapping[str, TopicInfo] = {}
        self._opened: Generation | None = None
        self.routes: Mapping[Partition, Route] = {}

    @property
    def generation(self) -> Generation:
        """The job's generation, once it is open."""
        if self._opened is None:
            raise RuntimeError("no generation was opened")
        return self._opened

    def open(self, kind: Kind, infos: Mapping[str, TopicInfo], may_replace: MayReplace) -> None:
        """Open a generation with a lane for each partition of the flow: whatever ran before is fenced off."""
        listing = partitions(infos)
        cut = Cut.by_partition(listing)
        before = self._opened.number if self._opened else 0
        opened = self._setup.change(lambda changer: changer.begin(kind, cut, listing, may_replace, before))
        self._opened = opened  # from here on there is something to hand over
        self._log.info("generation_opened", generation=opened.number, lanes=cut.lanes, kind=kind.value)
        wanted = self._setup.wanted(infos, opened.partitions)
        self.routes = self._setup.first_routes(wanted)
        self._infos = wanted

    def sight(self, *, stable: bool) -> dict[Partition, Sighted]:
        """What both clusters say now about all partitions of the flow."""
        return sighting.sight(self._flow, self._plane, self._infos, stable=stable)

    def check_own(self, found: Generation | None) -> None:
        """Whether the open generation (None: a change is under way) is still the job's. Raises Superseded."""
        mine = self.generation.number
        if found is None or found.number != mine:
            other = "a change" if found is None else f"generation {found.number} ({found.kind.value})"
            raise Superseded(f"flow {self._flow.name}: {other} has taken over from {mine}")

    def hand_over(self) -> None:
        """Open the daemon's next generation: fences every task that may still run.

        Raises Superseded when another generation than the job's is open.
        """
        cut, listing = Cut(self._flow.lanes), partitions(self._infos)
        generation, _ = self._setup.change(lambda changer: changer.ensure(cut, listing, self.check_own))
        self._log.info("handed_over", generation=generation.number, lanes=generation.lanes)

    def hand_over_anyway(self) -> None:
        """On the way out with an error: if this fails too, the job's generation stays open, and says so to others."""
        if self._opened is None:
            return
        try:
            self.hand_over()
        except ReplicatorError as error:
            self._log.error("not_handed_over", generation=self._opened.number, reason=str(error))


def check_free(
    flow: Flow, found: Generation, seen: Mapping[Partition, Sighted], own: Kind, *, take_over: bool = False
) -> None:
    """Whether a job may begin: nobody holds the flow under the open generation, or it may be taken over.

    A worker that died holds it too: nobody can tell. So does a flow on Spark: a clean stop would have handed it over. A
    job of the same kind (`own`) that is there counts as one that died and is begun again.

    Raises Superseded.
    """
    if take_over or found.kind is own:
        return
    held = sighting.holders(seen, found.number)
    if not held and found.kind is Kind.LIVE:
        return
    names = ", ".join(f"{owner} ({len(partitions)} partitions)" for owner, partitions in held.items())
    raise Superseded(
        f"flow {flow.name}: a {found.kind.value} worker holds it under generation {found.number}: "
        f"{names or found.by}. Stop it, or take the flow from it with --take-over"
    )
