"""Reads what operators set of a flow and decide about its incidents while it runs, and whether its generation is still
open, in a thread beside its lanes: a control topic whose broker doesn't answer must not hold them up. Started by
`flow.wiring`; lanes ask the `FlowThrottle` and the `FlowDecisions` that it tells.

The end of the control topic is asked for each `LOOK_S`, and the topic is read when there is something new. A lane that
copies learns of another generation by its fencing. One without records would only learn of it at the next discovery.

A generation that is only being prepared changes nothing yet. Whoever prepares it may have died, and then nobody else
learns of it: once it has been seen for `FINISH_AFTER_S`, workers that share the flow are told, and finish the change.
That of a job or of another command, or to another source cluster, waits for whoever calls that again: the flow goes on
meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import structlog

from replicator.clock import RealClock
from replicator.config import Flow
from replicator.kafka.offset_questions import LATEST, STABLE
from replicator.kafka.topic_questions import TopicQuestions, raised
from replicator.kafka.topic_reader import TopicReader
from replicator.lane.flow_decisions import FlowDecisions
from replicator.lane.ports import Clock
from replicator.lane.throttle import FlowThrottle
from replicator.model import names
from replicator.model.errors import ReplicatorError, TakenOver
from replicator.model.partition import Partition
from replicator.state.control_topic import Control, check_generation
from replicator.state.flow_state import FlowState
from replicator.state.generation import Generation, Kind
from replicator.state.run_settings import FLOW, RunSettings
from replicator.workers.settings import FINISH_AFTER_S, NOTHING_SEEN

ForLanes = tuple[FlowThrottle, FlowDecisions]
"""What lanes of one flow ask."""
LOOK_S = 1.0
SLICE_S = 0.2  # between two looks at whether the flow ends


class SettingsWatch:
    """Of one flow. Its thread ends when `ended` is set."""

    def __init__(
        self,
        flow: Flow,
        generation: Generation,
        topics: TopicQuestions,
        control: Callable[[], Control],
        told: ForLanes,
        ended: threading.Event,
        log: structlog.stdlib.BoundLogger,
        clock: Clock | None = None,
    ) -> None:
        """`generation`: the one whose lanes run here. `topics` ask the target; `control` reads the control topic, as
        `StateReader.control`."""
        self._generation = generation
        self._at = Partition(names.control_topic(flow.name), 0)
        self._limit_s = flow.limits.request_timeout_ms / 1000
        self._topics, self._control, (self._throttle, self._decisions) = topics, control, told
        self._ended, self._log, self._clock = ended, log, clock or RealClock()
        self._ends: tuple[int, int] | None = None  # before it was read last
        self._unread = ""  # why it could not be read last
        self._change = NOTHING_SEEN  # that workers may finish
        self._preparing: Generation | None = None  # of it; None also once it was told that nobody has opened it

    def run(self, failed: Callable[[BaseException], None]) -> None:
        """Run until it has ended; this is the thread's work. `failed` is told what ends it: TakenOver when the
        generation is over, or a bug. A change that is half done doesn't end it: whoever is told may leave it so.
        """
        try:
            with closing(self._topics):
                while not self._ended.is_set():
                    try:
                        self.look()
                    except TakenOver as error:
                        if error.half_done is None:
                            raise
                        failed(error)
                    self._clock.wait(self._ended, LOOK_S)
        except BaseException as error:  # noqa: BLE001 - the flow classifies it
            failed(error)

    def look(self) -> None:
        """Look once. Why the topic can't be read is logged, once for each cause; it is tried again at the next look.

        Raises TakenOver when the generation is over, and, once for each change, when it is half done (`half_done`).
        """
        try:
            ends = self._asked_ends()
            if ends is None or ends[0] < ends[1]:
                return  # somebody writes to it just now, and whoever reads it waits for that
            if ends == self._ends:
                self._unread = ""
                self._check_half_done()
                return
            control = self._control()
            check_generation(control, self._generation.number, self._generation.assignment, running=True)
        except TakenOver:
            raise
        except ReplicatorError as error:
            if self._unread != str(error):
                self._unread = str(error)
                self._log.warning("settings_unread", reason=str(error))
            return
        self._ends, self._unread = ends, ""
        self._note_preparing(control.preparing)
        self._decisions.take(control.decisions)
        if self._throttle.take(control.settings, self._generation.number):
            tell_settings(self._log, control.settings)

    def _note_preparing(self, found: Generation | None) -> None:
        sources = set() if found is None else {found.source_cluster, self._generation.source_cluster} - {""}
        if found is not None and (found.kind is not Kind.LIVE or len(sources) > 1):
            found = None
        seen = self._change.look(0, 0 if found is None else found.number, self._clock.now_s())
        if seen != self._change:
            self._change, self._preparing = seen, found

    def _check_half_done(self) -> None:
        """Raise TakenOver, once, where a change that was seen has stood for long. The topic hasn't grown since."""
        if self._preparing is None or not self._change.may_change(self._clock.now_s()):
            return
        found, self._preparing = self._preparing, None
        raise TakenOver.of_generation(
            f"{found.begun_said} is being prepared, and for {FINISH_AFTER_S:.0f} s nobody has opened it",
            half_done=(found.number, self._change.since_s),
        )

    def _asked_ends(self) -> tuple[int, int] | None:
        """Return the last stable offset and the end; None where the flow ends. Raises what the target says instead."""
        asked = self._topics.list_offsets([self._at], (LATEST, STABLE))
        give_up_s = self._clock.now_s() + self._limit_s
        while not asked.poll(SLICE_S):
            if self._ended.is_set():
                return None
            if self._clock.now_s() >= give_up_s:
                break
        end, stable = (raised(found[self._at]) for found in asked.values())
        return stable.offset, max(stable.offset, end.offset)


def tell_settings(log: structlog.stdlib.BoundLogger, settings: RunSettings) -> None:
    """Log settings that are kept to from now on."""
    log.info(
        "settings_taken",
        paused=sorted("(flow)" if at == FLOW else at for at in settings.paused),
        rates={"(flow)" if at == FLOW else at: it.said for at, it in sorted(settings.rates.items())},
    )


def watch_settings(
    flow: Flow,
    generation: Generation,
    topics: Callable[[], TopicQuestions],
    told: ForLanes,
    ended: threading.Event,
    log: structlog.stdlib.BoundLogger,
    failed: Callable[[BaseException], None],
) -> None:
    """Start the thread; `topics` makes what asks the target."""
    asks = topics()
    state = FlowState(flow, TopicReader(flow, flow.target, asks))
    watch = SettingsWatch(flow, generation, asks, state.control, told, ended, log)
    threading.Thread(target=watch.run, args=(failed,), name=f"{flow.name}.settings", daemon=True).start()
