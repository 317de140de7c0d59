"""What is kept of sections whose copies the target's retention has taken. Pure; called by `consolidate`.

Invariant: from what is left the fold makes what it makes of the sections themselves when it forgets their places
(`PartitionFold.prune`): the source ranges and how many copies they had, where the map begins and where its chain is
broken, what was set aside, dropped and signed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from replicator.offset_map.page import TimedSection
from replicator.offset_map.section import NO_DIGEST, MapSection, PrunedCopies


def pruned_sections(sections: Iterable[TimedSection]) -> list[TimedSection]:
    """Return sections without their runs; those that only go on where the last one ended become one with it."""
    found: list[TimedSection] = []
    for one in sections:
        bare = _without_runs(one.section)
        last = found[-1] if found else None
        if last is not None and _goes_on(last.section, bare):
            found[-1] = one._replace(commit_ms=last.commit_ms, section=_joined(last.section, bare))
        else:
            found.append(one._replace(section=bare))
    return found


def _without_runs(section: MapSection) -> MapSection:
    if not section.runs:
        return replace(section, digest_kind=NO_DIGEST, digest=b"")
    copies = (section.runs[0][0], section.runs[-1][1], section.records)
    return replace(
        section,
        runs=(),
        pruned=PrunedCopies((copies,), section.target_end, 1),
        digest_kind=NO_DIGEST,
        digest=b"",
        continued=False,
    )


def _goes_on(last: MapSection, section: MapSection) -> bool:
    special = section.base or section.gap or section.aside or section.dropped or section.repair
    if special or last.gap or last.aside or last.dropped or last.repair:
        return False
    follows = section.before == last.after and section.count_before == last.count
    return follows and (not section.claims_target or section.first_target >= last.target_end)


def _joined(last: MapSection, section: MapSection) -> MapSection:
    ranges = list(last.pruned.ranges) if last.pruned is not None else []
    for first, end, copies in section.pruned.ranges if section.pruned is not None else ():
        if ranges and ranges[-1][1] <= first:
            ranges[-1] = ranges[-1][0], end, ranges[-1][2] + copies
        else:
            ranges.append((first, end, copies))
    return replace(
        last,
        after=section.after,
        leader_epoch=section.leader_epoch,
        log_start=section.log_start,
        first_target=last.first_target if last.claims_target or last.base else _first_target(last, section),
        count=section.count,
        pruned=PrunedCopies(
            tuple(ranges), max(last.target_end, section.target_end, 0), last.transactions + section.transactions
        ),
    )


def _first_target(last: MapSection, section: MapSection) -> int:
    """Return where a section begins at the target; of one without copies that is where the next ones may stand, if it
    is known.
    """
    return last.first_target if last.first_target >= 0 else section.first_target
