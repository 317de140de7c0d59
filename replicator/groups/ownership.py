"""Whose a committed offset of a consumer group at the target is: the flow's, or somebody else's. Pure.

A broker doesn't say who committed an offset, so the flow keeps a note of each partition of each group: what it has
committed last, and what it may have committed. The notes are durable, and have one writer at a time.

Invariants
- An offset is noted, durably, before it is committed. So whoever takes over, after fencing the writer of notes before
  it and reading them, knows every commit that can still arrive.
- An offset is the flow's only if the last note has it. That it was the flow's once doesn't count: an operator may have
  reset the group to just that one.
- A commit that was answered is noted as such at once: what stood there before isn't the flow's any more.
- A commit without an answer may arrive for `LATE_MS`; after that the next look at the target decides.
- Once somebody else's offset was seen, no offset is the flow's until there is none at all: deleting it hands it back.
- Notes have a digest in place of long metadata (`noted`): all that they are for is to tell whether an offset is the
  very one that was committed. Values of the cluster are never replaced.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

LATE_MS = 60_000
"""How long after its deadline a commit may still be applied: it waited in a connection, or in a broker's queue."""
UNANSWERED_MAX = 4
METADATA_MAX = 64
"""Characters of an offset's metadata that notes keep as they are. A digest is longer: no metadata looks like one."""
DIGEST = "blake2b-256:"


class GroupOffset(NamedTuple):
    """A committed offset and its metadata, which is the application's: both must be equal for the same offset."""

    offset: int
    metadata: str = ""


def noted(value: GroupOffset) -> GroupOffset:
    """Return what notes keep of an offset, with a digest instead of long metadata: brokers take 4 KiB of it for each of
    thousands of partitions. Equal for equal offsets alone."""
    offset, metadata = value
    if len(metadata) <= METADATA_MAX:
        return value
    return GroupOffset(offset, DIGEST + blake2b(metadata.encode(), digest_size=32).hexdigest())


class UnansweredCommit(NamedTuple):
    """What was about to be committed, as `noted`, and until when (ms since 1970 UTC) it may arrive."""

    value: GroupOffset
    until_ms: int


class OwnershipNote(NamedTuple):
    """What the flow has committed in one partition of one group at the target. Methods take values as they are.

    Attributes:
        last: what certainly stood there last, committed by the flow, as `noted`; None: nothing.
        unanswered: what may stand there, or may still arrive; the oldest first.
    """

    last: GroupOffset | None = None
    unanswered: tuple[UnansweredCommit, ...] = ()

    def owns(self, there: GroupOffset | None) -> bool:
        """Return whether what stands at the target was committed by the flow, or nothing stands there."""
        if there is None:
            return True
        if len(there[1]) > METADATA_MAX:  # asked here, too: of millions hardly any has
            there = noted(there)
        if there == self.last:
            return True
        return bool(self.unanswered) and any(there == one.value for one in self.unanswered)

    def observed(self, there: GroupOffset | None, now_ms: int) -> OwnershipNote:
        """Return the note after a look at the target, which was made after this note was read or written: one that owns
        nothing if what stands there isn't the flow's."""
        if there is not None and len(there[1]) > METADATA_MAX:
            there = noted(there)
        last, unanswered = self
        if there == last:
            if not unanswered:
                return self
        elif there is not None and not any(there == one.value for one in unanswered):
            return OwnershipNote()
        return OwnershipNote(there, tuple([one for one in unanswered if one.until_ms > now_ms]))

    def before_commit(self, value: GroupOffset, until_ms: int) -> OwnershipNote | None:
        """Return the note to be durable before `value` is committed; None: too many commits have no answer yet.

        Args:
            until_ms: the deadline of the commit and `LATE_MS`.
        """
        if len(self.unanswered) >= UNANSWERED_MAX:
            return None
        if len(value[1]) > METADATA_MAX:
            value = noted(value)
        return OwnershipNote(self.last, (*self.unanswered, UnansweredCommit(value, until_ms)))

    def with_committed(self, value: GroupOffset) -> OwnershipNote:
        """Return the note after the coordinator has said that `value` is committed."""
        if len(value[1]) > METADATA_MAX:
            value = noted(value)
        return OwnershipNote(value, self._without(value))

    def refused(self, value: GroupOffset) -> OwnershipNote:
        """Return the note after the coordinator has said that `value` is not committed, and won't be."""
        return OwnershipNote(self.last, self._without(noted(value)))

    def _without(self, value: GroupOffset) -> tuple[UnansweredCommit, ...]:
        """Return unanswered commits without the newest of this value, as `noted`: an older one is still without an
        answer.
        """
        unanswered = self.unanswered
        for number in reversed(range(len(unanswered))):
            if unanswered[number].value == value:
                return unanswered[:number] + unanswered[number + 1 :]
        return unanswered
