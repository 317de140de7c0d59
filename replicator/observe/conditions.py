"""What keeps a whole flow from copying as its file says, whatever its partitions do: a cluster that doesn't answer, a
failover, settings of another file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FlowConditions:
    """Of one flow at one moment. `unreachable_ms`: by cluster that doesn't answer, when it last did (wall clock).
    `failed_over`: by whom, if the whole flow was; else empty. `being_failed_over`: by whom, while other workers may
    still copy; this one doesn't. `other_settings`: why it runs other settings than its file has; empty where it
    doesn't. It is copied all the same."""

    unreachable_ms: Mapping[str, int] = field(default_factory=dict)
    failed_over: str = ""
    other_settings: str = ""
    being_failed_over: str = ""

    @property
    def by_failover(self) -> bool:
        """Whether this process copies nothing because of a failover, whole or half done."""
        return bool(self.failed_over or self.being_failed_over)

    def __bool__(self) -> bool:
        """Return whether anything keeps it from being copied."""
        return bool(self.unreachable_ms or self.by_failover)


WELL = FlowConditions()


class ObservedConditions:
    """Implements `flow.parts.ConditionObserver`: takes them up from the threads of a flow. For any thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: the wall clock."""
        self._now_ms, self._lock = now_ms, threading.Lock()
        self._unreachable_ms: dict[str, int] = {}
        self._failed_over = self._being_failed_over = self._other_settings = ""

    def connecting(self, clusters: Collection[str]) -> None:
        """See `ConditionObserver`."""
        with self._lock:
            self._unreachable_ms = {name: ms for name, ms in self._unreachable_ms.items() if name in clusters}

    def cluster_unreachable(self, cluster: str, for_s: float) -> None:
        """See `ConditionObserver`. The earliest time holds: another attempt to connect has its own."""
        since_ms = self._now_ms() - round(for_s * 1000)
        with self._lock:
            self._unreachable_ms[cluster] = min(since_ms, self._unreachable_ms.get(cluster, since_ms))

    def cluster_answers(self, cluster: str) -> None:
        """See `ConditionObserver`."""
        with self._lock:
            self._unreachable_ms.pop(cluster, None)

    def failed_over(self, said: str) -> None:
        """See `ConditionObserver`."""
        with self._lock:
            self._failed_over = said

    def being_failed_over(self, said: str) -> None:
        """See `ConditionObserver`."""
        with self._lock:
            self._being_failed_over = said

    def other_settings(self, said: str) -> None:
        """See `ConditionObserver`."""
        with self._lock:
            self._other_settings = said

    def now(self) -> FlowConditions:
        """Return them as they are now."""
        with self._lock:
            return FlowConditions(
                dict(self._unreachable_ms), self._failed_over, self._other_settings, self._being_failed_over
            )
