"""That a flow was failed over, and with what verdict: a record of the control topic. Pure.

Every start of a lane reads that topic whole, so only a summary stands there. The rows stand in the topic
`__eos.<flow>.cutovers`, see `failover.kept_rows`; the digest says which rows belong to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replicator.state.envelope import NewerFormat, NotOurs, unwrap, wrap

FAILOVER = "failover"
KEY = b"failover"
_KINDS = frozenset({FAILOVER})


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverNote:
    """The newest one counts.

    Attributes:
        at_ms: when it was looked at (ms since 1970 UTC).
        source, target: the clusters' names in the operator's file.
        ends_seen_ms: when the source's ends were noted last; 0: never.
        not_copied: source offsets that are known not to be copied.
        partitions, groups: how many rows there are of each, in `chunks` records.
        digest: SHA-256 of the rows.
        topics: the source topics that were failed over; empty: the whole flow.
    """

    generation: int
    at_ms: int
    by: str
    source: str
    target: str
    ends_seen_ms: int
    complete: bool
    not_copied: int
    partitions: int
    groups: int
    chunks: int
    digest: str
    topics: Sequence[str] = ()

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value of the record."""
        content: dict[str, Any] = {
            "generation": self.generation,
            "at_ms": self.at_ms,
            "by": self.by,
            "source": self.source,
            "target": self.target,
            "source_ends_seen_ms": self.ends_seen_ms,
            "complete": self.complete,
            "not_copied_at_least": self.not_copied,
            "partitions": self.partitions,
            "groups": self.groups,
            "chunks": self.chunks,
            "sha256": self.digest,
        }
        if self.topics:
            content["topics"] = list(self.topics)
        return KEY, wrap(FAILOVER, content, must_understand=False)


def decode(value: bytes) -> FailoverNote:
    """Read the record's value. Raises NotOurs, also for a newer version's."""
    try:
        body = unwrap(KEY, value, _KINDS)
    except NewerFormat as error:
        raise NotOurs(str(error)) from error
    if body is None:
        raise NotOurs(f"record {KEY!r} has a newer format")
    try:
        return FailoverNote(
            generation=int(body["generation"]),
            at_ms=int(body["at_ms"]),
            by=str(body["by"]),
            source=str(body["source"]),
            target=str(body["target"]),
            ends_seen_ms=int(body["source_ends_seen_ms"]),
            complete=bool(body["complete"]),
            not_copied=int(body["not_copied_at_least"]),
            partitions=int(body["partitions"]),
            groups=int(body["groups"]),
            chunks=int(body["chunks"]),
            digest=str(body["sha256"]),
            topics=tuple(str(name) for name in body.get("topics", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise NotOurs(f"unreadable record {KEY!r}: {error!r}") from error
