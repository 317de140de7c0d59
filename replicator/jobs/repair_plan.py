"""Says what a repair would copy, by what both sides hold now. Changes nothing, and fences nobody.

Used by `reconcile --repair plan`. It asks the same questions as a repair (`repair_questions`), but what a repair copies
is decided by what it finds after its own fence.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from replicator.config import Flow, routing
from replicator.flow.topics import questions_of
from replicator.jobs.repair_decision import SPANS_NAMED_MAX
from replicator.jobs.repair_questions import Sides, answered
from replicator.jobs.repair_spans import WINDOW_OFFSETS_MAX, Damage, Tally, windows
from replicator.kafka.properties import MESSAGE_BYTES_MAX
from replicator.model.errors import Incident
from replicator.model.partition import Partition, Span
from replicator.planes.contract import ReadStopped
from replicator.planes.records.record_reader import LogReader


@dataclass(slots=True)
class PlannedPartition:
    """One partition: how many of its missing records would be copied, how many stand on the target already, how many
    are superseded by a later record of their key, and which (source offsets, the first of them); how many can't be told
    to be lost, by the reason. `incident`: what would stop a repair."""

    copied: int = 0
    standing: int = 0
    superseded: int = 0
    superseded_at: tuple[Span, ...] = ()
    refused: Counter[str] = field(default_factory=Counter)
    incident: Incident | None = None


def planned(
    flow: Flow, damage: Mapping[Partition, Damage], asked: threading.Event, say: Callable[[str], None]
) -> dict[Partition, PlannedPartition]:
    """Find what would become of the missing records of each source partition.

    Args:
        asked: set when it shall stop; then it leaves out what it has not asked about.
        say: told in a few words what is read now.

    Raises NotAllowed, Unreachable, Retriable.
    """
    found: dict[Partition, PlannedPartition] = {}
    most = MESSAGE_BYTES_MAX  # a repair reads what its targets take, which isn't known here
    with (
        closing(questions_of(flow, "source", asked)) as here,
        closing(questions_of(flow, "target", asked)) as there,
        closing(LogReader(flow, flow.source, asked, most)) as source_records,
        closing(LogReader(flow, flow.target, asked, most)) as target_records,
    ):
        for at, one in sorted(damage.items()):
            target = Partition(routing.target_topic(flow, at.topic), at.partition)
            sides = Sides(here, there, source_records, target_records, at, target)
            try:
                told = planned_partition(sides, one, say)
            except ReadStopped:
                break
            if told.incident is not None:
                told.incident = told.incident.of_flow(flow.name)
            found[at] = told
    return found


def planned_partition(sides: Sides, damage: Damage, say: Callable[[str], None]) -> PlannedPartition:
    """Find the same of one partition. Raises ReadStopped besides."""
    found, seen, at = PlannedPartition(), Tally(damage.missing), sides.source_at

    def on_read(side: str, done: int, of: int) -> None:
        if done:
            say(f"asking the {side} about missing records of {at}: {done:,} of {of:,} offsets")

    try:
        for window in windows(damage.missing, WINDOW_OFFSETS_MAX):
            # What is in an open transaction now is not waited for: nobody was fenced, and more may follow.
            end = answered(sides.target.log_ends([sides.target_at])[sides.target_at]).stable
            decision = sides.decide(window, damage, damage.source_end, end, seen=seen, on_read=on_read)
            found.copied += sum(span.records for span in decision.copied)
            found.standing += decision.standing
            found.superseded += decision.superseded
            found.refused.update(decision.refused)
            found.superseded_at = (*found.superseded_at, *decision.superseded_at)[:SPANS_NAMED_MAX]
    except Incident as incident:
        found.incident = incident
    return found
