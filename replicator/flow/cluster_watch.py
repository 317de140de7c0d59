"""Says when a cluster of a flow doesn't answer any more, and when it answers again: once for the cluster, in seconds.

Started by `flow.worker` and `flow.shared_flow` beside the first lanes of a flow, it goes on until the flow ends: also
between two generations, and while the flow is failed over. A lane finds out much later: a client waits for its own
time-outs, and under load for those of what is under way. While a cluster is away its partitions wait without a line for
each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import structlog

from replicator import config
from replicator.clock import RealClock
from replicator.config import Flow
from replicator.flow.parts import ConditionObserver, Silence
from replicator.kafka.topic_questions import TopicQuestions
from replicator.lane.ports import Clock
from replicator.model import names
from replicator.model.errors import ReplicatorError, Unreachable

ASK_S = 1.0  # between an answer and the next question
AWAY_S = 4.0  # without any answer of any broker
LEADERS_S = 10.0
"""After its first answer a cluster may have no leaders yet, and partitions that wait are asked about again."""
NO_BROKER_ANSWERS = "no broker answers"
SLICE_S = 0.2  # between two looks at whether the flow ends


class AwayClusters:
    """Names of clusters that don't answer, or have just begun to. Shared by the watches and the lanes of a flow."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._silent: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._names)

    def set(self, name: str, *, away: bool) -> None:
        """Note whether this cluster is away."""
        with self._lock:
            self._names = self._names | {name} if away else self._names - {name}

    def silent(self, now_s: float) -> list[Silence]:
        """Return those that don't answer now, and haven't just begun to. `now_s`: by the clock that sets them."""
        with self._lock:
            return [Silence(name, now_s - since_s, why) for name, (since_s, why) in sorted(self._silent.items())]

    def set_silent(self, name: str, since_s: float, reason: str) -> None:
        """Take note that this cluster has not answered since then, and why."""
        with self._lock:
            self._silent[name] = since_s, reason

    def set_answers(self, name: str) -> None:
        """Take note that it answers again."""
        with self._lock:
            self._silent.pop(name, None)


class ClusterWatch:
    """Asks any broker of one cluster again and again. Its thread ends when `ended` is set."""

    def __init__(
        self,
        flow: Flow,
        cluster: config.Cluster,
        topics: TopicQuestions,
        away: AwayClusters,
        ended: threading.Event,
        log: structlog.stdlib.BoundLogger,
        observer: ConditionObserver,
        told: dict[str, float],
        clock: Clock | None = None,
    ) -> None:
        """`topics` asks the cluster, and is closed at the end. `observer`: is told of it as the log is. `told`: as of
        `Connecting`; the flow may end here while the cluster is away."""
        self._cluster, self._topics, self._away, self._ended, self._log = cluster.name, topics, away, ended, log
        self._clock, self._about = clock or RealClock(), names.control_topic(flow.name)  # of either: it need not exist
        self._answered_s, self._is_away = self._clock.now_s(), False
        self._led_s, self._observer, self._told = self._answered_s, observer, told

    def run(self, failed: Callable[[BaseException], None]) -> None:
        """Run until it has ended; this is the thread's work. `failed` is told of a bug, which ends it."""
        try:
            with closing(self._topics):
                while not self._ended.is_set():
                    self.ask()
                    self._clock.wait(self._ended, ASK_S)
        except BaseException as error:  # noqa: BLE001 - the flow classifies it
            failed(error)
        finally:
            self._observer.cluster_answers(self._cluster)

    def ask(self) -> None:
        """Ask one question, until there is an answer or the flow ends."""
        asked = self._topics.describe([self._about])
        while not self._ended.is_set():
            if asked.poll(SLICE_S):
                answer = asked.values()[self._about]
                if not isinstance(answer, Unreachable):  # any other error is an answer, too
                    self._here()
                    return
                self._missed(answer)
                self._clock.wait(self._ended, SLICE_S)
                asked = self._topics.describe([self._about])
            else:
                self._missed(asked.values()[self._about])

    def _here(self) -> None:
        now_s = self._clock.now_s()
        if self._is_away:
            self._is_away, self._led_s = False, now_s + LEADERS_S
            self._away.set_answers(self._cluster)
            self._observer.cluster_answers(self._cluster)
        since_s = self._told.pop(self._cluster, None)  # also where a worker before has said that it is away
        if since_s is not None:
            self._log.warning("recovered", cluster=self._cluster, unreachable_s=round(now_s - since_s))
        if now_s >= self._led_s:
            self._away.set(self._cluster, away=False)
        self._answered_s = now_s

    def _missed(self, why: object) -> None:
        if self._is_away or self._clock.now_s() < self._answered_s + AWAY_S:
            return
        self._is_away, reason, for_s = True, self._reason(why), self._clock.now_s() - self._answered_s
        self._away.set(self._cluster, away=True)
        self._away.set_silent(self._cluster, self._answered_s, reason)
        self._observer.cluster_unreachable(self._cluster, for_s)
        self._told.setdefault(self._cluster, self._answered_s)
        self._log.error("unreachable", cluster=self._cluster, reason=reason, unreachable_s=round(for_s))

    def _reason(self, why: object) -> str:
        """Say why, without the topic that was asked for: it may be one of the other cluster, and isn't what is
        missing.
        """
        if not isinstance(why, ReplicatorError):
            return NO_BROKER_ANSWERS
        _, asked, error = str(why).partition(self._about)
        return f"{NO_BROKER_ANSWERS}: " + error.lstrip("': ") if asked else str(why)


def watch_clusters(
    flow: Flow,
    ask: Callable[[Flow, config.Cluster, str], TopicQuestions],
    away: AwayClusters,
    ended: threading.Event,
    log: structlog.stdlib.BoundLogger,
    failed: Callable[[BaseException], None],
    observer: ConditionObserver,
    told: dict[str, float],
) -> None:
    """Start a thread for each cluster of the flow; `ask` makes what asks it, as `topics.topics_of`; `failed` as of
    `ClusterWatch.run`, `told` as of `Connecting`."""
    for cluster in (flow.source, flow.target):
        watch = ClusterWatch(flow, cluster, ask(flow, cluster, "watch"), away, ended, log, observer, told)
        name = f"{flow.name}.watch.{cluster.name}"
        threading.Thread(target=watch.run, args=(failed,), name=name, daemon=True).start()
