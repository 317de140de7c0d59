"""What `status` says of consumer groups."""

from __future__ import annotations

from cli.commands.status_groups import GROUPS_SHOWN, FlowGroups
from replicator.groups.decision import GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.row_columns import PartitionSeen, RowColumns
from replicator.groups.shown_groups import GroupShown


def group(name: str, *verdicts: GroupVerdict) -> GroupShown:
    rows = {
        number: PartitionSeen(GroupOffset(5), verdict, 4, again=2, exact=True)
        for number, verdict in enumerate(verdicts)
    }
    return GroupShown(name, f"{name}.copy", (RowColumns("orders", "orders.copy").with_rows(rows),))


def test_those_that_wait_are_named_with_the_reason() -> None:
    groups = (group("well", GroupVerdict.IN_SYNC), group("busy", GroupVerdict.IN_SYNC, GroupVerdict.HAS_MEMBERS))
    assert list(FlowGroups(groups).lines()) == ["2 consumer groups, 1 in sync", "group busy: 1 has_members"]
    well, busy = FlowGroups(groups).as_json()["groups"]
    assert well == {
        "group": "well", "target_group": "well.copy", "kind": "consumer", "partitions": 1, "in_sync": 1, "again": 2,
        "again_unknown": 0, "detail": "in sync", "looked_ms": 0, "unknown": "",
    }  # fmt: skip
    assert (busy["in_sync"], busy["partitions"]) == (1, 2)


def test_a_partition_without_an_offset_at_the_source_keeps_no_group_waiting() -> None:
    groups = FlowGroups((group("partly", GroupVerdict.IN_SYNC, GroupVerdict.NO_OFFSET),))
    assert list(groups.lines()) == ["1 consumer group, 1 in sync"]


def test_a_long_list_is_cut_and_says_so() -> None:
    groups = tuple(group(f"g{number}", GroupVerdict.HELD) for number in range(GROUPS_SHOWN + 3))
    lines = list(FlowGroups(groups).lines())
    assert len(lines) == GROUPS_SHOWN + 2
    assert lines[-1].startswith("and 3 more")


def test_what_cannot_be_asked_is_said_and_not_taken_for_none() -> None:
    assert list(FlowGroups(unknown=("no right",)).lines()) == ["consumer groups: no right"]


def test_what_could_not_be_looked_at_is_unknown_and_what_has_no_offset_is_neither() -> None:
    lost = group("lost", GroupVerdict.IN_SYNC)._replace(unknown="no answer", looked_ms=7)
    groups = FlowGroups((lost, GroupShown("idle", "idle"), group("well", GroupVerdict.IN_SYNC)))
    assert list(groups.lines()) == ["3 consumer groups, 1 in sync", "group lost: unknown: no answer"]
    assert [(it["in_sync"], it["looked_ms"], it["unknown"]) for it in groups.as_json()["groups"]] == [
        (0, 7, "no answer"), (0, 0, ""), (1, 0, ""),
    ]  # fmt: skip
    (row,) = lost.rows
    assert (row.verdict, row.detail, row.looked_ms, row.source, row.target) == (
        GroupVerdict.UNKNOWN, "no answer", 7, 5, 4,
    )  # fmt: skip
    assert not lost.settled
