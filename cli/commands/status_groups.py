"""What `status` says of the consumer groups that a flow syncs; `groups` shows each of their partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.options import patience_ms

if TYPE_CHECKING:
    from replicator.config import Flow
    from replicator.groups.shown_groups import GroupShown

GROUPS_SHOWN = 10  # of those that are not in sync


@dataclass(frozen=True, slots=True)
class FlowGroups:
    """A flow's groups; and why something isn't known of them."""

    groups: tuple[GroupShown, ...] = ()
    unknown: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, for machines: without the partitions."""
        return {
            "groups": [
                {
                    "group": it.group,
                    "target_group": it.target_group,
                    "kind": it.kind or "consumer",
                    "partitions": it.partitions,
                    "in_sync": it.in_sync,
                    "again": it.again,
                    "again_unknown": it.again_unknown,
                    "detail": it.said,
                    "looked_ms": it.looked_ms,
                    "unknown": it.unknown,
                }
                for it in self.groups
            ],
            "unknown": list(self.unknown),
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people: those that are not in sync, each with the reason."""
        from replicator.groups.shown_groups import in_sync
        from replicator.model.counting import counted

        if self.groups or not self.unknown:
            yield f"{counted(len(self.groups), 'consumer group')}, {in_sync(self.groups)} in sync"
        waiting = [it for it in self.groups if not it.settled]
        yield from (f"group {it.group}: {it.said}" for it in waiting[:GROUPS_SHOWN])
        if len(waiting) > GROUPS_SHOWN:
            yield f"and {len(waiting) - GROUPS_SHOWN:,} more groups that are not; eos-replicate groups shows them"
        yield from (f"consumer groups: {why}" for why in self.unknown)


def ask_groups(flows: Iterable[Flow], known: Collection[str]) -> Mapping[str, FlowGroups]:
    """Look at the groups of flows that sync any, by flow; only of those that are `known`, whose clusters answer."""
    from replicator.group_sync import view
    from replicator.model.errors import ReplicatorError

    found = {}
    for flow in flows:
        if flow.groups.synced and flow.name in known:
            try:
                seen = view.look(flow, connect_timeout_ms=patience_ms(flow))
                unknown = tuple(map(str, seen.unanswered))
                found[flow.name] = FlowGroups(tuple(seen.groups), unknown)
            except ReplicatorError as error:  # the rest of the status is known
                found[flow.name] = FlowGroups(unknown=(str(error),))
    return found
