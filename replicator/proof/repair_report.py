"""What a repair would do, or has done, for machines and reports. Pure; used with Spark and without.

The key `repair` of report.json: docs/reference/formats.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.proof import verdicts
from replicator.proof.outcome import Outcome, PartitionOutcome

SPANS_TOLD_MAX = 1_000
STAYS = (verdicts.EXTRA, verdicts.DOUBLED, verdicts.ALTERED, verdicts.REORDERED)
LIMITS = (
    "records that are copied again stand behind all others: a later reconcile calls them reordered, unless only the "
    "end of a partition was missing",
    "extra, doubled, altered and reordered records stay as they are: a Kafka log can only be appended to",
    "what stands on the target is not copied, nor, in a compacted topic, a record whose key has a later one "
    "(superseded); apply asks both sides again after its fence, and goes by that",
)
MissingSpan = tuple[int, int, int]
"""Source offsets [first, end), and how many records are missing there."""


class PartitionRepair(Protocol):
    """What becomes, or has become, of the missing records of a partition: `jobs.repair`, `jobs.repair_plan`."""

    @property
    def copied(self) -> int: ...
    @property
    def standing(self) -> int: ...
    @property
    def superseded(self) -> int: ...
    @property
    def superseded_at(self) -> Sequence[Span]: ...
    @property
    def refused(self) -> Mapping[str, int]: ...
    @property
    def incident(self) -> Incident | None: ...


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """By source partition.

    Attributes:
        missing: what the comparison has called so.
        asked: what becomes of it; what has become of it once a `generation` has `applied` it.
        copied_before: how many other repairs have copied meanwhile.
        refused: why a partition isn't repaired at all.
    """

    missing: Mapping[Partition, Sequence[MissingSpan]]
    asked: Mapping[Partition, PartitionRepair] = field(default_factory=dict)
    generation: int | None = None
    copied_before: Mapping[Partition, int] = field(default_factory=dict)
    refused: Mapping[Partition, str] = field(default_factory=dict)

    @property
    def applied(self) -> bool:
        """Whether it was done, and is no plan."""
        return self.generation is not None


def both(one: RepairFacts, other: RepairFacts) -> RepairFacts:
    """Return what is known of partitions that were repaired in two ways, each in one of them."""
    generations = [facts.generation for facts in (one, other) if facts.generation is not None]
    return RepairFacts(
        {**one.missing, **other.missing},
        {**one.asked, **other.asked},
        max(generations, default=None),
        {**one.copied_before, **other.copied_before},
        {**one.refused, **other.refused},
    )


def repair_report(outcome: Outcome, facts: RepairFacts) -> dict[str, Any]:
    """Return the plan, with what became of it when it was applied."""
    rows = [_row(partition, facts) for partition in outcome.partitions if _worth_a_row(partition, facts)]
    return {"applied": facts.applied, "generation": facts.generation, "partitions": rows, "notes": list(LIMITS)}


def _worth_a_row(partition: PartitionOutcome, facts: RepairFacts) -> bool:
    asked = facts.asked.get(partition.source)
    return bool(facts.missing.get(partition.source) or _stays(partition) or (asked is not None and asked.refused))


def _stays(partition: PartitionOutcome) -> dict[str, int]:
    return {name: partition.verdicts[name] for name in STAYS if partition.verdicts.get(name)}


def _row(partition: PartitionOutcome, facts: RepairFacts) -> dict[str, Any]:
    at, applied = partition.source, facts.applied
    missing, asked = facts.missing.get(at, ()), facts.asked.get(at)
    refused = [facts.refused[at]] if missing and at in facts.refused else []
    refused += [f"{records:,} not copied: {why}" for why, records in sorted(asked.refused.items())] if asked else []
    return {
        "source": at._asdict(),
        "target": partition.target._asdict(),
        "missing": sum(records for _, _, records in missing),
        "spans": [_told((first, end)) | {"records": records} for first, end, records in missing[:SPANS_TOLD_MAX]],
        "spans_not_listed": max(0, len(missing) - SPANS_TOLD_MAX),
        "refused": "; ".join(refused) or None,
        "stays": _stays(partition),
        "to_copy": asked.copied if asked is not None and not applied else None,
        "copied": asked.copied if asked is not None and applied else None,
        "copied_before": facts.copied_before.get(at, 0) if asked is not None and applied else None,
        "standing": asked.standing if asked is not None else None,
        "superseded": asked.superseded if asked is not None else None,
        "superseded_spans": [_told(span) for span in asked.superseded_at] if asked is not None else [],
        "incident": str(asked.incident) if asked is not None and asked.incident is not None else None,
    }


def _told(span: Span) -> dict[str, int]:
    return {"first": span[0], "end": span[1]}
