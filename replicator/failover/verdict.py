"""What a target has at a failover, and what it lacks, as far as can be known without the source. Pure values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from replicator.coupling.source_transactions import HalfCopied, PartCopied, RecordRange
from replicator.model.partition import Partition


class FailedPartition(NamedTuple):
    """One partition that the flow copied.

    Attributes:
        position: up to which source offset it is copied.
        end_seen: where the source ended when that was noted last; None: it never was.
        problem: why the position can't be read, or is missing, or says too little: an incident stops the partition, or
            its offsets are those of another topic, or the target has lost copies. Empty where it can be relied on.
    """

    source: Partition
    target: Partition
    position: int | None
    end_seen: int | None
    problem: str = ""

    @property
    def not_copied(self) -> int | None:
        """How many source offsets are not copied, at least; None where that isn't known, nor whether there are any."""
        if self.position is None or self.end_seen is None:
            return None
        left = max(0, self.end_seen - self.position)
        return None if self.problem and not left else left

    @property
    def complete(self) -> bool:
        """Whether all is copied that the source had when its end was noted."""
        return self.not_copied == 0

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "source_topic": self.source.topic,
            "target_topic": self.target.topic,
            "partition": self.target.partition,
            "position": self.position,
            "source_end_seen": self.end_seen,
            "not_copied_at_least": self.not_copied,
            **({"problem": self.problem} if self.problem else {}),
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> FailedPartition:
        """Make it of what `as_json` gave. Raises KeyError, TypeError, ValueError."""
        number = int(row["partition"])
        return cls(
            Partition(str(row["source_topic"]), number),
            Partition(str(row["target_topic"]), number),
            _number(row["position"]),
            _number(row["source_end_seen"]),
            str(row.get("problem", "")),
        )


class FailedGroup(NamedTuple):
    """A consumer group at the target: how many partitions stand where the flow has committed them last, how many
    somebody else has committed since, and of how many commits no answer came. `has_members`: consumers have begun."""

    group: str
    synced: int
    others: int
    unanswered: int
    has_members: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "group": self.group,
            "partitions_synced": self.synced,
            "partitions_of_others": self.others,
            "partitions_unanswered": self.unanswered,
            "has_members": self.has_members,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> FailedGroup:
        """Make it of what `as_json` gave. Raises KeyError, TypeError, ValueError."""
        return cls(
            str(row["group"]),
            int(row["partitions_synced"]),
            int(row["partitions_of_others"]),
            int(row["partitions_unanswered"]),
            bool(row["has_members"]),
        )


class TransactionsSeen(NamedTuple):
    """How the source's transactions were looked at.

    Attributes:
        looked_ms: when the last time; 0: never. `since_ms`: all that ended between is known.
        left_out: how many of them were let go of, because there were too many that weren't copied.
        problem: why it wasn't looked at since; empty where the last look was a good one.
    """

    looked_ms: int
    since_ms: int
    left_out: int
    problem: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "looked_ms": self.looked_ms or None,
            "since_ms": self.since_ms or None,
            "left_out": self.left_out,
            "problem": self.problem,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> TransactionsSeen:
        """Make it of what `as_json` gave. Raises KeyError, TypeError, ValueError."""
        looked, since = row["looked_ms"], row["since_ms"]
        return cls(int(looked or 0), int(since or 0), int(row["left_out"]), str(row["problem"]))


NEVER_SEEN = TransactionsSeen(0, 0, 0, "")


def transaction_json(it: HalfCopied) -> dict[str, Any]:
    """Return a half copied transaction as JSON, for machines."""
    return {
        "transactional_id": it.transactional_id,
        "producer_id": it.producer_id,
        "producer_epoch": it.epoch,
        "started_ms": it.start_ms,
        "committed": it.committed,
        "half_copied": it.certain or None,
        "partitions": [
            {
                "source_topic": part.at.topic,
                "partition": part.at.partition,
                "copied": part.copied,
                "first_offset_at_least": part.bounds.first,
                "end_offset_at_most": part.bounds.end,
                "position": part.position,
            }
            for part in it.parts
        ],
    }


def transaction_of_json(row: Mapping[str, Any]) -> HalfCopied:
    """Make it of what `transaction_json` gave. Raises KeyError, TypeError, ValueError."""
    parts = tuple(
        PartCopied(
            Partition(str(part["source_topic"]), int(part["partition"])),
            RecordRange(_number(part["first_offset_at_least"]), _number(part["end_offset_at_most"])),
            _number(part["position"]),
            None if part["copied"] is None else bool(part["copied"]),
        )
        for part in row["partitions"]
    )
    ids = str(row["transactional_id"]), int(row["producer_id"]), int(row["producer_epoch"])
    return HalfCopied(*ids, int(row["started_ms"]), bool(row["committed"]), parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverVerdict:
    """All of it.

    Attributes:
        generation: the one under which nothing is copied; None: it was only rehearsed.
        at_ms: when it was looked at; `ends_seen_ms`: when the source's ends were noted last, 0 if never. What was
            written at the source after that nobody knows here.
        topics: the source topics that were failed over; empty: the whole flow.
        transactions: those of which some partitions are copied and others aren't, or may not be.
    """

    flow: str
    source: str
    target: str
    generation: int | None
    by: str
    at_ms: int
    ends_seen_ms: int
    partitions: Sequence[FailedPartition]
    groups: Sequence[FailedGroup]
    topics: Sequence[str] = ()
    transactions: Sequence[HalfCopied] = ()
    transactions_seen: TransactionsSeen = NEVER_SEEN

    @property
    def torn(self) -> Sequence[HalfCopied]:
        """Transactions that are half copied for certain."""
        return [it for it in self.transactions if it.certain]

    @property
    def not_copied(self) -> int:
        """How many source offsets are known not to be copied."""
        return sum(it.not_copied or 0 for it in self.partitions)

    @property
    def unknown(self) -> int:
        """Of how many partitions nothing is known of what is not copied."""
        return sum(it.not_copied is None for it in self.partitions)

    @property
    def complete(self) -> bool:
        """Whether all is copied that the source had when its ends were noted last."""
        return bool(self.partitions) and all(it.complete for it in self.partitions) and not self.torn

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return each partition and each group; and each transaction, and how they were looked at, where they were: the
        digests of older verdicts are without."""
        rows = {
            "partitions": [it.as_json() for it in self.partitions],
            "groups": [it.as_json() for it in self.groups],
        }
        if self.transactions:
            rows["transactions"] = [transaction_json(it) for it in self.transactions]
        if self.transactions_seen != NEVER_SEEN:
            rows["transactions_seen"] = [self.transactions_seen.as_json()]
        return rows

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the rows as canonical JSON: who has the file can tell that it is this verdict's."""
        text = json.dumps(self.rows(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines."""
        return {
            "flow": self.flow,
            "source": self.source,
            "target": self.target,
            **({"topics": list(self.topics)} if self.topics else {}),
            "generation": self.generation,
            "rehearsed": self.generation is None,
            "by": self.by,
            "at_ms": self.at_ms,
            "source_ends_seen_ms": self.ends_seen_ms or None,
            "complete": self.complete,
            "not_copied_at_least": self.not_copied,
            "partitions_unknown": self.unknown,
            "transactions_half_copied": len(self.torn),
            "transactions_unclear": len(self.transactions) - len(self.torn),
            "transactions": [],
            "transactions_seen": [],
            "sha256": self.digest,
            **self.rows(),
        }


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
