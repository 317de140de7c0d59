"""An outcome for machines: report.json, and what `--json` prints. docs/reference/formats.md lists the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from replicator.model.partition import Partition
from replicator.proof.headline import headline
from replicator.proof.next_steps import next_steps
from replicator.proof.outcome import ClusterFacts, OffsetRange, Outcome, PartitionOutcome, key_text


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return everything but the findings themselves. Places are sparse (bucket → records); keys are text where they are
    printable UTF-8, else hexadecimal."""
    return {
        "verdict": outcome.verdict,
        "headline": headline(outcome),
        "agrees": outcome.agrees,
        "flow": outcome.flow,
        "source": _cluster(outcome.source),
        "target": _cluster(outcome.target),
        "mode": outcome.mode,
        "window": {"from_ms": outcome.window[0], "to_ms": outcome.window[1]},
        "snapshot_ms": outcome.snapshot_ms,
        "finished_ms": outcome.finished_ms,
        "duration_ms": outcome.duration_ms,
        "tool_version": outcome.tool_version,
        "spark_version": outcome.spark_version,
        "records_read": outcome.records_read,
        "records_opened": sum(partition.opened for partition in outcome.partitions),
        "totals": outcome.totals(),
        "lag": outcome.lag,
        "next_steps": [asdict(step) for step in next_steps(outcome)],
        "partitions": [_partition(partition) for partition in outcome.partitions],
        "waiting": [{**_named(item.source), "source_offsets": list(item.offsets)} for item in outcome.waiting],
        "not_compared": [incident.facts for incident in outcome.not_compared],
        "notes": list(outcome.notes),
        "repair": outcome.repair,
    }


def _partition(partition: PartitionOutcome) -> dict[str, Any]:
    return {
        "source": _named(partition.source),
        "target": _named(partition.target),
        "verdict": partition.verdict,
        "agrees": partition.agrees,
        "source_offsets": list(partition.source_offsets),
        "target_offsets": list(partition.target_offsets),
        "source_records": partition.source_records,
        "target_records": partition.target_records,
        "position": partition.position,
        "position_records": partition.position_records,
        "lag": partition.lag,
        "source_counts_agree": partition.source_counts_agree,
        "target_counts_agree": partition.target_counts_agree,
        "chunks": partition.chunks,
        "chunks_differing": partition.chunks_differing,
        "records_opened": partition.opened,
        "verdicts": dict(partition.verdicts),
        "unproven_reasons": dict(partition.reasons),
        "places": _sparse(partition.places),
        "ranges": [_range(item) for item in partition.ranges],
        "ranges_found": dict(partition.ranges_found),
        "signed_gaps": [asdict(gap) for gap in partition.signed_gaps],
        "adopted": partition.adopted,
        "notes": list(partition.notes),
        "provable": _provable(partition.provable),
        "by_content": partition.by_content or None,
    }


def _range(item: OffsetRange) -> dict[str, Any]:
    return {
        "verdict": item.verdict,
        "records": item.records,
        "fields": item.fields.split(",") if item.fields else [],
        "reason": item.reason,
        "source_offsets": _pair(item.source_offsets),
        "target_offsets": _pair(item.target_offsets),
        "timestamps_ms": _pair(item.timestamps_ms),
        "key": key_text(item.key),
        "fields_of_first": [asdict(pair) for pair in item.fields_of_first],
    }


def _provable(since: tuple[int, int] | None) -> dict[str, int] | None:
    return None if since is None else {"source_offset": since[0], "since_ms": since[1]}


def _pair(numbers: tuple[int, int] | None) -> list[int] | None:
    return None if numbers is None else list(numbers)


def _sparse(places: Mapping[str, list[int]]) -> dict[str, dict[str, int]]:
    return {
        name: {str(bucket): records for bucket, records in enumerate(counts) if records}
        for name, counts in places.items()
    }


def _cluster(cluster: ClusterFacts) -> dict[str, Any]:
    return {"name": cluster.name, "id": cluster.id, "bootstrap_servers": list(cluster.addresses)}


def _named(at: Partition) -> dict[str, Any]:
    return {"topic": at.topic, "partition": at.partition}
