"""What is kept of a source record that an operator has decided to set aside. Pure; used by `lane.decisions`.

The record goes to the flow's topic for such (`names.aside_topic`) with its key, value and headers as they are, and
headers of ours behind them that say where it comes from, when it was written, why it could not be copied and who has
decided to go on. What can't be held is left out, and named as lost.
"""

from __future__ import annotations

from enum import StrEnum

from replicator.planes.contract import AsideRecord, UnreadRecord, WholeRecord
from replicator.state.decisions import OperatorDecision
from replicator.state.occurrences import Occurrence

FRAMING_BYTES = 512
"""About so much more than keys, values and headers a batch of one record has, with our headers' names."""


class Kept(StrEnum):
    """How much of a record is held."""

    WHOLE = "whole"
    WITHOUT_HEADERS = "without headers"  # the client can't return them
    STUB = "stub"  # only what our headers say: it is larger than the client writes, or its batch than what is read


def aside(
    record: WholeRecord | UnreadRecord,
    it: Occurrence,
    decision: OperatorDecision,
    source_cluster: str,
    bytes_max: int,
) -> tuple[AsideRecord, Kept]:
    """Make what is written of a record, and say how much of it that is.

    Args:
        source_cluster: the cluster's id.
        bytes_max: the largest record that the client writes.
    """
    if isinstance(record, UnreadRecord):
        ours = [*_ours(None, it, decision, source_cluster), ("eos.kept", Kept.STUB.value.encode())]
        return AsideRecord(None, None, tuple(ours)), Kept.STUB
    kept = Kept.WHOLE if record.headers is not None else Kept.WITHOUT_HEADERS
    ours = _ours(record.timestamp_ms, it, decision, source_cluster)
    size = len(record.key or b"") + len(record.value or b"") + FRAMING_BYTES
    size += sum(len(name.encode()) + len(value or b"") for name, value in (*(record.headers or ()), *ours))
    if size > bytes_max:
        kept = Kept.STUB
    ours.append(("eos.kept", kept.value.encode()))
    if kept is Kept.STUB:
        ours.append(("eos.lost.bytes", str(len(record.key or b"") + len(record.value or b"")).encode()))
        return AsideRecord(None, None, tuple(ours)), kept
    return AsideRecord(record.key, record.value, (*(record.headers or ()), *ours)), kept


def _ours(
    timestamp_ms: int | None, it: Occurrence, decision: OperatorDecision, source_cluster: str
) -> list[tuple[str, bytes | None]]:
    """Make the headers; without a timestamp where that isn't known."""
    said = {
        "eos.source.cluster": source_cluster,
        "eos.source.topic": it.source.topic,
        "eos.source.partition": it.source.partition,
        "eos.source.offset": decision.offset,
        "eos.source.timestamp": timestamp_ms,
        "eos.target.topic": it.target.topic,
        "eos.reason": it.name,
        "eos.detail": it.detail,
        "eos.occurrence": it.id,
        "eos.by": decision.by,
        "eos.why": decision.why,
    }
    return [(name, str(value).encode()) for name, value in said.items() if value is not None]
