"""Whether a producer still has a connection to the broker that takes its positions, by what librdkafka says. Pure.

librdkafka (2.16) takes a broker that has left the cluster out of its list (`rd_kafka_broker_decommission`), but keeps
it as the group's coordinator for ten minutes (`rd_kafka_coord_cache`). Until then

- the next TxnOffsetCommit waits for a connection that nobody makes any more (see `coordinator_patience`), and the
  producer can't be closed meanwhile;
- that broker's thread can't end and looks for its end a thousand times a second: one percent of a core for each
  producer, whether it commits or not.

A new producer asks for the coordinator anew and has neither. So `producer` gives up one that has lost its coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

ACTIVE_S = 10.0
"""A connection that closes so soon after positions were committed was lost. Later it may be one that somebody closes
because nothing comes, and the next request makes a new one."""
SPINNING = 50
"""Rounds of a broker's thread without a connection between two statistics (half a second, `properties.lane_producer`).
One that has left makes hundreds, one that isn't needed makes one or two."""


class CoordinatorConnection:
    """Of one producer. Used by the thread that serves its callbacks."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._committed_s = now_s, float("-inf")
        self._name = ""  # as librdkafka calls the broker, HOST:PORT/ID; empty until it is known
        self._commits: Mapping[str, int] = {}  # requests so far, by broker
        self._rounds: Mapping[str, int] = {}
        self.lost = ""
        """How the connection was lost; empty while it wasn't."""

    def on_committed(self) -> None:
        """Note that the coordinator has taken positions."""
        self._committed_s = self._now_s()

    def statistics(self, brokers: Mapping[str, Any]) -> None:
        """Take what statistics say of brokers, by name (librdkafka's STATISTICS.md)."""
        commits = {name: broker["req"].get("TxnOffsetCommit", 0) for name, broker in brokers.items()}
        for name, number in commits.items():
            if number > self._commits.get(name, 0):
                self._name = name
        rounds = {name: broker["wakeups"] for name, broker in brokers.items()}
        if self._name in brokers and brokers[self._name]["state"] == "INIT":
            number = rounds[self._name]
            if number - self._rounds.get(self._name, number) >= SPINNING:
                self.lost = f"{self._name}: it has left the cluster"
        self._commits, self._rounds = commits, rounds

    def line(self, text: str) -> None:
        """Take a log line: lines tell of connections that break or can't be made."""
        named = f"]: {self._name}: "
        if self._name and "FAIL" in text and named in text and self._now_s() < self._committed_s + ACTIVE_S:
            self.lost = f"{self._name}: {text.partition(named)[2]}"
