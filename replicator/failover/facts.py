"""Reads from the target alone what a failover's verdict is made of. Changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from types import MappingProxyType

from replicator.config import Flow, routing
from replicator.coupling.source_transactions import HalfCopied, half_copied
from replicator.failover.contradicted import copies_doubted
from replicator.failover.verdict import FailedGroup, FailedPartition, TransactionsSeen
from replicator.flow.frozen import positions
from replicator.flow.topics import ControlPlane
from replicator.group_sync.note_topic import read_notes
from replicator.groups.ownership import GroupOffset, OwnershipNote
from replicator.kafka.offset_reader import OffsetReader
from replicator.model import names
from replicator.model.checkpoint import Position, Stored
from replicator.model.errors import Incident, NotAllowed, ReplicatorError
from replicator.model.partition import Partition
from replicator.state.claims import Claims
from replicator.state.occurrences import Occurrence
from replicator.state.transaction_notes import TransactionNotes
from replicator.wire.group_questions import GroupQuestions
from replicator.wire.offset_fetch_groups import GroupValues

ASK_S = 10.0
NEVER_COPIED = "it was never copied"


def read_positions(flow: Flow, plane: ControlPlane) -> Mapping[Partition, Stored]:
    """Read the positions as they are now, by target partition; an open transaction over them is waited for. Raises
    ReplicatorError: NotAllowed where some may not be seen."""
    with closing(OffsetReader(flow)) as reader:
        there = positions(flow, plane, reader)
    if there.denied:
        raise NotAllowed(there.denied_said)
    return there.found


def failed_partitions(
    flow: Flow,
    claims: Claims,
    found: Mapping[Partition, Stored],
    ends: Mapping[Partition, int],
    others: Mapping[Partition, int | None] = MappingProxyType({}),
) -> list[FailedPartition]:
    """Say of each partition that was ever claimed how far it is copied, and name those that never were, and the
    incidents that lanes have written down of each. Pure.

    Args:
        ends: by target partition.
        others: of partitions that the target doesn't have, or refuses an offset for, by source partition; None: not
            known.
    """
    rows, stopped = [], claims.open_occurrences()
    others_at = {Partition(routing.target_topic(flow, at.topic), at.partition): at for at in others}
    known = _known_ends(ends, {to: others[at] for to, at in others_at.items()})
    for claim in claims.claims.values():
        it = found.get(claim.target)
        position, problem = (it.offset, "") if isinstance(it, Position) else (None, "it has no position any more")
        if it is not None and not isinstance(it, Position):
            problem = it.why
        problem = _said(problem, stopped.get(claim.target, ()))
        rows.append(FailedPartition(claim.source, claim.target, position, known.get(claim.target), problem))
    unclaimed = known.keys() - {claim.target for claim in claims.claims.values()}
    for at in unclaimed:
        source = others_at.get(at) or Partition(routing.source_topic(flow, at.topic) or at.topic, at.partition)
        rows.append(FailedPartition(source, at, None, known[at], _said(NEVER_COPIED, stopped.get(at, ()))))
    return sorted(rows)


def _known_ends(ends: Mapping[Partition, int], others: Mapping[Partition, int | None]) -> dict[Partition, int | None]:
    """Join what is noted at two places. Where both have a partition, the target took an end of it once, and later no
    more: the older one would call it complete. If the later one isn't known, none is."""
    known = {**others, **ends}
    for at in ends.keys() & others.keys():
        other = others[at]
        known[at] = None if other is None else max(ends[at], other)
    return known


def _said(problem: str, incidents: Iterable[Occurrence]) -> str:
    return "; ".join([*([problem] if problem else []), *(f"{it.name}: {it.incident.detail}" for it in incidents)])


def still_selected(flow: Flow, rows: Iterable[FailedPartition], named: Collection[str] = ()) -> list[FailedPartition]:
    """Leave out what the flow file excludes by now, but for source topics that were `named`. Pure."""
    return [it for it in rows if it.source.topic in named or routing.selects(flow, it.source.topic)]


def ends_seen(flow: Flow, questions: GroupQuestions) -> tuple[dict[Partition, int], int]:
    """Return where the source's partitions ended when that was noted last, by target partition, and when (ms since 1970
    UTC; 0: never). Raises ReplicatorError."""
    group = names.ends_group(flow.name)
    values = _values(questions.offsets({group: None}, ASK_S, stable=False)[group])
    ends = {at: value for at, value in values.items() if value is not None}
    seen = [int(value.metadata) for value in ends.values() if value.metadata.isdigit()]
    return {at: value.offset for at, value in ends.items()}, max(seen, default=0)


def failed_groups(
    flow: Flow, plane: ControlPlane, questions: GroupQuestions, topics: Collection[str] = ()
) -> list[FailedGroup]:
    """Say of each group that the flow has ever committed for where it stands at the target. `topics`: only in these
    target topics; empty: in all. Raises ReplicatorError."""
    known = read_notes(flow, plane.target_reader)
    notes: defaultdict[str, dict[str, dict[int, OwnershipNote]]] = defaultdict(dict)
    for group, of_topic in known:
        if topics and of_topic not in topics:
            continue
        if found_notes := known.of(group, of_topic):  # none are left of a group that was deleted with its source's
            notes[group][of_topic] = found_notes
    listed = questions.listing(ASK_S)
    if listed.unanswered:
        raise listed.unanswered[0]
    rows = []
    for group, found in sorted(questions.offsets(notes, ASK_S, stable=False).items()):
        stands = {at: it for at, it in _values(found).items() if not topics or at.topic in topics}
        of_group = {Partition(name, at): it for name, each in notes[group].items() for at, it in each.items()}
        ours = {at for at, note in of_group.items() if stands.get(at) is not None and note.owns(stands[at])}
        others = sum(it is not None and at not in ours for at, it in stands.items())
        unanswered = sum(bool(note.unanswered) for note in of_group.values())
        members = group in listed.groups and listed.groups[group].has_members
        rows.append(FailedGroup(group, len(ours), others, unanswered, members))
    return rows


def half_copied_transactions(
    notes: TransactionNotes,
    rows: Iterable[FailedPartition],
    found: Mapping[Partition, Stored],
    topics: Collection[str] = (),
) -> tuple[tuple[HalfCopied, ...], TransactionsSeen]:
    """Say which of the source's transactions that were noted are half copied, or may be, the certain ones first; and
    how they were looked at. A position in another topic of the same name than the one that was looked at says
    nothing, and one where copies may be gone says only what isn't copied.

    Pure.

    Args:
        notes: of the source's transactions.
        rows: up to where each partition is copied.
        found: the positions, by target partition.
        topics: only those that have written there; empty: all.
    """
    ids, rows = notes.last.ids, list(rows)
    doubted = {row.source for row in rows if copies_doubted(row)}
    stands = {
        row.source: 0 if row.problem.startswith(NEVER_COPIED) else row.position
        for row in rows
        if not isinstance(it := found.get(row.target), Position)
        or it.evidence.source_topic_id == ids.get(row.source.topic, it.evidence.source_topic_id)
    }
    positions = {at: position for at, position in stands.items() if position is not None}
    noted = [
        one
        for one in (*notes.ended.values(), *notes.last.still_open)
        if not topics or any(at.topic in topics for at in one.parts)
    ]
    torn = [it for it in (half_copied(one, positions, doubted) for one in noted) if it is not None]
    last = notes.last
    seen = TransactionsSeen(last.looked_ms, last.since_ms, last.left_out, last.problem)
    return tuple(sorted(torn, key=lambda it: not it.certain)), seen


def _values(found: GroupValues | ReplicatorError) -> dict[Partition, GroupOffset | None]:
    if isinstance(found, ReplicatorError):
        raise found
    stands: dict[Partition, GroupOffset | None] = {}
    for topic, values in found.topics().items():
        for number, value in values.items():
            at = Partition(topic, number)
            if isinstance(value, int):
                raise Incident("refused_by_cluster", f"the target doesn't tell the offsets of {at}")
            stands[at] = value
    return stands
