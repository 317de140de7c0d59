"""Topic configs about timestamps: what a target topic does with those of records. Pure.

Used by `flow.topic_rules` and `inspect.timestamps`, which read configs, by `lane.transaction`, which sees
acknowledgements, and by `planes.records`, which looks at each record before it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from replicator.model.errors import Incident

TIMESTAMP_TYPE = "message.timestamp.type"
LOG_APPEND_TIME = "LogAppendTime"
BEFORE_MAX_MS, AFTER_MAX_MS = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_BOTH_MAX_MS = "message.timestamp.difference.max.ms"  # of brokers before KIP-937: one for both directions
_UNBOUNDED_MS = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimestampBounds:
    """How far a record's timestamp may be from the time of its append, in ms, in either direction.

    A broker refuses what lies outside (org.apache.kafka.storage.internals.log.LogValidator, validateTimestamp).
    """

    before_ms: int = _UNBOUNDED_MS
    after_ms: int = _UNBOUNDED_MS

    @classmethod
    def of(cls, configs: Mapping[str, str], prefix: str = "") -> TimestampBounds:
        """Return those of a topic's effective configs; none where the topic replaces timestamps. `prefix`: `log.` for
        those that a broker gives to topics without their own."""
        if replaces_timestamps(configs, prefix):
            return cls()
        both_ms = int(configs.get(prefix + _BOTH_MAX_MS, _UNBOUNDED_MS))
        before_ms, after_ms = (int(configs.get(prefix + key, _UNBOUNDED_MS)) for key in (BEFORE_MAX_MS, AFTER_MAX_MS))
        return cls(min(before_ms, both_ms), min(after_ms, both_ms))

    @property
    def bounded(self) -> bool:
        """Whether any timestamp is refused."""
        return self != UNBOUNDED

    def around(self, now_ms: int) -> tuple[int, int]:
        """Return the earliest and the latest timestamp that is taken now."""
        return now_ms - self.before_ms, now_ms + self.after_ms

    def refusal(self, timestamp_ms: int, now_ms: int, target_topic: str) -> str:
        """Say why a record with this timestamp is refused; empty if it isn't."""
        earliest_ms, latest_ms = self.around(now_ms)
        time = f"timestamp {timestamp_ms} ({_readable(timestamp_ms)})"
        if timestamp_ms < earliest_ms:
            return f"{time} is older than topic {target_topic!r} takes ({BEFORE_MAX_MS}={self.before_ms})"
        if timestamp_ms > latest_ms:
            return f"{time} is further ahead than topic {target_topic!r} takes ({AFTER_MAX_MS}={self.after_ms})"
        return ""


UNBOUNDED = TimestampBounds()


def _readable(timestamp_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return "beyond the year 9999"


def replaces_timestamps(configs: Mapping[str, str], prefix: str = "") -> bool:
    """Return whether a topic with these effective configs stamps records with the time of their append. `prefix` as of
    `TimestampBounds.of`."""
    return configs.get(prefix + TIMESTAMP_TYPE) == LOG_APPEND_TIME


def target_rewrites_timestamps(cluster: str, target_topic: str, source_topic: str) -> Incident:
    """Return the incident of a source topic whose target topic stamps records with the time of their append.

    Configs and acknowledgements show it in the same words, so that it is logged once.
    """
    why = f"topic {target_topic!r} of cluster {cluster!r} has {TIMESTAMP_TYPE}={LOG_APPEND_TIME}"
    return Incident("target_rewrites_timestamps", why, topic=source_topic)
