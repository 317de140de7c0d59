"""Which flows of a process run, which are started again, and when the process leaves. Pure; driven by `flow.daemon`.

    STARTING --lanes started--> RUNNING --ended--> ENDED --due--> STARTING
    STARTING or RUNNING --ended for good--> OVER
    any --replaced--> STARTING

A flow that ended by something that may pass (2, 3, 4) is started again a discovery interval of its own later, as long
as another flow is alive: the cause may be gone by then, and nobody restarts a process that runs. When none is alive and
none is starting, the process leaves, so that a supervisor sees it. After being taken over (5), or a clean stop (0), a
flow is over: one that was taken over is named again each discovery interval, as long as others run. A bug (70) ends the
process: what else is wrong in it isn't known.

Flows come and go with the flow file (`reload`). One that runs and whose settings have changed, or that is removed, is
asked to stop; once it has ended it is replaced, or nothing is left of it. How it has ended then says nothing of the
process, unless that is a bug, or the process was asked to stop meanwhile. One that is asked to stop while it starts
again, or before its lanes have told of all partitions, has not come as far as what ended it: its code is that of the
time before.

A flow that a reload has started and whose lanes have not run since is *on trial*: a process that ran well doesn't end
by a typo in its file. What may be one (2, 3) is waited out, whether or not another flow is alive: it is started again
each discovery interval, until it runs or the file is changed again. An incident ends it as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

BUG = 70
PASSING = frozenset({2, 3, 4})
"""Exit codes after which a flow is started again."""
TYPOS = frozenset({2, 3})
"""Exit codes that a wrong address, password or file leads to."""
SEVERITY = (70, 4, 5, 3, 2, 0)
"""Of several flows' codes the operator must see first: a bug before an incident, that before being taken over, …"""


class Stage(IntEnum):
    """Where a flow stands, as the number that metrics have."""

    STARTING = 0
    """It connects, lists, opens its generation."""
    RUNNING = 1
    """Its lanes run; or it is failed over, or stands by, and nothing is to be done for that to end."""
    ENDED = 2
    """By something that may pass: it is started again."""
    OVER = 3
    """It is not started again by this process."""


class FlowEvent(Enum):
    """What happens to a flow."""

    LANES_STARTED = auto()
    ENDED_PASSING = auto()
    ENDED_FOR_GOOD = auto()
    DUE = auto()
    REPLACED = auto()


TRANSITIONS: Mapping[tuple[Stage, FlowEvent], Stage] = {
    (Stage.STARTING, FlowEvent.LANES_STARTED): Stage.RUNNING,
    (Stage.STARTING, FlowEvent.ENDED_PASSING): Stage.ENDED,
    (Stage.STARTING, FlowEvent.ENDED_FOR_GOOD): Stage.OVER,
    (Stage.RUNNING, FlowEvent.ENDED_PASSING): Stage.ENDED,
    (Stage.RUNNING, FlowEvent.ENDED_FOR_GOOD): Stage.OVER,
    (Stage.ENDED, FlowEvent.DUE): Stage.STARTING,
    **{(stage, FlowEvent.REPLACED): Stage.STARTING for stage in Stage},
}
"""Any other pair is a bug in `flow.daemon`."""


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that the operator must see first; 0 of none."""
    found = set(codes)
    return next((code for code in SEVERITY if code in found), max(found, default=0))


def once(call: Callable[[], None]) -> Callable[[], None]:
    """Return what calls `call` at its first call, and does nothing at others. For one thread."""
    calls = [call]
    return lambda: calls.pop()() if calls else None


class _Then(Enum):
    """What follows when a flow has ended that was asked to by a change of the file."""

    AGAIN = auto()
    GONE = auto()


@dataclass(slots=True)
class _Flow:
    stage: Stage
    interval_s: float
    code: int = 0
    due_s: float = 0.0
    then: _Then | None = None
    on_trial: bool = False

    @property
    def alive(self) -> bool:
        return self.stage in (Stage.STARTING, Stage.RUNNING)

    @property
    def forgotten(self) -> bool:
        """Whether it is over, and not because it was asked to stop."""
        return self.stage is Stage.OVER and self.code != 0


class Restarts:
    """The flows of one process. All times are monotonic seconds."""

    def __init__(self, intervals_s: Mapping[str, float]) -> None:
        """`intervals_s`: discovery interval by flow; all of them are starting."""
        self._flows = {name: _Flow(Stage.STARTING, interval_s) for name, interval_s in intervals_s.items()}
        self.stopping = False

    @property
    def codes(self) -> dict[str, int]:
        """The exit code with which each flow ended last."""
        return {name: flow.code for name, flow in self._flows.items()}

    def stages(self) -> dict[str, Stage]:
        """Say where each flow stands. From any thread."""
        return {name: flow.stage for name, flow in self._flows.items()}

    def stage(self, name: str) -> Stage:
        """Say where a flow stands."""
        return self._flows[name].stage

    def add(self, name: str, interval_s: float) -> bool:
        """Take up a flow of the file; whether to start it now. One that is just being stopped follows itself."""
        if name in self._flows:
            return self.replace(name, interval_s)
        self._flows = {**self._flows, name: _Flow(Stage.STARTING, interval_s, on_trial=True)}
        return True

    def replace(self, name: str, interval_s: float) -> bool:
        """Note that a flow has other settings; return whether to start it now. Else it is alive: it is to be stopped,
        and follows itself."""
        flow = self._flows[name]
        flow.interval_s = interval_s
        if flow.alive:
            flow.then = _Then.AGAIN
            return False
        self._replaced(name)
        return True

    def _replaced(self, name: str) -> None:
        self._go(name, FlowEvent.REPLACED)
        self._flows[name].code, self._flows[name].on_trial = 0, True

    def remove(self, name: str) -> bool:
        """Note that a flow is in the file no more; return whether it is alive, and to be stopped."""
        flow = self._flows[name]
        flow.then = _Then.GONE
        if not flow.alive:
            self._forget(name)
        return flow.alive

    def _forget(self, name: str) -> None:
        self._flows = {other: flow for other, flow in self._flows.items() if other != name}

    def lanes_started(self, name: str) -> None:
        """Note that a flow's lanes run."""
        self._go(name, FlowEvent.LANES_STARTED)
        self._flows[name].on_trial = False

    def waits(self, name: str, code: int) -> bool:
        """Return whether a flow that ends with this code now is waited for, if it is the only one. From any thread."""
        return self._flows[name].on_trial and code in TYPOS

    def ended(self, name: str, code: int, now_s: float, *, early: bool = False) -> bool:
        """Note that a flow ended; return whether to start it again at once. After a bug the process is to stop, see
        `stopping`. `early`: its lanes had not told of all partitions.
        """
        flow = self._flows[name]
        then, flow.then = flow.then, None
        self.stopping = self.stopping or code == BUG
        if self.stopping and code == 0 and (early or flow.stage is Stage.STARTING):
            code = flow.code
        if then is _Then.AGAIN and not self.stopping:
            self._replaced(name)
            return True
        flow.on_trial = self.waits(name, code)
        self._go(name, FlowEvent.ENDED_PASSING if code in PASSING else FlowEvent.ENDED_FOR_GOOD)
        flow.code, flow.due_s = code, now_s + flow.interval_s
        if then is _Then.GONE and not self.stopping:
            self._forget(name)
        return False

    def stop(self) -> None:
        """Note that the process was asked to stop: nothing is started again."""
        self.stopping = True

    def due(self, now_s: float) -> list[str]:
        """Return the flows to start again now; they are starting then."""
        if self.stopping or not self._goes_on():
            return []
        names = [name for name, flow in self._flows.items() if flow.stage is Stage.ENDED and flow.due_s <= now_s]
        for name in names:
            self._go(name, FlowEvent.DUE)
        return names

    def reminders(self, now_s: float) -> list[str]:
        """Return the flows that are over though nobody asked for it, and that are to be named now: nobody watches for
        what a process that goes on doesn't do."""
        if self.stopping or not self._goes_on():
            return []
        found = [(name, flow) for name, flow in self._flows.items() if flow.forgotten and flow.due_s <= now_s]
        for _, flow in found:
            flow.due_s = now_s + flow.interval_s
        return [name for name, _ in found]

    def next_due_s(self) -> float | None:
        """Say when `due` and `reminders` should be asked next; None while there is nothing to start again or to
        name.
        """
        if self.stopping or not self._goes_on():
            return None
        waiting = [flow for flow in self._flows.values() if flow.stage is Stage.ENDED or flow.forgotten]
        return min((flow.due_s for flow in waiting), default=None)

    def exit_code(self) -> int | None:
        """Return the code with which the process leaves now; None while a flow is starting or alive, or is on trial."""
        if self._any(Stage.STARTING) or self._any(Stage.RUNNING) or (not self.stopping and self._goes_on()):
            return None
        return worst(self.codes.values())

    def _goes_on(self) -> bool:
        """Return whether the process goes on, so that flows that have ended are looked after."""
        return self._any(Stage.RUNNING) or any(flow.on_trial for flow in self._flows.values())

    def _any(self, stage: Stage) -> bool:
        return any(flow.stage is stage for flow in self._flows.values())

    def _go(self, name: str, event: FlowEvent) -> None:
        flow = self._flows[name]
        flow.stage = TRANSITIONS[flow.stage, event]
