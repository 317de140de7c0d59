"""Lists a flow's topics and checks its generation at each discovery interval, in a thread of its own beside
`flow.worker`, which starts it.

It owns the control plane from its start on and closes it at its end, so that a cluster that doesn't answer holds back
neither the lanes nor a stop. What it finds goes into the flow's queue; it changes topics, but no lane.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import structlog

from replicator.flow.group_watch import GroupWatch
from replicator.flow.listing import Listing, Routing
from replicator.flow.setup import Setup
from replicator.flow.topics import ControlPlane
from replicator.incidents import tell_incident
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, Unreachable
from replicator.model.partition import Partition
from replicator.state.generation import Generation

LOOK_S = 1.0
"""Between two looks at whether the members of the flow's group have changed."""
_AWAY = re.compile(r"cluster '[^']*'( refused the credentials)?")


@dataclass(frozen=True, slots=True)
class Discovered:
    """Where all partitions go now."""

    listing: Listing
    routing: Routing


@dataclass(frozen=True, slots=True)
class DiscoveryEnded:
    """The flow must end: its generation was closed or taken over, its control topic is lost, or a bug."""

    error: BaseException


class FlowNotes:
    """What no lane can tell, because it concerns no partition of theirs: logged once for as long as it stands."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._incidents: frozenset[Incident] = frozenset()
        self._hidden: dict[str, str] = {}
        self._empty = False

    def note(self, incidents: Collection[Incident], hidden: dict[str, str]) -> None:
        """Take the incidents of now, and topics that wait, with the reason."""
        for incident in sorted(set(incidents) - self._incidents, key=str):
            tell_incident(self._log, incident)
        for topic, reason in sorted(hidden.items()):
            if self._hidden.get(topic) != reason:
                self._log.warning("waiting", topic=topic, partition=-1, reason="not_allowed", detail=reason)
        self._incidents, self._hidden = frozenset(incidents), dict(hidden)

    @property
    def incidents(self) -> frozenset[Incident]:
        """Those that stand now."""
        return self._incidents

    def note_incident(self, incident: Incident) -> None:
        """Take note that discovery ended with this incident."""
        self.note([incident], self._hidden)

    def note_listing(
        self, listing: Listing, routes: Collection[Partition] = (), wrong: Collection[Incident] = ()
    ) -> None:
        """Take what a listing shows; topics whose partitions are known (`routes`) are logged by their lanes. `wrong`:
        what else concerns the flow as a whole."""
        known = {at.topic for at in routes}
        empty = not (listing.topics or listing.missing or listing.hidden)
        if empty and not self._empty:
            self._log.warning("no_topic_selected")
        self._empty = empty
        self.note(
            [*listing.missing, *wrong], {name: str(it) for name, it in listing.hidden.items() if name not in known}
        )


class Outage:
    """A step that fails at each interval while a cluster is away: told once, and again when its cause changes."""

    def __init__(self) -> None:
        self._cause = ""

    def is_new(self, error: ReplicatorError) -> bool:
        """Note that the step failed; return whether to tell it. A cluster that doesn't answer is one cause, whichever
        broker and question the error names; refused credentials are another one."""
        named = _AWAY.match(str(error)) if isinstance(error, Unreachable) else None
        cause = named[0] if named else str(error)
        before, self._cause = self._cause, cause
        return cause != before

    def over(self) -> None:
        """Note that the step succeeded: its next failure is a new one."""
        self._cause = ""


class Discovery:
    """The thread. `events` gets `Discovered` and, once at most, `DiscoveryEnded`."""

    def __init__(
        self,
        setup: Setup,
        plane: ControlPlane,
        generation: Generation,
        notes: FlowNotes,
        events: queue.SimpleQueue[Any],
        asked: threading.Event,
        log: structlog.stdlib.BoundLogger,
        group: GroupWatch | None = None,
    ) -> None:
        """
        Args:
            asked: is set when the flow ends.
            notes: has what was logged of the first listing.
            group: of a flow that is shared.
        """
        self._group = group
        self._setup, self._plane, self._generation, self._notes = setup, plane, generation, notes
        self._events, self._asked, self._log = events, asked, log
        self._unlisted, self._unchecked, self._unmade = Outage(), Outage(), Outage()
        self._interval_s = plane.flow.limits.discovery_interval_ms / 1000
        self._thread = threading.Thread(target=self._main, name=f"{plane.flow.name}.discovery", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _main(self) -> None:
        with closing(self._plane):
            try:
                due_s = time.monotonic() + self._interval_s
                while not self._asked.wait(min(LOOK_S, self._interval_s)):
                    if time.monotonic() >= due_s:
                        self.discover()
                        due_s = time.monotonic() + self._interval_s
                    elif self._group is not None and self._group.due:
                        self._look_at(self._group)
            except BaseException as error:  # noqa: BLE001 - the flow classifies it, bugs too
                self._events.put(DiscoveryEnded(error))
                self._asked.wait()  # until then the flow may ask by the plane who else is in the group

    @staticmethod
    def _look_at(group: GroupWatch) -> None:
        """Look at the members between two discoveries: that the target doesn't answer is the next discovery's to
        tell.
        """
        with suppress(Unreachable, Retriable, NotAllowed):
            group.look()

    def discover(self) -> None:
        """List topics and check the generation once.

        Raises TakenOver, and Incident of the control topic: nothing of the flow may go on then.
        """
        generation = self._generation
        try:
            self._setup.check_generation(generation.number, generation.assignment)
        except (Unreachable, Retriable, NotAllowed) as error:
            if self._unchecked.is_new(error):
                self._log.warning("generation_not_checked", reason=str(error))
        else:
            self._unchecked.over()
        try:
            listing = self._setup.wanted(self._setup.listing(), generation.partitions)
            found = Discovered(listing, self._setup.routes(listing))
            wrong = [*self._group.look(), *self._unfit(self._group)] if self._group is not None else []
        except (Unreachable, Retriable, NotAllowed) as error:
            if self._unlisted.is_new(error):
                self._log.warning("discovery_failed", reason=str(error))
            return
        except Incident as incident:
            self._notes.note_incident(incident)
            return
        self._unlisted.over()
        self._notes.note_listing(listing, found.routing.routes, wrong)
        self._events.put(found)
        self._setup.look_after_map()
        if self._group is None or self._group.leads:
            self._setup.sync_topics()

    def _unfit(self, group: GroupWatch) -> list[Incident]:
        """Look after the topic that the workers share out; return what is wrong with it. That it can't be made now
        holds up nothing else."""
        try:
            group.make_topic()
        except Incident as incident:
            return [incident]
        except (Unreachable, Retriable, NotAllowed) as error:
            if self._unmade.is_new(error):
                self._log.warning("lanes_topic_not_made", reason=str(error))
        else:
            self._unmade.over()
        return []
