"""Members of a classic consumer group, and the protocol they have in common.

Source: Kafka `ClassicGroup`, `ClassicGroupMember`; KIP-345 (static members).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

Protocols = Sequence[tuple[str, bytes]]
MEMBER_BYTES = 2_500
"""What a member, or an announced one, takes beside what it says; perhaps it is a group's only one."""


def member_bytes(client_id: str, instance_id: str | None, protocols: Protocols) -> int:
    """Compute what a member takes in memory that says this of itself."""
    said = sum(len(name) + len(metadata) + 100 for name, metadata in protocols)
    return MEMBER_BYTES + len(client_id) + len(instance_id or "") + said


@dataclass(slots=True)
class Member:
    """A member. `joining` and `syncing` hold the ticket of a request that waits for its answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    # In the member's order of preference.
    protocols: Protocols
    assignment: bytes = b""
    joining: object | None = None
    syncing: object | None = None
    # Until its first rebalance is over; such a member may expire while it waits for the rebalance.
    is_new: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether a pending request of the member proves that it is alive."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return member_bytes(self.client_id, self.instance_id, self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """Return what the member said for a protocol; nothing if it doesn't know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


def _names(protocols: Protocols) -> frozenset[str]:
    return frozenset(name for name, _ in protocols)


class Members:
    """Members in the order in which they came. Invariant: an instance id belongs to at most one member."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self.leader_id: str | None = None
        # Were given a member id and must join again with it (KIP-394).
        self.pending: dict[str, None] = {}  # in the order of their first requests
        # What `common_protocols` has found, or None: in a rebalance each member that joins asks for it.
        self._common: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def sizes(self) -> dict[str, int]:
        """Return what each member takes in memory, those announced included."""
        found = dict.fromkeys(self.pending, MEMBER_BYTES)
        found.update((member_id, member.size_bytes) for member_id, member in self._by_id.items())
        return found

    def with_instance(self, instance_id: str) -> str | None:
        """Return the member id of a static member."""
        return self._by_instance.get(instance_id)

    def add(self, member: Member) -> None:
        """Take in a member; the first one leads."""
        names = _names(member.protocols)
        self._common = names if not self._by_id else self._common and self._common & names
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member, pending or not; the next one leads."""
        self.pending.pop(member_id, None)
        member = self._by_id.pop(member_id, None)
        self._common = None
        if member is not None and member.instance_id is not None:
            self._by_instance.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._by_id), None)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Take the protocols that a member says anew that it knows."""
        if _names(protocols) != _names(member.protocols):
            self._common = None
        member.protocols = protocols

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Note that a static member has joined again without its member id: the same member under a new one."""
        old = self._by_id.pop(old_id)
        member = replace(old, member_id=new_id, joining=None, syncing=None, is_new=False)
        self._by_id[new_id] = member
        if old.instance_id is not None:
            self._by_instance[old.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def all_joined(self) -> bool:
        """Return whether every member, known or announced, waits for the rebalance."""
        if self.pending:
            return False
        for member in self._by_id.values():  # noqa: SIM110 - asked by each member that joins: a generator takes longer
            if member.joining is None:
                return False
        return True

    def elect_joined_leader(self) -> bool:
        """Give the lead to a member that has joined, if the leader has not. False if nobody has."""
        if self.leader_id is not None and self._by_id[self.leader_id].joining is not None:
            return True
        joined = next((member.member_id for member in self._by_id.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits: as the most patient member asks."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def common_protocols(self) -> frozenset[str]:
        """Return the protocols that all members know."""
        if self._common is None:
            known: Counter[str] = Counter()
            for member in self._by_id.values():
                known.update(list(dict.fromkeys(name for name, _ in member.protocols)))
            self._common = frozenset(name for name, count in known.items() if count == len(self._by_id))
        return self._common

    def select_protocol(self) -> str:
        """Choose the common protocol that most members like best."""
        common = self.common_protocols()
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in self._by_id.values())
        return votes.most_common(1)[0][0]
