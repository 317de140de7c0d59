"""Outcomes as a reconciliation gives them, for what shows them."""

from __future__ import annotations

from typing import Any

from replicator.model.partition import Partition
from replicator.proof.excerpts import Fields, side_by_side
from replicator.proof.outcome import BUCKETS, ClusterFacts, OffsetRange, Outcome, PartitionOutcome
from replicator.state.signed_gaps import SignedGap

HOSTILE = b'<script>alert("k")</script>\x1b[31m\x00\xe2\x80\xae'
"""Markup, a terminal's escape sequence, a null byte, and a character that turns the direction of what follows."""
SIGNED = SignedGap(
    occurrence="ab12",
    topic="t",
    partition=0,
    target_topic="a.t",
    first=40,
    end=42,
    incident="source_records_gone",
    command="skip",
    by="ann",
    why="nobody reads them",
    decided_ms=1,
    acted_ms=2,
)
"""Two records that an operator has decided to leave out."""


def outcome(*partitions: PartitionOutcome, **changes: Any) -> Outcome:
    """All of 20 records read, in full mode, from clusters a and b."""
    fields: dict[str, Any] = {
        "flow": "f",
        "source": ClusterFacts("a", "id-a", ("a.example:9092", "a2.example:9092")),
        "target": ClusterFacts("b", "id-b", ("b.example:9092",)),
        "mode": "full",
        "snapshot_ms": 1_700_000_000_000,
        "finished_ms": 1_700_000_062_500,
        "partitions": partitions,
        "tool_version": "1.2.3",
        "spark_version": "4.5.6",
        **changes,
    }
    return Outcome(**fields)


def partition(**changes: Any) -> PartitionOutcome:
    """One of 10 records that are the same."""
    fields: dict[str, Any] = {
        "source": Partition("t", 0),
        "target": Partition("a.t", 0),
        "source_offsets": (0, 10),
        "target_offsets": (0, 12),
        "source_records": 10,
        "target_records": 10,
        "position_records": 10,
        "position": 10,
        "source_counts_agree": True,
        "target_counts_agree": True,
        "chunks": 1,
        "chunks_differing": 0,
        "verdicts": {"same": 10},
        **changes,
    }
    return PartitionOutcome(**fields)


DAMAGED = partition(
    chunks_differing=1,
    verdicts={"same": 8, "missing": 2, "expired_on_target": 3},
    places={"missing": [0, 2, *[0] * (BUCKETS - 2)], "expired_on_target": [3, *[0] * (BUCKETS - 1)]},
    ranges=(
        OffsetRange(
            verdict="missing", records=2, source_offsets=(4, 5), timestamps_ms=(-1, 1_700_000_000_123), key=HOSTILE
        ),
    ),
    ranges_found={"missing": 1},
    notes=("a note",),
)
ALTERED = partition(
    source=Partition("t", 1),
    target=Partition("a.t", 1),
    chunks_differing=1,
    verdicts={"same": 9, "altered": 1},
    ranges=(
        OffsetRange(
            verdict="altered",
            records=1,
            fields="value,headers",
            source_offsets=(7, 7),
            target_offsets=(8, 8),
            timestamps_ms=(5, 5),
            key=b"k",
            fields_of_first=side_by_side(
                Fields(b"k", b"x" * 5_000 + HOSTILE, [("h", b"1")], 5), Fields(b"k", b"x" * 5_000, None, 5)
            ),
        ),
    ),
    ranges_found={"altered": 1},
)


def _copied(number: int, records: int, **changes: Any) -> PartitionOutcome:
    """One that was copied in transactions, whose markers take offsets of the target."""
    fields: dict[str, Any] = {
        "source": Partition("orders", number),
        "target": Partition("east.orders", number),
        "source_offsets": (0, records),
        "source_records": records,
        "target_records": records,
        "position_records": records,
        "position": records,
        "verdicts": {"same": records},
    }
    return partition(**{**fields, **changes})


EXAMPLE = outcome(
    _copied(
        0,
        68_000,
        target_records=68_001,
        target_counts_agree=False,
        chunks_differing=1,
        verdicts={"same": 68_000, "extra": 1},
        ranges=(OffsetRange(verdict="extra", records=1, target_offsets=(68_009, 68_009), key=b"customer-1"),),
        ranges_found={"extra": 1},
    ),
    _copied(1, 56_000),
    _copied(2, 76_000),
    flow="orders",
    source=ClusterFacts("east", "", ("east.example:9092",)),
    target=ClusterFacts("west", "", ("west.example:9092",)),
    snapshot_ms=1_795_604_361_000,
    finished_ms=1_795_604_373_400,
    tool_version="0.1.0",
    spark_version="4.0.0",
)
"""That of docs/spark/reconcile.md: somebody else has written a record into the target."""
