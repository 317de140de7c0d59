"""What is asked about which consumer groups there are, and who coordinates them; over kio's codecs. Sans-I/O.

Their offsets are read and committed with `offset_fetch_groups` and `offset_commit`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from replicator.model.errors import Unsupported
from replicator.wire.connection import Fields
from replicator.wire.protocol import Exchange

LIST, FIND = "list_groups", "find_coordinator"
FIND_VERSION_MIN = 4
"""The first that asks about several groups (KIP-699, Kafka 3.0)."""
_GROUP = 0  # FindCoordinator's key type


class ListedGroup(NamedTuple):
    """A group as one broker lists it. `kind` is its group type (KIP-848), empty before Kafka 3.8; `protocol` the type
    of its members' protocol, empty where it never had any; `state`: Empty, Stable, Dead, ..."""

    protocol: str
    state: str
    kind: str

    @property
    def has_members(self) -> bool:
        """Whether somebody may be consuming."""
        return self.state not in ("Empty", "Dead")


class GroupCoordinator(NamedTuple):
    """The answer for one group: an error, or where its coordinator is."""

    code: int
    address: tuple[str, int]


def list_fields(_: Exchange) -> dict[str, Any]:
    """Make the fields of a question for all groups that one broker coordinates."""
    return {"states_filter": (), "types_filter": ()}


def listed(answer: Any) -> tuple[int, dict[str, ListedGroup]]:
    """Return the error of an answer to `list_fields`, and the groups by name."""
    return int(answer.error_code), {
        one.group_id: ListedGroup(one.protocol_type, one.group_state, getattr(one, "group_type", "").lower())
        for one in answer.groups
    }


def find_fields(groups: Collection[str]) -> Fields:
    """Make the fields of a question for the coordinators of groups (KIP-699)."""

    def fields(exchange: Exchange) -> dict[str, Any]:
        if exchange.version < FIND_VERSION_MIN:
            raise Unsupported("a broker can't be asked for the coordinators of several groups at once (Kafka 3.0)")
        return {"key_type": _GROUP, "coordinator_keys": tuple(groups)}

    return fields


def coordinators(answer: Any) -> dict[str, GroupCoordinator]:
    """Return what an answer to `find_fields` says, by group."""
    return {one.key: GroupCoordinator(int(one.error_code), (one.host, int(one.port))) for one in answer.coordinators}
