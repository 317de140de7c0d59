"""Connects to both clusters of a flow before it is opened, and says in seconds what keeps it waiting. Used by
`flow.setup`; once lanes run, `flow.cluster_watch` says it.

Invariants
- While the source doesn't answer, the target is asked whether the flow was failed over: an operator waits for that
  answer, and the source may never come back.
- A target that has not answered here isn't asked for that by anybody else (`target_answers`): it would take as long
  again.
- Whoever asks the process hears the same as who reads the log. What was told stays after an attempt that ended by a
  cluster that didn't answer: the next one asks again.
- What the log has of a cluster that doesn't answer is followed by `recovered`, once, also where the flow has ended
  meanwhile and another worker meets the answer: `told` outlives the worker.
- A stop ends the wait: a flow file that was corrected isn't held up by the address that was wrong before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from replicator import config
from replicator.flow.cluster_watch import NO_BROKER_ANSWERS
from replicator.flow.occupied import check_frozen
from replicator.flow.parts import ConditionObserver, NoConditions
from replicator.flow.topics import ControlPlane
from replicator.kafka.cluster_info import ClusterInfo
from replicator.model.errors import Retriable, Unreachable

TOLD_S = 2.5
"""Without any answer of a cluster. An attempt to connect may take a second, and the next one two: it is told after
three at most."""
LOOK_S = 1.0  # between two looks at whether the flow was failed over


def unless_asked(asked: threading.Event, cluster: str) -> Callable[[object], None]:
    """Make what ends the wait for a cluster's answer once `asked` is set, see `ClusterAdmin.connect`."""

    def waits(why: object) -> None:
        if asked.is_set():
            raise Unreachable(f"cluster {cluster!r} had not answered when the flow was asked to stop")

    return waits


class Connecting:
    """The attempts of one worker, one after the other."""

    def __init__(
        self,
        asked: threading.Event,
        log: structlog.stdlib.BoundLogger,
        observer: ConditionObserver | None = None,
        *,
        told_before: bool = False,
        told: dict[str, float] | None = None,
    ) -> None:
        """`asked` is set when the flow shall stop. `observer`: is told of it as the log is. `told_before`: what an
        earlier worker has waited for is known, and is logged for debugging only. `told`: clusters of which the log has
        it that they don't answer, and not yet that they do, with the time of the first unanswered question (monotonic
        seconds); it is changed here, and handed from one worker to the next."""
        self._asked, self._log, self._observer = asked, log, observer or NoConditions()
        self._quiet = told_before
        self._since_s: dict[str, float] = {}  # by cluster that doesn't answer, also where it isn't told yet
        self.told = {} if told is None else told
        """Whoever watches the clusters once lanes run goes on with it."""
        self._known: set[str] = set()  # of those, since the flow was not failed over any more
        self._watched = False
        self.target_answers = False
        """Whether the target has answered what it was asked last."""

    def leave_to_watch(self) -> None:
        """Log for debugging only from now on: somebody else watches the clusters, and tells of them."""
        self._observer = NoConditions()
        self._watched = self._quiet = True

    def tell_again(self) -> None:
        """Say anew which cluster doesn't answer: a failover was undone, and the flow waits for nothing else now."""
        self._known.clear()
        if not self._watched:
            self._quiet = False

    def connect(self, plane: ControlPlane) -> tuple[ClusterInfo, ClusterInfo]:
        """Return who answers for source and target.

        Raises Unreachable (not within limits.connect_timeout_ms, or the flow was asked to stop), NotAllowed, FlowFrozen
        (it was failed over, and the source doesn't answer).
        """
        self._plane, self._began_s = plane, time.monotonic()
        self._look_s = self._began_s + LOOK_S
        self.target_answers = False
        for gone in self.told.keys() - {plane.flow.source.name, plane.flow.target.name}:
            del self.told[gone]  # an earlier flow file named it
        self._observer.connecting((plane.flow.source.name, plane.flow.target.name))
        try:
            return plane.connect(self._waits, self._answers)
        except BaseException as error:
            if self._asked.is_set() or not isinstance(error, Unreachable):  # nobody asks again
                self._observer.connecting(())
            raise

    def _waits(self, cluster: config.Cluster, why: object, target_answers: bool) -> None:
        """Take note that this cluster doesn't answer yet, in the thread that waits for it."""
        unless_asked(self._asked, cluster.name)(why)
        now_s, since_s = (
            time.monotonic(),
            self._since_s.setdefault(cluster.name, self.told.get(cluster.name, self._began_s)),
        )
        if cluster.name not in self._known and now_s >= since_s + TOLD_S:
            self._known.add(cluster.name)
            if not self._quiet:
                self.told.setdefault(cluster.name, since_s)
            reason, for_s = str(why) or NO_BROKER_ANSWERS, round(now_s - since_s)
            self._observer.cluster_unreachable(cluster.name, now_s - since_s)
            tell = self._log.debug if self._quiet else self._log.error
            tell("unreachable", cluster=cluster.name, reason=reason, unreachable_s=for_s)
        if target_answers and now_s >= self._look_s:
            self._look()
            self._look_s = time.monotonic() + LOOK_S

    def _answers(self, cluster: config.Cluster) -> None:
        """Take note that this cluster answers, in the thread that has waited for it."""
        if cluster.name == self._plane.flow.target.name:
            self.target_answers = True
        self._observer.cluster_answers(cluster.name)
        self._known.discard(cluster.name)
        self._since_s.pop(cluster.name, None)
        since_s = None if self._watched else self.told.pop(cluster.name, None)
        if since_s is not None:
            self._log.warning("recovered", cluster=cluster.name, unreachable_s=round(time.monotonic() - since_s))

    def _look(self) -> None:
        try:
            control = self._plane.state.control_if_any()
        except (Retriable, Unreachable) as error:  # it is looked at again, and read once the source answers
            self.target_answers = isinstance(error, Retriable)
            self._log.debug("setup_tried_again", reason=str(error))
        else:
            self.target_answers = True
            check_frozen(self._plane.flow, control)
