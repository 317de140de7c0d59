"""A limit on what members of groups hold in memory, which stays there after they have disconnected.

Used by `ClassicGroups` and `ConsumerGroups`. A member holds what it says of itself when it joins, and its assignment,
until its session expires, which may be after half an hour.

Invariants
- One member holds MEMBER_BYTES_MAX at most, and one connection MEMBERS_MAX members.
- All members of all groups hold `bytes_max` at most, those of one address three quarters of it, or one member more.
- For one that joins when there is no space, members leave of the connection that holds most, if that holds more than
  the one that joins will, and more than a part of ALLOWANCE_PARTS; else the one that joins is refused. So no number of
  members, small or large, by few or by many connections, drives out those of a client that holds little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from embedded_broker.state.owners import Owner

MEMBER_BYTES_MAX = 1024 * 1024
"""Kafka takes a group whose record fits into a batch of __consumer_offsets: 1 MiB for all members together."""
MEMBERS_MAX = 100
"""Of one connection: a client has one, or a few."""
ALLOWANCE_PARTS = 128
"""A connection whose members hold no more than such a part of all that members may hold doesn't lose them to others."""


class Place(NamedTuple):
    """A member of a group."""

    group_id: str
    member_id: str


class GroupMemory:
    """What each connection's members hold."""

    def __init__(self, bytes_max: int, evict: Callable[[Place], None]) -> None:
        """
        Args:
            bytes_max: in all.
            evict: removes a member, and calls `note`.
        """
        self._bytes_max, self._evict = bytes_max, evict
        self._owners: dict[Place, Owner] = {}
        self._sizes: dict[str, dict[str, int]] = {}
        self._members: dict[Owner, dict[Place, int]] = {}
        self._by_owner: Counter[Owner] = Counter()
        self._by_address: Counter[str] = Counter()
        self.total_bytes = 0

    def admit(self, owner: Owner, place: Place, joining_bytes: int) -> bool:
        """Return whether a member of that size may join by a connection, or join again. Others may leave for it."""
        joining_bytes += len(place.group_id)
        own_bytes = self._sizes.get(place.group_id, {}).get(place.member_id, 0)
        more_bytes = max(joining_bytes - own_bytes, 0)
        members = self._members.get(owner, {})
        if joining_bytes > MEMBER_BYTES_MAX or (place not in members and len(members) >= MEMBERS_MAX):
            return False
        for other in self._surplus(owner, more_bytes):
            self._evict(other)
        if not self._fits(owner, more_bytes):
            return False
        self._own(place, owner)
        return True

    def forget_absent(self, place: Place) -> None:
        """Forget a member that was admitted, and may have been refused for another reason since."""
        if place.member_id not in self._sizes.get(place.group_id, {}):
            self._owners.pop(place, None)

    def found(self, place: Place, address: str) -> None:
        """Note that a member is there at the start, which counts by itself, and to its address; call `note` then."""
        self._owners[place] = Owner(address, place)

    def _own(self, place: Place, owner: Owner) -> None:
        group_id, member_id = place
        size = self._sizes.get(group_id, {}).get(member_id, 0)
        self._count(place, -size)
        self._owners[place] = owner
        self._count(place, size)

    def note(self, group_id: str, sizes: dict[str, int]) -> None:
        """Note that the members of a group, and what each holds, have changed; nobody is left if `sizes` is empty."""
        for member_id in [each for each in self._sizes.get(group_id, ()) if each not in sizes]:
            self.left(Place(group_id, member_id))
        for member_id, size in sizes.items():
            self.note_one(Place(group_id, member_id), size)

    def note_one(self, place: Place, size: int) -> None:
        """Note that one member of a group holds so much now; no other has changed."""
        sizes = self._sizes.setdefault(place.group_id, {})
        size += len(place.group_id)
        self._count(place, size - sizes.get(place.member_id, 0))
        sizes[place.member_id] = size

    def left(self, place: Place) -> None:
        """Note that a member is gone."""
        sizes = self._sizes.get(place.group_id, {})
        size = sizes.pop(place.member_id, 0)
        if not sizes:
            self._sizes.pop(place.group_id, None)
        self._count(place, -size)
        self._owners.pop(place, None)

    def _count(self, place: Place, more_bytes: int) -> None:
        if not more_bytes:
            return
        owner = self._owners.get(place) or Owner("", place)
        members = self._members.setdefault(owner, {})
        members[place] = members.get(place, 0) + more_bytes
        if not members[place]:
            del members[place]
        if not members:
            del self._members[owner]
        self.total_bytes += more_bytes
        self._by_owner[owner] += more_bytes
        if not self._by_owner[owner]:
            del self._by_owner[owner]
        self._by_address[owner.address] += more_bytes
        if not self._by_address[owner.address]:
            del self._by_address[owner.address]

    def _surplus(self, owner: Owner, joining_bytes: int) -> Iterator[Place]:
        """Yield members, one after the other, that must leave first. Ends when there is space, or when nobody else
        holds more than the one that joins."""
        while not self._fits(owner, joining_bytes):
            among = self._by_owner
            if not self._has_space_for_address(owner, joining_bytes):
                among = Counter({each: among[each] for each in among if each.address == owner.address})
            most = max(among, key=among.__getitem__, default=owner)
            if among[most] <= max(self._by_owner[owner] + joining_bytes, self._bytes_max // ALLOWANCE_PARTS):
                return
            members = self._members[most]
            yield max(members, key=members.__getitem__)

    def _fits(self, owner: Owner, joining_bytes: int) -> bool:
        has_space = self.total_bytes + joining_bytes <= self._bytes_max
        return has_space and self._has_space_for_address(owner, joining_bytes)

    def _has_space_for_address(self, owner: Owner, joining_bytes: int) -> bool:
        return self._by_address[owner.address] + joining_bytes <= self._bytes_max * 3 // 4
